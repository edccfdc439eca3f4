//! A real Redis server on a free loopback port, with its data in its own directory; it ends with
//! the test.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

pub(super) const PASSWORD: &str = "correct horse @/:% battery";
/// The timeout of the server's start.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server, running or stopped.
pub(super) struct Server {
    dir: tempfile::TempDir,
    port: u16,
    options: Vec<String>,
    tls: bool,
    child: Option<Child>,
}

/// The server's binary. Debian's `redis-tools` has it too, under another name.
fn binary() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    ["redis-server", "redis-check-rdb"]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            panic!(
                "these tests run a real Redis, and there is neither `redis-server` nor `redis-check-rdb` on PATH: \
                 install one (Debian: apt-get install redis-server)"
            )
        })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

impl Server {
    /// A server that syncs every write to disk and requires the password; not started.
    pub(super) fn stopped() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server that loses its data when it is stopped; not started.
    pub(super) fn forgetful() -> Self {
        Self::with(&["--appendonly", "no"])
    }

    fn with(options: &[&str]) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            port: 0,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            tls: false,
            child: None,
        }
    }

    /// Running.
    pub(super) fn start() -> Self {
        let mut server = Self::stopped();
        server.resume();
        server
    }

    /// Running, with TLS only, by this certificate and key.
    pub(super) fn start_tls(certificate: &str, key: &str) -> Self {
        let mut server = Self::stopped();
        for (name, pem) in [("cert", certificate), ("key", key)] {
            let path = server.dir.path().join(name);
            std::fs::write(&path, pem).unwrap();
            let option = [format!("--tls-{name}-file"), path.display().to_string()];
            server.options.extend(option);
        }
        let open = ["--tls-auth-clients", "no"].map(str::to_owned);
        server.options.extend(open);
        server.tls = true;
        server.resume();
        server
    }

    /// A port for the server when it runs.
    pub(super) fn reserve(&mut self) {
        self.port = free_port();
    }

    /// Starts it with its earlier data on its earlier port.
    pub(super) fn resume(&mut self) {
        let chosen = self.port != 0;
        for _ in 0..5 {
            if !chosen {
                self.reserve();
            }
            match self.try_start() {
                Ok(()) => return,
                // Another process may have taken the port in the meantime.
                Err(said) if chosen || !said.contains("Address already in use") => panic!("no Redis: {said}"),
                Err(_) => {}
            }
        }
        panic!("no free port for a Redis");
    }

    fn try_start(&mut self) -> Result<(), String> {
        let port = self.port.to_string();
        let ports = if self.tls {
            ["--port", "0", "--tls-port", &port]
        } else {
            ["--tls-port", "0", "--port", &port]
        };
        let mut child = Command::new(binary())
            .arg0("redis-server")
            .args(ports)
            .args(["--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD])
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (tell, told) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        // Ends with the server.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        self.child = Some(child);
        let mut said = String::new();
        while let Ok(line) = told.recv_timeout(PATIENCE) {
            if line.contains("Ready to accept connections") {
                return Ok(());
            }
            said = format!("{said}\n{line}");
        }
        self.stop();
        Err(said)
    }

    /// Kills it immediately.
    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Makes it hang: it neither answers nor refuses requests.
    pub(super) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it continue.
    pub(super) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success(), "kill {signal} {pid}: {sent}");
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A connection for the test's own use.
    pub(super) async fn admin(&self, database: i64) -> MultiplexedConnection {
        let addr = ConnectionAddr::Tcp("127.0.0.1".to_owned(), self.port);
        let settings = RedisConnectionInfo::default()
            .set_password(PASSWORD)
            .set_db(database);
        let info = addr.into_connection_info().unwrap().set_redis_settings(settings);
        let client = Client::open(info).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// Sends a command to the server.
    pub(super) async fn tell(&self, words: &[&str]) {
        let mut admin = self.admin(0).await;
        let mut command = ::redis::Cmd::new();
        let _: ::redis::Value = command.arg(words).query_async(&mut admin).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
