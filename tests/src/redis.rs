//! A real `redis-server` of a test's own. The store's tests have one with more to it (passwords, TLS, admin connections), which
//! is theirs alone: nothing here knows the inside of a crate.

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
    /// Starts one that keeps everything in memory, in `dir`.
    pub fn start(dir: &Path) -> Redis {
        // Somebody else may take the port between looking and starting: then another one is tried.
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

/// Redis's programs are one program that goes by its name; Debian keeps the server apart from its tools, which are enough.
pub fn server() -> Command {
    let program = program()
        .expect("neither `redis-server` nor `redis-check-rdb` is installed: `cargo xtask test` sees to it");
    let mut command = Command::new(program);
    command.arg0("redis-server");
    command
}

/// The server's program, if this machine has one.
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
