//! A ZooKeeper of our own: the Debian package's server on a free port of the loopback interface, with its data in a
//! temporary directory. It is stopped by the test, or killed when the test drops it.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "shared by tests, each of which uses a part"
)]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

/// The server's classes, as Debian installs them.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// How long a server may take to answer after its start; a virtual machine starts slowly where processors are few.
const STARTS_WITHIN: Duration = Duration::from_mins(1);

/// A running server.
pub struct ZooKeeper {
    pub port: u16,
    dir: TempDir,
    child: Child,
}

impl ZooKeeper {
    /// Starts one and waits until it answers.
    pub async fn start() -> Self {
        assert!(
            Path::new(JAR).exists(),
            "this test needs a ZooKeeper server ({JAR}): install the Debian packages zookeeper and default-jre-headless"
        );
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = launch(&dir, port);
        let mut server = Self { port, dir, child };
        server.ready().await;
        server
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops the server; sessions live on in its data.
    pub async fn stop(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts it again on the same port and waits until it answers.
    pub async fn start_again(&mut self) {
        self.child = launch(&self.dir, self.port);
        self.ready().await;
    }

    /// Forgets everything while it is stopped: to its clients, their sessions have expired.
    pub fn forget(&self) {
        std::fs::remove_dir_all(self.dir.path().join("data")).unwrap();
    }

    /// A session as a master keeps one.
    pub async fn client(&self) -> Client {
        let connector = Client::connector().with_session_timeout(Duration::from_mins(1));
        connector.connect(&self.address()).await.unwrap()
    }

    async fn ready(&mut self) {
        let deadline = Instant::now() + STARTS_WITHIN;
        while !self.answers().await {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the ZooKeeper server ended with {status}: {}", self.log());
            }
            assert!(
                Instant::now() < deadline,
                "no answer from the ZooKeeper server: {}",
                self.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn answers(&self) -> bool {
        let ask = async {
            let mut stream = TcpStream::connect(self.address()).await.ok()?;
            stream.write_all(b"srvr").await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            answer.contains("Mode: standalone").then_some(())
        };
        matches!(timeout(Duration::from_secs(5), ask).await, Ok(Some(())))
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
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("java cannot be started: install the Debian package default-jre-headless")
}

/// Registers a master as masters do, as JSON; returns the registration's name.
pub async fn register(client: &Client, path: &str, port: u16) -> String {
    let info = serde_json::json!({
        "address": {"hostname": "localhost", "ip": "127.0.0.1", "port": port},
        "hostname": "localhost", "id": format!("m-{port}"), "ip": 16_777_343,
        "pid": format!("master@127.0.0.1:{port}"), "port": port, "version": "1.11.0",
    });
    let data = info.to_string();
    create(
        client,
        &format!("{path}/json.info_"),
        data.as_bytes(),
        Acls::anyone_all(),
    )
    .await
}

/// Creates an ephemeral node with a number at its end; returns its name.
pub async fn create(client: &Client, path: &str, data: &[u8], acls: Acls<'_>) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(acls);
    let (_, sequence) = client.create(path, data, &options).await.unwrap();
    let name = path.rsplit('/').next().unwrap();
    format!("{name}{sequence}")
}

/// Creates a node for others to register below.
pub async fn create_path(client: &Client, path: &str, acls: Acls<'_>) {
    client
        .create(path, b"", &CreateMode::Persistent.with_acls(acls))
        .await
        .unwrap();
}
