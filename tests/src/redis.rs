//! A real `redis-server` for one test. The store's tests have their own helper with more functions
//! (passwords, TLS, admin connections), because nothing here depends on a crate's internals.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// A running server; killed when dropped.
pub struct Redis {
    child: Child,
    pub address: SocketAddr,
}

impl Redis {
    /// Starts a server that keeps everything in memory, in `dir`.
    pub fn start(dir: &Path) -> Redis {
        // Another process may take the port before the start: then another port is tried.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = free.local_addr().expect("an address");
            drop(free);
            let mut child = server()
                .args([
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--port",
                ])
                .arg(address.port().to_string())
                .current_dir(dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("a redis-server");
            let deadline = Instant::now() + PATIENCE;
            while Instant::now() < deadline && child.try_wait().expect("a child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Redis { child, address };
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("redis-server does not start");
    }
}

/// Redis's programs are one program that acts by its name; Debian packages the server separately
/// from its tools, which suffice.
pub fn server() -> Command {
    let program = program()
        .expect("neither `redis-server` nor `redis-check-rdb` is installed: `cargo xtask test` sees to it");
    let mut command = Command::new(program);
    command.arg0("redis-server");
    command
}

/// The server's program, if installed.
pub fn program() -> Option<PathBuf> {
    let mut folders = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .unwrap_or_default();
    folders.push("/usr/bin".into());
    ["redis-server", "redis-check-rdb"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|program| program.exists())
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
