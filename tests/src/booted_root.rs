//! A Debian root that systemd has booted, for tests of units as administrators use them.
//!
//! systemd is process 1 in new namespaces of processes, mounts, control groups, host name and
//! network. The network has only loopback, so that units cannot collide with ports of this machine.
//! `/proc/sys` and `/sys` are read-only. All processes end when the handle is dropped or the test's
//! process ends.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use transom_testkit::eventually;

use crate::debian::{DebianRoot, checked_output, or_skip, with_root_environment};

/// Runs systemd in the root `$1`, in a new control group `$2`, with the environment that systemd
/// expects from a container runtime: <https://systemd.io/CONTAINER_INTERFACE>.
const BOOT_SCRIPT: &str = r#"
umask 022
mount --bind "$1" "$1"
cd "$1"
mount -t cgroup2 cgroup2 mnt
mkdir "mnt/$2"
echo 0 > "mnt/$2/cgroup.procs"
umount mnt
mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t tmpfs -o mode=755,nosuid dev dev
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755,nosuid,nodev run run
mount -t tmpfs -o nosuid,nodev tmp tmp
exec unshare --cgroup sh -euc '
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    exec env --ignore-environment container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --unit=basic.target --log-target=journal --show-status=no'
"#;

/// Removes the control group `$2` and the groups that systemd created in it.
const CLEANUP_SCRIPT: &str = r#"
mount -t cgroup2 cgroup2 "$1/mnt"
cd "$1/mnt"
[ ! -d "$2" ] || find "$2" -depth -type d -exec rmdir {} +
"#;

/// Timeout of a program in the root, in seconds.
const TIMEOUT: &str = "60";

/// A booted root; its processes end when it is dropped.
pub struct BootedRoot {
    root: DebianRoot,
    /// `unshare`, the parent process of systemd.
    parent: Child,
    /// The process id of systemd outside of its namespaces.
    init: Option<Pid>,
    group: String,
}

impl BootedRoot {
    /// Boots a copy of the clean root for `test`. Returns `None` if this machine cannot boot
    /// Debian's systemd: the test is skipped, and the output shows the reason. In CI (variable
    /// `CI`), a root that cannot be created is a failure.
    pub async fn for_test(test: &str) -> Option<Self> {
        let root = or_skip(test, DebianRoot::create())?;
        match Self::boot(root).await {
            Ok(booted) => Some(booted),
            Err(why) => {
                println!("skipped: {test}: {why}");
                None
            }
        }
    }

    async fn boot(root: DebianRoot) -> Result<Self, String> {
        let log = fs::File::create(root.path("/var/log/boot")).map_err(|error| error.to_string())?;
        let log_for_stderr = log.try_clone().map_err(|error| error.to_string())?;
        let group = format!("transom-test-{}", std::process::id());
        // When this test's thread ends, `setpriv` kills `unshare`, and `unshare` kills systemd.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--fork", "--kill-child=KILL"])
            .args(["--mount", "--propagation", "private"])
            .args([
                "--pid",
                "--net",
                "--ipc",
                "--uts",
                "sh",
                "-euc",
                BOOT_SCRIPT,
                "sh",
            ])
            .arg(root.path("/"))
            .arg(&group)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_for_stderr);
        let parent = command
            .spawn()
            .map_err(|error| format!("cannot run setpriv: {error}"))?;
        let mut booted = Self {
            root,
            parent,
            init: None,
            group,
        };
        eventually("systemd, or the reason that it does not boot", async || {
            booted.check_boot()
        })
        .await?;
        Ok(booted)
    }

    /// The progress of the boot. The outer error: it has not finished yet. The inner error: why
    /// systemd cannot boot.
    fn check_boot(&mut self) -> Result<Result<(), String>, String> {
        if let Some(status) = self.parent.try_wait().map_err(|error| error.to_string())? {
            let log = self.root.read("/var/log/boot");
            return Ok(Err(format!("systemd does not boot ({status}): {log}")));
        }
        let parent = self.parent.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .map_err(|error| error.to_string())?;
        let init: i32 = children
            .trim()
            .parse()
            .map_err(|_| format!("the children of unshare are `{children}`"))?;
        self.init = Some(Pid::from_raw(init));
        let name = fs::read_to_string(format!("/proc/{init}/comm")).map_err(|error| error.to_string())?;
        if name != "systemd\n" {
            return Err(format!("process 1 is {name}"));
        }
        let mut state = self.command(&["systemctl", "is-system-running"]);
        let output = state.output().map_err(|error| error.to_string())?;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "running" => Ok(Ok(())),
            // A unit of Debian that fails here would fail in every test.
            "degraded" => Ok(Err(format!(
                "systemd has failed units: {}",
                self.run(&["systemctl", "--failed", "--no-legend", "--plain"])
            ))),
            _ => Err(format!("systemd is not running: {output:?}")),
        }
    }

    /// A program in the booted root, as root.
    pub fn command(&self, program: &[&str]) -> Command {
        self.nsenter(
            &["--mount", "--pid", "--cgroup", "--net", "--ipc", "--uts"],
            program,
        )
    }

    /// A program of this machine, such as a client of a port, on the network of the booted root.
    pub fn client(&self, program: &[&str]) -> Command {
        self.nsenter(&["--net"], program)
    }

    fn nsenter(&self, namespaces: &[&str], program: &[&str]) -> Command {
        let init = self.init.expect("systemd is process 1");
        let mut command = Command::new("timeout");
        with_root_environment(&mut command)
            .args([TIMEOUT, "nsenter", "--target", &init.to_string()])
            .args(namespaces)
            .args(program)
            .stdin(Stdio::null());
        command
    }

    /// Runs a program in the booted root, as root, and returns its output.
    pub fn run(&self, program: &[&str]) -> String {
        checked_output(&mut self.command(program)).unwrap_or_else(|error| panic!("{program:?}: {error}"))
    }

    /// Installs a package, or upgrades to it.
    pub fn install(&self, package: &Path) {
        self.root.install_by(package, |program| self.run(program));
    }

    /// The files of the root.
    pub fn root(&self) -> &DebianRoot {
        &self.root
    }
}

impl Drop for BootedRoot {
    fn drop(&mut self) {
        if std::thread::panicking() && self.init.is_some() {
            let journal = self
                .command(&["journalctl", "--no-pager", "--lines", "100"])
                .output();
            let journal = journal.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
            eprintln!("---- the journal:\n{}\n----", journal.unwrap_or_default());
        }
        // The kernel ends all other processes of the namespace before it reports the end of the first.
        if let Some(init) = self.init {
            let _ = kill(init, Signal::SIGKILL);
        } else {
            let _ = self.parent.kill();
        }
        let _ = self.parent.wait();
        let mut cleanup = Command::new("unshare");
        cleanup
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-euc",
                CLEANUP_SCRIPT,
                "sh",
            ])
            .arg(self.root.path("/"))
            .arg(&self.group);
        if let Err(error) = checked_output(&mut cleanup) {
            eprintln!("cannot remove the control group {}: {error}", self.group);
        }
    }
}
