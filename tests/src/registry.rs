//! A real `docker-registry` for one test. The tests of the plugin host have a separate helper with
//! more functions (passwords, TLS, outages), because this crate uses no internals of another one.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use transom_testkit::WAIT_TIMEOUT;

/// A running registry; killed when dropped.
pub struct Registry {
    child: Child,
    pub address: SocketAddr,
}

impl Registry {
    /// Starts a registry without TLS that stores everything in `dir`.
    pub fn start(dir: &Path) -> Registry {
        // Another process may take the port before the registry binds it; another port is tried
        // then.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = free.local_addr().expect("an address");
            drop(free);
            let config = dir.join("registry.yml");
            let text = format!(
                "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    \
                 rootdirectory: {}\nhttp:\n  addr: {address}\n",
                dir.join("storage").display()
            );
            fs::write(&config, text).expect("written");
            let mut child = Command::new(program())
                .arg("serve")
                .arg(&config)
                .current_dir(dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a docker-registry");
            let deadline = Instant::now() + WAIT_TIMEOUT;
            while Instant::now() < deadline && child.try_wait().expect("a child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Registry { child, address };
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("docker-registry does not start");
    }
}

fn program() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/usr/bin/docker-registry");
    [PathBuf::from("/usr/bin/docker-registry"), unpacked]
        .into_iter()
        .find(|program| program.exists())
        .expect("docker-registry is not installed: `cargo xtask test` installs it")
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
