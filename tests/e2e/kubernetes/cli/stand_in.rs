//! An HTTP server that records requests, and a cluster of two such servers: a master that lists
//! frameworks, and the API of one framework.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use transom_tests::process::binary;

/// A request: method, path and `Authorization`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    pub(crate) call: String,
    pub(crate) login: Option<String>,
}

/// A response: status, an additional header line, body.
#[derive(Clone, Debug)]
pub(crate) struct Response(pub(crate) u16, pub(crate) String, pub(crate) String);

impl Response {
    pub(crate) fn of(status: u16, body: &str) -> Self {
        Self(status, String::new(), body.to_owned())
    }
}

type Answer = Box<dyn Fn(&Request) -> Response + Send>;

struct Shared {
    stopped: AtomicBool,
    requests: Mutex<Vec<Request>>,
    answer: Mutex<Answer>,
}

/// A server on loopback; it stops when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> Response + Send + 'static) -> Self {
        Self::serve(None, Box::new(answer))
    }

    /// Starts a server with a self-signed certificate.
    pub(crate) fn start_with_tls(answer: impl Fn(&Request) -> Response + Send + 'static) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a configuration");
        Self::serve(Some(Arc::new(config)), Box::new(answer))
    }

    fn serve(tls: Option<Arc<ServerConfig>>, answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            stopped: AtomicBool::new(false),
            requests: Mutex::default(),
            answer: Mutex::new(answer),
        });
        let own = Arc::clone(&shared);
        let serving = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
                // A client that rejects the certificate closes the connection; that is no failure
                // of the server.
                let _ = match &tls {
                    None => own.exchange(stream),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).expect("a connection");
                        own.exchange(StreamOwned::new(connection, stream))
                    }
                };
            }
        });
        Self {
            address,
            shared,
            serving: Some(serving),
        }
    }

    /// Changes the responses to later requests.
    pub(crate) fn set_answer(&self, answer: impl Fn(&Request) -> Response + Send + 'static) {
        *self.shared.answer.lock().expect("a lock") = Box::new(answer);
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.requests.lock().expect("a lock"))
    }

    /// The methods and paths of the requests since the last call.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.call).collect()
    }
}

impl Shared {
    fn exchange(&self, stream: impl Read + Write) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut call, mut login) = (String::new(), None);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if call.is_empty() {
                line.trim_end_matches(" HTTP/1.1").clone_into(&mut call);
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                login = Some(value.trim().to_owned());
            }
        }
        let request = Request { call, login };
        let Response(status, header, body) = self.answer.lock().expect("a lock")(&request);
        self.requests.lock().expect("a lock").push(request);
        let header = if header.is_empty() {
            header
        } else {
            format!("{header}\r\n")
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\nConnection: close\r\n{header}\r\n"
        );
        stream.get_mut().write_all((head + &body).as_bytes())?;
        stream.get_mut().flush()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// `user:pass`.
pub(super) const LOGIN: &str = "Basic dXNlcjpwYXNz";
/// `ops:master`.
pub(super) const MASTER_LOGIN: &str = "Basic b3BzOm1hc3Rlcg==";
pub(super) const CONFIG: &str = "apiVersion: v1\nkind: Config\n";
pub(super) const STATUS: &str = r#"{"Server":"TASK_RUNNING","Agent":"TASK_STAGING","API":"ok","Kvstore":""}"#;
pub(super) const VERSION: &str = r#"{"Version":"v1.30.0","Framework":"0.1.0"}"#;

/// Responses of the framework's API, which requires these credentials.
pub(super) fn api(request: &Request) -> Response {
    if request.login.as_deref() != Some(LOGIN) {
        return Response::of(401, r#"{"message": "credentials are required"}"#);
    }
    let body = match request.call.as_str() {
        "GET /api/fw/v0/server/config" => CONFIG,
        "GET /api/fw/v0/server/version" => VERSION,
        "GET /api/fw/v0/status/fw" => STATUS,
        "GET /api/fw/v0/status/orch" => "ok",
        "GET /api/fw/v0/agent/scale/3" => "2",
        "GET /api/fw/v0/kvstore/scale/3" | "GET /api/fw/v0/server/scale/3" => "-1",
        "PUT /api/fw/v0/cluster/shutdown"
        | "PUT /api/fw/v0/cluster/start"
        | "PUT /api/fw/v0/cluster/restart" => "",
        _ => return Response::of(404, ""),
    };
    Response::of(200, body)
}

/// The output and the exit code of a command.
#[derive(Debug)]
pub(super) struct FinishedCommand {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl From<Output> for FinishedCommand {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// A master with frameworks, their API, and a home directory with the configuration.
pub(super) struct Cluster {
    pub(super) home: tempfile::TempDir,
    pub(super) master: Server,
    pub(super) api: Server,
}

impl Cluster {
    pub(super) fn start() -> Self {
        Self::with(Server::start(api), "http")
    }

    pub(super) fn start_with_tls() -> Self {
        Self::with(Server::start_with_tls(api), "https")
    }

    fn with(api: Server, scheme: &str) -> Self {
        let list = frameworks(&format!("{scheme}://{}", api.address)).to_string();
        let master = Server::start(move |request| master(request, &list));
        let cluster = Self {
            home: tempfile::tempdir().expect("a directory"),
            master,
            api,
        };
        cluster.configure("[fw.fw]\nprincipal = \"user\"\nsecret = \"pass\"\n");
        cluster
    }

    /// The configuration file.
    pub(super) fn file(&self) -> PathBuf {
        self.home.path().join(".mesos/config.toml")
    }

    /// Writes a configuration with the master's address and these additional lines.
    pub(super) fn configure(&self, lines: &str) {
        let text = format!(
            "plugins = []\n[master]\naddress = \"{}\"\nprincipal = \"ops\"\nsecret = \"master\"\n{lines}",
            self.master.address
        );
        self.write(&text);
    }

    pub(super) fn write(&self, text: &str) {
        let file = self.file();
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    /// `transom` with these arguments.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars() {
            if name.starts_with("TRANSOM_") || name.ends_with("_CLI_CONFIG") {
                command.env_remove(name);
            }
        }
        command.args(words).env("HOME", self.home.path());
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, words: &[&str]) -> FinishedCommand {
        self.command(words).output().expect("transom runs").into()
    }

    /// Runs a command of `fw` that must succeed; returns its standard output.
    pub(super) fn stdout_of(&self, words: &[&str]) -> String {
        let finished = self.run(&[&["fw"], words].concat());
        assert_eq!(finished.code, Some(0), "{words:?}: {finished:?}");
        finished.out
    }

    /// Runs a command of `fw` that must fail with this exit code; returns its messages.
    pub(super) fn stderr_of_failure(&self, code: i32, words: &[&str]) -> String {
        let finished = self.run(&[&["fw"], words].concat());
        assert_eq!(
            (finished.code, finished.out.as_str()),
            (Some(code), ""),
            "{words:?}: {finished:?}"
        );
        finished.err
    }
}

pub(super) fn frameworks(url: &str) -> Value {
    let one = |id: &str, name: &str, active: bool| json!({"id": id, "name": name, "active": active, "webui_url": url, "tasks": []});
    json!({"frameworks": [
        one("c-0001", "fw", true),
        one("c-0002", "M3S-old", false),
        one("c-0003", "marathon", true),
        one("c-0004", "prod", true),
        one("c-0005", "fw-two", true),
        one("c-0006", "fw-two", true),
        {"id": "c-0007", "name": "fw-bare", "active": true},
        {"name": "no id"},
    ]})
}

/// Responses of the master, which lists these frameworks to clients with its credentials.
pub(super) fn master(request: &Request, frameworks: &str) -> Response {
    match (request.call.as_str(), request.login.as_deref()) {
        ("GET /master/frameworks/", Some(MASTER_LOGIN)) => Response::of(200, frameworks),
        ("GET /master/frameworks/", _) => Response::of(401, ""),
        _ => Response::of(404, ""),
    }
}
