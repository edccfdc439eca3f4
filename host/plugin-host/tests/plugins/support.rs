//! A plugin directory for a test, and servers on loopback.

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

/// No test waits longer for anything.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// `NAME.wasm` among the built components; hostile ones are under `tests/`.
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

/// Compiles as the daemon does, with a program of this crate.
pub(crate) fn compile_process() -> CompileProcess {
    CompileProcess {
        program: env!("CARGO_BIN_EXE_compile-component").into(),
        arguments: Vec::new(),
        memory: 2 << 30,
    }
}

/// A plugin host on a directory of its own.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) plugins: Plugins,
    pub(crate) registry: Registry,
    token: CancellationToken,
}

/// The contents of the directory before the host starts: component, name, manifest (none: the
/// component's own).
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

    async fn on(dir: TempDir, change: impl FnOnce(&mut Config)) -> Site {
        capture_logs();
        let mut registry = Registry::default();
        let token = CancellationToken::new();
        let mut config = Config::new(dir.path());
        config.bindings.filters = vec!["odd-events".into()];
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

    /// Stops the host, and starts another on the same directory after `meanwhile`.
    pub(crate) async fn again(self, meanwhile: impl FnOnce(&Path), change: impl FnOnce(&mut Config)) -> Site {
        self.token.cancel();
        tokio::time::timeout(TIMEOUT, self.plugins.stopped())
            .await
            .expect("the host stops");
        meanwhile(self.dir.path());
        Site::on(self.dir, change).await
    }

    pub(crate) fn status(&self, name: &str) -> Status {
        let list = self.plugins.list();
        list.into_iter().find(|it| it.name == name).unwrap()
    }

    /// The value of a metric, with its labels as they are written.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|it| it.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.trim().parse().unwrap()
    }

    /// A metric's values in all series whose labels have these, as they are written.
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

    /// The sum of these, of a metric that counts.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        self.values(name, labels).iter().map(|it| *it as u64).sum()
    }

    /// Calls of a plugin, all of its versions, that ended so.
    pub(crate) fn ended(&self, plugin: &str, outcome: &str) -> u64 {
        let labels = [format!("plugin=\"{plugin}\""), format!("outcome=\"{outcome}\"")];
        self.sum(
            "transom_plugins_calls_total",
            &labels.each_ref().map(String::as_str),
        )
    }

    /// Replaces files and waits until the host has judged them. Returns the last change.
    pub(crate) async fn replace(&self, source: &str, name: &str, manifest: &str) -> Change {
        self.change(|| install(self.dir.path(), source, name, Some(manifest)))
            .await
    }

    /// The last thing that `act` on the directory changed. The directory is watched too, and may be
    /// read between two files.
    pub(crate) async fn change(&self, act: impl FnOnce()) -> Change {
        let mut changes = self.plugins.changes();
        act();
        self.plugins.rescan().await;
        let mut last = None;
        while let Ok(change) = changes.try_recv() {
            last = Some(change);
        }
        last.expect("a change")
    }

    pub(crate) async fn look(
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
    put(dir, &format!("{name}.toml"), manifest.as_bytes());
    put(dir, &format!("{name}.wasm"), &std::fs::read(source).unwrap());
}

pub(crate) fn put(dir: &Path, name: &str, content: &[u8]) {
    let temporary = dir.join(format!(".{name}.new"));
    std::fs::write(&temporary, content).unwrap();
    std::fs::rename(temporary, dir.join(name)).unwrap();
}

/// The same component with more sections at its end.
pub(crate) fn with_sections(component: &[u8], sections: &[Vec<u8>]) -> Vec<u8> {
    [component, &sections.concat()].concat()
}

/// A section of a component or of a module.
pub(crate) fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &number(content.len()), content].concat()
}

/// A number as components have it.
pub(crate) fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The same component with another digest: it has a section more that says nothing to the engine.
pub(crate) fn stamped(component: &[u8], stamp: u32) -> Vec<u8> {
    let content = [&b"\x05stamp"[..], &stamp.to_le_bytes()].concat();
    with_sections(component, &[section(0, &content)])
}

/// A component of one core module that takes minutes to compile: so many functions, all alike.
pub(crate) fn slow_to_compile(functions: usize) -> Vec<u8> {
    // local.get 0, local.get 0, i32.mul, local.get 0, i32.add, local.set 0
    let work = [0x20, 0, 0x20, 0, 0x6c, 0x20, 0, 0x6a, 0x21, 0].repeat(50);
    let body = [&[0][..], &work, &[0x20, 0, 0x0b]].concat();
    let code = [number(body.len()), body].concat();
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]),
        section(3, &[number(functions), vec![0; functions]].concat()),
        section(10, &[number(functions), code.repeat(functions)].concat()),
    ]
    .concat();
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module)].concat()
}

/// Waits for something that needs no more than a look.
pub(crate) async fn until(what: &str, is: impl Fn() -> bool) {
    let done = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, done).await.expect(what);
}

/// How many sections of this kind a component has itself.
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

/// What the host logs from warnings on, of all tests of this process; what guests log; and the
/// spans of calls.
fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A span shows as the line that is written when it is closed.
        let wanted = filter_fn(|it| {
            *it.level() <= tracing::Level::WARN
                || it.target() == "transom_plugin_host::guest"
                || it.is_span() && it.name() == "plugin_call"
        });
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(|| Capture);
        tracing_subscriber::registry()
            .with(lines.with_filter(wanted))
            .init();
    });
}

/// Whether a line of the log has all of these; `parts` have to be this test's own.
pub(crate) fn logged(parts: &[&str]) -> bool {
    times_logged(parts) > 0
}

/// How many lines of the log have all of these.
pub(crate) fn times_logged(parts: &[&str]) -> usize {
    let logs = LOGS.lock().unwrap();
    String::from_utf8_lossy(&logs)
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .count()
}

/// A server; dropping it closes it and all its connections.
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

    /// Answers each request with what `answer` makes of its first line.
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
                // The peer may have left.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await
    }

    /// A port that nobody listens on.
    pub(crate) async fn closed() -> Endpoint {
        let server = Server::new(|_| async {}).await;
        let endpoint = server.endpoint.clone();
        drop(server);
        // Until the listener's task is really gone.
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

/// The requests that wait at a server.
pub(crate) struct Waiting {
    arrivals: mpsc::UnboundedReceiver<()>,
    release: Arc<Notify>,
}

impl Waiting {
    /// A server that answers a request, with 200 and nothing, when it is released.
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

    /// Returns when one more has come.
    pub(crate) async fn arrived(&mut self) {
        self.arrivals.recv().await.unwrap();
    }

    /// Has one answered.
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
