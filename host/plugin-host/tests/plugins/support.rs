//! A plugin directory for a test, and test servers on loopback.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{
    Layer, filter::filter_fn, fmt::format::FmtSpan, layer::SubscriberExt, util::SubscriberInitExt,
};
use transom_plugin_host::{
    Change, CompileProcess, Compiler, Config, Plugins, Status,
    probe::{Endpoint, Failure, Kind, Outcome, Port, Request},
};

/// Maximum time that a test waits for a condition.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// The path of `NAME.wasm` among the built components. Hostile components are under `tests/`.
pub(crate) fn component(name: &str) -> PathBuf {
    let dir = std::env::var_os("TRANSOM_COMPONENTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/components"),
        PathBuf::from,
    );
    let path = dir.join(format!("{name}.wasm"));
    assert!(
        path.is_file(),
        "{} is missing: run cargo xtask plugins first",
        path.display()
    );
    path
}

/// Compiles in a separate process as the daemon does, with a binary of this crate.
pub(crate) fn compile_process() -> CompileProcess {
    CompileProcess {
        program: env!("CARGO_BIN_EXE_compile-component").into(),
        arguments: Vec::new(),
        memory: 2 << 30,
    }
}

/// A plugin host with a temporary directory.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) plugins: Plugins,
    pub(crate) registry: Registry,
    token: CancellationToken,
}

/// A plugin in the directory before the host starts: component, name and manifest. `None`: the
/// manifest that was built with the component.
pub(crate) type Installed<'a> = (&'a str, &'a str, Option<&'a str>);

impl Site {
    pub(crate) async fn with(installed: &[Installed<'_>]) -> Site {
        Site::with_config(installed, |_| ()).await
    }

    pub(crate) async fn with_config(installed: &[Installed<'_>], change: impl FnOnce(&mut Config)) -> Site {
        let dir = TempDir::new().unwrap();
        for (source, name, manifest) in installed {
            install(dir.path(), source, name, *manifest);
        }
        Site::on(dir, change).await
    }

    /// Starts a host and waits until it has admitted or rejected all plugins.
    async fn on(dir: TempDir, change: impl FnOnce(&mut Config)) -> Site {
        let site = Site::unsettled(dir, change).await;
        wait_until("all admissions to end", || {
            site.plugins.list().iter().all(|it| it.admitting.is_none())
        })
        .await;
        site
    }

    async fn unsettled(dir: TempDir, change: impl FnOnce(&mut Config)) -> Site {
        capture_logs();
        let mut registry = Registry::default();
        let token = CancellationToken::new();
        let mut config = Config::new(dir.path());
        config.bindings.filters = vec!["faulty-events".into()];
        config.compiler = Compiler::Process(compile_process());
        change(&mut config);
        let plugins = config.start(&mut registry, token.clone()).await.unwrap();
        Site {
            dir,
            plugins,
            registry,
            token,
        }
    }

    /// Stops the host, calls `meanwhile`, and starts another host on the same directory.
    pub(crate) async fn restart(
        self,
        meanwhile: impl FnOnce(&Path),
        change: impl FnOnce(&mut Config),
    ) -> Site {
        self.token.cancel();
        tokio::time::timeout(TIMEOUT, self.plugins.stopped())
            .await
            .expect("the host stops");
        meanwhile(self.dir.path());
        Site::on(self.dir, change).await
    }

    /// Like [`Site::restart`], but does not wait for admissions.
    pub(crate) async fn restart_unsettled(self, change: impl FnOnce(&mut Config)) -> Site {
        self.token.cancel();
        tokio::time::timeout(TIMEOUT, self.plugins.stopped())
            .await
            .expect("the host stops");
        Site::unsettled(self.dir, change).await
    }

    pub(crate) fn status(&self, name: &str) -> Status {
        let list = self.plugins.list();
        list.into_iter().find(|it| it.name == name).unwrap()
    }

    /// The value of a metric. `name` includes the labels as they are written.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|it| it.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().unwrap()
    }

    /// The values of all series of a metric whose labels contain all of these, as they are written.
    pub(crate) fn values(&self, name: &str, labels: &[&str]) -> Vec<f64> {
        let text = self.metrics();
        let series = text
            .lines()
            .filter_map(|it| it.strip_prefix(name)?.strip_prefix('{'));
        series
            .filter_map(|it| it.split_once("} "))
            .filter(|(found, _)| labels.iter().all(|label| found.contains(label)))
            .map(|(_, value)| value.parse().unwrap())
            .collect()
    }

    /// The sum of these values, for a counter.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        self.values(name, labels).iter().map(|it| *it as u64).sum()
    }

    /// Number of calls of a plugin with this outcome, over all of its versions.
    pub(crate) fn calls_with_outcome(&self, plugin: &str, outcome: &str) -> u64 {
        let labels = [format!("plugin=\"{plugin}\""), format!("outcome=\"{outcome}\"")];
        self.sum(
            "transom_plugins_calls_total",
            &labels.each_ref().map(String::as_str),
        )
    }

    /// Replaces files and waits until the host has admitted or rejected them. Returns the last
    /// change.
    pub(crate) async fn replace(&self, source: &str, name: &str, manifest: &str) -> Change {
        self.change_files(|| install(self.dir.path(), source, name, Some(manifest)))
            .await
    }

    /// Returns the last change that `act` on the directory causes. There may be more than one,
    /// because the directory is also watched and may be scanned between two files.
    pub(crate) async fn change_files(&self, act: impl FnOnce()) -> Change {
        let mut changes = self.plugins.changes();
        act();
        self.plugins.rescan().await;
        let mut last = None;
        while let Ok(change) = changes.try_recv() {
            last = Some(change);
        }
        last.expect("a change")
    }

    pub(crate) async fn probe(
        &self,
        name: &str,
        settings: &str,
        at: Option<&Endpoint>,
    ) -> Result<Outcome, Failure> {
        let mut request = request(at);
        request.settings = settings.to_owned();
        self.plugins.probe(Kind::Named(name.into()), request, None).await
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    pub(crate) async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(TIMEOUT, self.plugins.stopped())
            .await
            .expect("the host stops");
    }
}

/// Puts a component and its manifest into a directory, each by a rename.
pub(crate) fn install(dir: &Path, source: &str, name: &str, manifest: Option<&str>) {
    let source = component(source);
    let manifest = manifest.map_or_else(
        || std::fs::read_to_string(source.with_extension("toml")).unwrap(),
        str::to_owned,
    );
    write_file(dir, &format!("{name}.toml"), manifest.as_bytes());
    write_file(dir, &format!("{name}.wasm"), &std::fs::read(source).unwrap());
}

pub(crate) fn write_file(dir: &Path, name: &str, content: &[u8]) {
    let temporary = dir.join(format!(".{name}.new"));
    std::fs::write(&temporary, content).unwrap();
    std::fs::rename(temporary, dir.join(name)).unwrap();
}

/// Appends sections to a component.
pub(crate) fn with_sections(component: &[u8], sections: &[Vec<u8>]) -> Vec<u8> {
    [component, &sections.concat()].concat()
}

/// Encodes a section of a component or of a module.
pub(crate) fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb128(content.len()), content].concat()
}

/// Encodes a number in LEB128, as in the binary format.
pub(crate) fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns the same component with another digest: a custom section is appended, which the engine
/// ignores.
pub(crate) fn stamped(component: &[u8], stamp: u32) -> Vec<u8> {
    let content = [&b"\x05stamp"[..], &stamp.to_le_bytes()].concat();
    with_sections(component, &[section(0, &content)])
}

/// A component that takes minutes to compile: a core module with this number of equal functions.
pub(crate) fn slow_to_compile(functions: usize) -> Vec<u8> {
    // local.get 0, local.get 0, i32.mul, local.get 0, i32.add, local.set 0
    let work = [0x20, 0, 0x20, 0, 0x6c, 0x20, 0, 0x6a, 0x21, 0].repeat(50);
    let body = [&[0][..], &work, &[0x20, 0, 0x0b]].concat();
    let code = [leb128(body.len()), body].concat();
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]),
        section(3, &[leb128(functions), vec![0; functions]].concat()),
        section(10, &[leb128(functions), code.repeat(functions)].concat()),
    ]
    .concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module)].concat()
}

/// Waits until a condition holds. Fails after [`TIMEOUT`].
pub(crate) async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let done = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, done).await.expect(what);
}

/// Number of sections of this kind at the top level of a component.
pub(crate) fn sections_of(component: &[u8], kind: u8) -> usize {
    let mut at = 8;
    let mut found = 0;
    while at < component.len() {
        found += usize::from(component[at] == kind);
        at += 1;
        let mut size = 0;
        for shift in 0.. {
            let byte = component[at];
            at += 1;
            size |= usize::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                break;
            }
        }
        at += size;
    }
    found
}

pub(crate) fn custom(json: &str) -> Outcome {
    Outcome::Custom(json.to_owned())
}

pub(crate) fn request(at: Option<&Endpoint>) -> Request {
    Request {
        run_spec: "/shop/web".into(),
        task: "web.1".into(),
        agent: "agent1".into(),
        labels: vec![],
        ports: at
            .map(|at| Port {
                name: None,
                protocol: "tcp".into(),
                endpoint: at.clone(),
            })
            .into_iter()
            .collect(),
        endpoint: at.cloned(),
        path: "/".into(),
        command: None,
        settings: "{}".into(),
        previous: None,
        timeout: Duration::from_secs(30),
        extensions: vec![],
    }
}

static LOGS: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Capture;

impl std::io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGS.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Captures the log lines of all tests of this process: warnings and errors of the host, the lines
/// of guests, and the spans of calls.
fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A span appears as the line that is written when it is closed.
        let captured = filter_fn(|it| {
            *it.level() <= tracing::Level::WARN
                || it.target() == "transom_plugin_host::guest"
                || it.is_span() && it.name() == "plugin_call"
        });
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(|| Capture);
        tracing_subscriber::registry()
            .with(lines.with_filter(captured))
            .init();
    });
}

/// Whether a log line contains all `parts`. They have to be unique to the test.
pub(crate) fn logged(parts: &[&str]) -> bool {
    times_logged(parts) > 0
}

/// Number of log lines that contain all `parts`.
pub(crate) fn times_logged(parts: &[&str]) -> usize {
    let logs = LOGS.lock().unwrap();
    String::from_utf8_lossy(&logs)
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .count()
}

/// A server. Dropping it closes it and all of its connections.
pub(crate) struct Server {
    pub(crate) endpoint: Endpoint,
    _tasks: JoinSet<()>,
}

impl Server {
    /// `serve` is called for each connection.
    pub(crate) async fn new<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Server {
            endpoint: Endpoint {
                host: "127.0.0.1".into(),
                port,
            },
            _tasks: tasks,
        }
    }

    /// Answers each HTTP request with the text that `answer` returns for its first line.
    pub(crate) async fn http<F>(answer: impl Fn(String) -> F + Clone + Send + Sync + 'static) -> Server
    where
        F: Future<Output = String> + Send + 'static,
    {
        Server::new(move |mut stream| {
            let answer = answer.clone();
            async move {
                let head = read_head(&mut stream).await;
                let first = head.lines().next().unwrap_or_default().to_owned();
                let answer = answer(first).await;
                // The peer may have closed the connection.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await
    }

    /// A port without a listener.
    pub(crate) async fn closed() -> Endpoint {
        let server = Server::new(|_| async {}).await;
        let endpoint = server.endpoint.clone();
        drop(server);
        // Waits until the listener is closed.
        tokio::time::timeout(TIMEOUT, async {
            while TcpStream::connect((endpoint.host.as_str(), endpoint.port))
                .await
                .is_ok()
            {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        endpoint
    }
}

/// The requests that wait at a server for their response.
pub(crate) struct Waiting {
    arrivals: mpsc::UnboundedReceiver<()>,
    release: Arc<Notify>,
}

impl Waiting {
    /// A server that answers each request with an empty 200 when it is released.
    pub(crate) async fn server() -> (Server, Waiting) {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let release = Arc::new(Notify::new());
        let gate = Arc::clone(&release);
        let server = Server::http(move |_| {
            let (arrived, gate) = (arrived.clone(), gate.clone());
            async move {
                arrived.send(()).unwrap();
                gate.notified().await;
                response(200, "", "")
            }
        })
        .await;
        (server, Waiting { arrivals, release })
    }

    /// Waits for the next request.
    pub(crate) async fn arrived(&mut self) {
        self.arrivals.recv().await.unwrap();
    }

    /// Releases one request.
    pub(crate) fn release(&self) {
        self.release.notify_one();
    }
}

pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

pub(crate) fn response(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}
