//! A real ZooKeeper server on a free loopback port, as Debian packages it, and registrations of
//! masters.

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

use crate::{WAIT_TIMEOUT, free_port};

/// The server's classes, as Debian installs them.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    port: u16,
    dir: TempDir,
    child: Child,
}

impl ZooKeeper {
    /// Starts a server and waits until it responds.
    pub async fn start() -> Self {
        assert!(
            Path::new(JAR).exists(),
            "this test needs a ZooKeeper server ({JAR}): install the Debian packages zookeeper and \
             default-jre-headless"
        );
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let child = launch(&dir, port);
        let mut server = Self { port, dir, child };
        server.ready().await;
        server
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops the server; its data keeps the sessions.
    pub async fn stop(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts it again on the same port and waits until it responds.
    pub async fn start_again(&mut self) {
        self.child = launch(&self.dir, self.port);
        self.ready().await;
    }

    /// Deletes the data of a stopped server, so that no session exists when it starts again.
    pub fn delete_data(&self) {
        std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
    }

    /// A session with a master's timeout.
    pub async fn client(&self) -> Client {
        let connector = Client::connector().with_session_timeout(Duration::from_mins(1));
        connector.connect(&self.address()).await.unwrap()
    }

    async fn ready(&mut self) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !self.responds().await {
            if let Some(status) = self.child.try_wait().unwrap() {
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

    async fn responds(&self) -> bool {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address()).await.ok()?;
            stream.write_all(b"srvr").await.ok()?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await.ok()?;
            reply.contains("Mode: standalone").then_some(())
        };
        matches!(timeout(Duration::from_secs(5), exchange).await, Ok(Some(())))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

fn launch(dir: &TempDir, port: u16) -> Child {
    let dir = dir.path();
    let config = dir.join("zoo.cfg");
    let settings = format!(
        "tickTime=500\nmaxSessionTimeout=60000\ndataDir={}\n\
         clientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
         4lw.commands.whitelist=srvr\n",
        dir.join("data").display()
    );
    std::fs::write(&config, settings).unwrap();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    Command::new("java")
        .args([
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            JAR,
        ])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(config)
        // In the locale C, Java cannot work in a folder whose path has other characters than ASCII.
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("java cannot be started: install the Debian package default-jre-headless")
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
