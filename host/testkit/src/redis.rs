//! A real Redis server on a free loopback port, alone or with replicas and [`Sentinels`].

mod sentinels;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub use sentinels::Sentinels;

use crate::{WAIT_TIMEOUT, free_port};

/// The password of servers [`with_password`](RedisServer::with_password), with characters that a
/// URL has to escape.
pub const PASSWORD: &str = "correct horse @/:% battery";

/// The file that the server loads when it starts.
const DUMP: &str = "dump.rdb";

/// The server's program, if it is installed. Debian's `redis-tools` contains it under another name.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["redis-server", "redis-check-rdb"]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)))
        .chain([PathBuf::from("/usr/bin/redis-check-rdb")])
        .find(|candidate| candidate.is_file())
}

/// A command that starts the server; the caller adds its options.
pub fn server() -> Command {
    let program = program().expect(
        "this test needs a Redis, and neither `redis-server` nor `redis-check-rdb` is on PATH: \
         install the Debian package redis-server",
    );
    let mut command = Command::new(program);
    // The programs of Redis are one executable, which selects its function by its name.
    command.arg0("redis-server");
    command
}

/// A server, running or stopped.
#[derive(Debug)]
pub struct RedisServer {
    dir: TempDir,
    port: u16,
    options: Vec<String>,
    password: Option<&'static str>,
    tls: bool,
    /// Whether it has a configuration file, which the server may change.
    is_configured: bool,
    is_sentinel: bool,
    child: Option<Child>,
}

impl RedisServer {
    /// A server that writes every change to disk before it replies; not started.
    pub fn durable() -> Self {
        Self::with_options(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server that loses its data when it stops; not started.
    pub fn in_memory() -> Self {
        Self::with_options(&["--appendonly", "no"])
    }

    fn with_options(options: &[&str]) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            port: 0,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            password: None,
            tls: false,
            is_configured: false,
            is_sentinel: false,
            child: None,
        }
    }

    /// A server that belongs to a Redis Cluster; not started.
    pub fn of_cluster() -> Self {
        Self::with_options(&["--cluster-enabled", "yes"])
    }

    /// The server has a configuration file, which it changes when its role changes.
    fn with_configuration(mut self, text: &str) -> Self {
        std::fs::write(self.configuration(), text).expect("a file");
        self.is_configured = true;
        self
    }

    fn configuration(&self) -> PathBuf {
        self.dir.path().join("redis.conf")
    }

    /// The server requires [`PASSWORD`].
    #[must_use]
    pub fn with_password(self) -> Self {
        self.protected(PASSWORD)
    }

    fn protected(mut self, password: &'static str) -> Self {
        let option = ["--requirepass", password].map(str::to_owned);
        self.options.extend(option);
        self.password = Some(password);
        self
    }

    /// The server accepts TLS only, with this certificate and key (PEM).
    #[must_use]
    pub fn with_tls(mut self, certificate: &str, key: &str) -> Self {
        for (name, pem) in [("cert", certificate), ("key", key)] {
            let path = self.dir.path().join(name);
            std::fs::write(&path, pem).expect("a file");
            let option = [format!("--tls-{name}-file"), path.display().to_string()];
            self.options.extend(option);
        }
        self.options
            .extend(["--tls-auth-clients", "no"].map(str::to_owned));
        self.tls = true;
        self
    }

    /// The server has the data of a dump, which [`dump`](Self::dump) wrote.
    #[must_use]
    pub fn with_dump(self, file: &Path) -> Self {
        std::fs::copy(file, self.dir.path().join(DUMP)).expect("the dump copied");
        self
    }

    /// Writes its data to a file.
    pub async fn dump(&self, file: &Path) {
        self.command(&["SAVE"]).await;
        std::fs::copy(self.dir.path().join(DUMP), file).expect("the dump copied");
    }

    /// Starts the server.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.start();
        self
    }

    /// Chooses the port of a server that is started later.
    pub fn reserve_port(&mut self) {
        self.port = free_port();
    }

    /// Starts the server, with its earlier port and data if it ran before.
    pub fn start(&mut self) {
        let chosen = self.port != 0;
        for _ in 0..5 {
            if !chosen {
                self.reserve_port();
            }
            match self.try_start() {
                Ok(()) => return,
                // Another process may have taken the port in the meantime.
                Err(output) if chosen || !output.contains("Address already in use") => {
                    panic!("redis-server does not start: {output}")
                }
                Err(_) => {}
            }
        }
        panic!("no free port for a redis-server");
    }

    fn try_start(&mut self) -> Result<(), String> {
        let port = self.port.to_string();
        let ports = if self.tls {
            ["--port", "0", "--tls-port", &port]
        } else {
            ["--tls-port", "0", "--port", &port]
        };
        let errors = self.dir.path().join("stderr");
        let mut command = server();
        if self.is_configured {
            command.arg(self.configuration());
        }
        if self.is_sentinel {
            command.arg("--sentinel");
        } else {
            command.args(["--save", ""]);
        }
        let mut child = command
            .args(ports)
            .args(["--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&errors).expect("a file"))
            .spawn()
            .expect("redis-server starts");
        let (sender, lines) = mpsc::sync_channel(256);
        let output = BufReader::new(child.stdout.take().expect("piped"));
        // Reads until the server ends, because a full pipe would block it; later lines are dropped.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.try_send(line);
            }
        });
        self.child = Some(child);
        let mut output = String::new();
        while let Ok(line) = lines.recv_timeout(WAIT_TIMEOUT) {
            if line.contains("Ready to accept connections") || line.contains("+monitor") {
                return Ok(());
            }
            output = format!("{output}\n{line}");
        }
        self.stop();
        Err(output + &std::fs::read_to_string(errors).unwrap_or_default())
    }

    /// Kills the server with SIGKILL.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Makes the server hang: connections are accepted, but no request is answered.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a frozen server continue.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a running server");
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the server is running");
    }

    /// The address of a server that was started or whose port is reserved.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A section of `INFO`; empty if the server does not answer.
    async fn info(&self, section: &str) -> String {
        self.ask(&["INFO", section]).await.unwrap_or_default()
    }

    /// An answer, if there is one soon.
    async fn ask<T: ::redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let answer = async {
            let client = self.client(0);
            let mut connection = client.get_multiplexed_async_connection().await?;
            ::redis::Cmd::new().arg(words).query_async(&mut connection).await
        };
        tokio::time::timeout(Duration::from_millis(500), answer)
            .await
            .ok()?
            .ok()
    }

    fn client(&self, database: i64) -> Client {
        let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), self.port);
        let mut settings = RedisConnectionInfo::default().set_db(database);
        if let Some(password) = self.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info().expect("an address");
        Client::open(info.set_redis_settings(settings)).expect("a client")
    }

    /// A connection for the test itself.
    pub async fn connect(&self, database: i64) -> MultiplexedConnection {
        let client = self.client(database);
        let connected = client.get_multiplexed_async_connection().await;
        connected.expect("a connection")
    }

    /// Sends a command to the server, and returns the texts of the reply.
    pub async fn texts(&self, words: &[&str]) -> Vec<String> {
        let mut connection = self.connect(0).await;
        let mut command = ::redis::Cmd::new();
        let reply: Result<Vec<String>, _> = command.arg(words).query_async(&mut connection).await;
        reply.expect("texts")
    }

    /// Sends a command to the server.
    pub async fn command(&self, words: &[&str]) {
        let mut connection = self.connect(0).await;
        let mut command = ::redis::Cmd::new();
        let reply: Result<::redis::Value, _> = command.arg(words).query_async(&mut connection).await;
        reply.expect("a reply");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
