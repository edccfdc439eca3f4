//! NSD with the same names, for comparison. One of its processes answers queries.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

pub(crate) struct Nsd {
    child: Child,
    addr: SocketAddr,
    _dir: TempDir,
}

impl Nsd {
    pub(crate) async fn start(zone: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(path("zone"), zone).unwrap();
        let config = format!(
            "server:\n server-count: 1\n ip-address: 127.0.0.1@{}\n username: \"\"\n chroot: \"\"\n zonesdir: \"{}\"\n pidfile: \"{}\"\n \
             xfrdfile: \"{}\"\n zonelistfile: \"{}\"\n logfile: \"{}\"\n database: \"\"\n round-robin: yes\n tcp-query-count: 0\n \
             minimal-responses: no\n rrl-ratelimit: 0\nremote-control:\n control-enable: no\nzone:\n name: \"mesos.\"\n zonefile: \"{}\"\n",
            free.port(),
            dir.path().display(),
            path("pid"),
            path("xfrd"),
            path("zones"),
            path("log"),
            path("zone"),
        );
        std::fs::write(path("nsd.conf"), config).unwrap();
        let child = Command::new("nsd")
            .args(["-d", "-c", &path("nsd.conf")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot start nsd; is the Debian package `nsd` installed?");
        let nsd = Self {
            child,
            addr: free,
            _dir: dir,
        };
        let answers = async || {
            let arguments = [
                "@127.0.0.1",
                "-p",
                &free.port().to_string(),
                "mesos.",
                "SOA",
                "+short",
                "+tries=1",
                "+time=1",
            ];
            let output = tokio::process::Command::new("dig").args(arguments).output().await;
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("ns1"))
        };
        for _ in 0..120 {
            if answers().await {
                return nsd;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        panic!("nsd does not answer");
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}
