//! Real ZooKeeper servers on free loopback ports, as Debian packages them: one, or an [`Ensemble`]; and
//! registrations of masters.

mod ensemble;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::CreateMode;
pub use zookeeper_client::{Acls, Client};

pub use ensemble::{CLIENTS, Ensemble};

use crate::{WAIT_TIMEOUT, free_port};

/// The server's classes, as Debian installs them.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// And those that it needs for TLS, which its manifest omits.
const CLASSES: &str =
    "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    process: Process,
    /// The port for TLS, and the folder of its certificate.
    secure: Option<(u16, TempDir)>,
}

impl ZooKeeper {
    /// Starts a server and waits until it responds.
    pub async fn start() -> Self {
        let mut server = Process::new(free_port(), "");
        server.start();
        server.ready().await;
        Self {
            process: server,
            secure: None,
        }
    }

    /// Starts a server that serves TLS, too, with a certificate and its key as PEM.
    pub async fn start_with_tls(certificate: &str, key: &str) -> Self {
        let secure = free_port();
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("server.pem");
        std::fs::write(&store, format!("{key}{certificate}")).unwrap();
        let store = store.display();
        let settings = format!(
            "secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nssl.clientAuth=none\n\
             ssl.keyStore.location={store}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={store}\nssl.trustStore.type=PEM\n"
        );
        let mut server = Process::new(free_port(), &settings);
        server.start();
        server.ready().await;
        Self {
            process: server,
            secure: Some((secure, dir)),
        }
    }

    /// The port that serves TLS.
    pub fn secure_port(&self) -> u16 {
        self.secure.as_ref().expect("a server with TLS").0
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        self.process.address()
    }

    /// Stops the server; its data keeps the sessions.
    pub async fn stop(&mut self) {
        self.process.stop().await;
    }

    /// Starts it again on the same port and waits until it responds.
    pub async fn start_again(&mut self) {
        self.process.start();
        self.process.ready().await;
    }

    /// Deletes the data of a stopped server, so that no session exists when it starts again.
    pub fn delete_data(&self) {
        std::fs::remove_dir_all(self.process.dir.path().join("data")).unwrap();
    }

    /// A session with a master's timeout.
    pub async fn client(&self) -> Client {
        let connector = Client::connector().with_session_timeout(Duration::from_mins(1));
        connector.connect(&self.address()).await.unwrap()
    }
}

/// The process of a server, alone or in an ensemble.
#[derive(Debug)]
struct Process {
    port: u16,
    dir: TempDir,
    child: Option<Child>,
}

impl Process {
    /// `members`: the lines of the configuration that name an ensemble.
    fn new(port: u16, members: &str) -> Self {
        assert!(
            Path::new(JAR).exists(),
            "this test needs a ZooKeeper server ({JAR}): install the Debian packages zookeeper and \
             default-jre-headless"
        );
        let dir = tempfile::tempdir().unwrap();
        let settings = format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=5\nmaxSessionTimeout=60000\ndataDir={}\n\
             clientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             4lw.commands.whitelist=srvr\n{members}",
            dir.path().join("data").display()
        );
        std::fs::write(dir.path().join("zoo.cfg"), settings).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        Self {
            port,
            dir,
            child: None,
        }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn start(&mut self) {
        let dir = self.dir.path();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let child = Command::new("java")
            .args([
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                CLASSES,
            ])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(dir.join("zoo.cfg"))
            // In the locale C, Java cannot work in a folder whose path has other characters than ASCII.
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("java cannot be started: install the Debian package default-jre-headless");
        self.child = Some(child);
    }

    async fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
    }

    async fn ready(&mut self) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while self.mode().await.is_none() {
            let child = self.child.as_mut().expect("a server that runs");
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the ZooKeeper server ended with {status}: {}", self.log());
            }
            assert!(
                Instant::now() < deadline,
                "the ZooKeeper server does not respond: {}",
                self.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the server is, while it serves clients: `standalone`, `leader` or `follower`.
    async fn mode(&self) -> Option<String> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address()).await.ok()?;
            stream.write_all(b"srvr").await.ok()?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await.ok()?;
            let mode = reply.lines().find_map(|line| line.strip_prefix("Mode: "))?;
            Some(mode.to_owned())
        };
        timeout(Duration::from_secs(5), exchange).await.ok().flatten()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// Registers a master below `path`, in JSON as masters do; returns the registration's name.
pub async fn register(client: &Client, path: &str, port: u16) -> String {
    let info = serde_json::json!({
        "address": {"hostname": "localhost", "ip": "127.0.0.1", "port": port},
        "hostname": "localhost", "id": format!("m-{port}"), "ip": 16_777_343,
        "pid": format!("master@127.0.0.1:{port}"), "port": port, "version": "1.11.0",
    });
    let data = info.to_string();
    let node = format!("{path}/json.info_");
    create(client, &node, data.as_bytes(), Acls::anyone_all()).await
}

/// Creates an ephemeral node with a sequence number at its end; returns its name.
pub async fn create(client: &Client, path: &str, data: &[u8], acls: Acls<'_>) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(acls);
    let (_, sequence) = client.create(path, data, &options).await.unwrap();
    let name = path.rsplit('/').next().unwrap();
    format!("{name}{sequence}")
}

/// Creates the node below which masters register.
pub async fn create_path(client: &Client, path: &str, acls: Acls<'_>) {
    let options = CreateMode::Persistent.with_acls(acls);
    client.create(path, b"", &options).await.unwrap();
}

/// Creates a node that anyone may read and change, and those above it; or replaces its content.
pub async fn put(client: &Client, path: &str, data: &[u8]) {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(path, &options).await.unwrap();
    client.set_data(path, data, None).await.unwrap();
}
