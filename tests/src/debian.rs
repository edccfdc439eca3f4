//! A clean Debian root for tests of packages, made by `debootstrap` and kept next to the build.
//!
//! Its release and its mirror are those of this machine. Programs in it have a `/proc` of their
//! mount namespace and use this machine's network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::set_proxies;

/// Paths below the root that every installation changes, though no package contains them.
const VARIABLE_PATHS: &[&str] = &["proc", "dev", "var/lib/dpkg", "var/cache", "var/log", "tmp"];

/// Installs the release `$2` of the mirror `$3` into the folder `$1`, under a path that does not
/// depend on the checkout: debootstrap fails below a path with a space.
const DEBOOTSTRAP: &str = r#"
umask 022
chmod 755 "$1"
mount --bind "$1" /mnt
exec debootstrap --variant=minbase --include=adduser,systemd "$2" /mnt "$3"
"#;

/// A copy of the clean root; removed with its handle.
pub struct DebianRoot {
    dir: tempfile::TempDir,
}

impl DebianRoot {
    /// Creates a fresh root for `test`. Returns `None` if that is impossible: the test is skipped.
    /// In CI (variable `CI`) it is a failure instead.
    pub fn for_test(test: &str) -> Option<Self> {
        or_skip(test, Self::create())
    }

    pub(crate) fn create() -> Result<Self, String> {
        let clean = clean_root()?;
        let target = clean.parent().ok_or("the root has a folder")?;
        let dir = tempfile::Builder::new()
            .prefix("root-")
            .tempdir_in(target)
            .map_err(|error| format!("{}: {error}", target.display()))?;
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--no-target-directory"])
            .args([clean.as_path(), dir.path()]);
        checked_output(&mut copy)?;
        let root = Self { dir };
        checked_output(&mut root.command(None, &["true"]))?;
        Ok(root)
    }

    /// A path in the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// The text of a file in the root.
    pub fn read(&self, path: &str) -> String {
        let file = self.path(path);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// A program in the root, as this user or as root. The child process becomes the program by
    /// `exec`.
    pub fn command(&self, user: Option<&str>, program: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        with_root_environment(&mut command)
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(
                "mount -t proc proc \"$1/proc\" && mount --bind /dev/null \"$1/dev/null\" && user=$2 && cd \"$1\" && \
                 root=$1 && shift 2 && exec chroot ${user:+--userspec=$user:$user} \"$root\" \"$@\"",
            )
            .arg("sh")
            .arg(self.dir.path())
            .arg(user.unwrap_or_default())
            .args(program);
        command
    }

    /// Runs a program in the root, as root, and returns its output.
    pub fn run(&self, program: &[&str]) -> String {
        checked_output(&mut self.command(None, program))
            .unwrap_or_else(|error| panic!("{program:?}: {error}"))
    }

    /// Installs a package, or upgrades to it.
    pub fn install(&self, package: &Path) {
        self.install_by(package, |program| self.run(program));
    }

    /// Installs a package with `run`, which runs a program in the root.
    pub(crate) fn install_by(&self, package: &Path, run: impl FnOnce(&[&str]) -> String) {
        // Not in /tmp: a booted root mounts another file system there.
        const PACKAGE_COPY: &str = "/var/cache/package.deb";
        fs::copy(package, self.path(PACKAGE_COPY)).expect("copied");
        run(&["dpkg", "--install", PACKAGE_COPY]);
        fs::remove_file(self.path(PACKAGE_COPY)).expect("removed");
    }

    /// All paths, without records of the package system.
    pub fn paths(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        self.collect_paths(self.dir.path(), &mut found);
        found
    }

    fn collect_paths(&self, dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let name = path.strip_prefix(self.dir.path()).expect("below the root");
            if VARIABLE_PATHS.iter().any(|folder| name == Path::new(folder)) {
                continue;
            }
            found.insert(format!("/{}", name.display()));
            if entry.file_type().expect("a type").is_dir() {
                self.collect_paths(&path, found);
            }
        }
    }
}

/// Returns `None` after printing why the test is skipped. In CI (variable `CI`) that is a failure.
pub(crate) fn or_skip<T>(test: &str, result: Result<T, String>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "{test}: {why}");
            println!("skipped: {test}: {why}");
            None
        }
    }
}

/// Replaces this machine's environment variables by those of programs in the root.
pub(crate) fn with_root_environment(command: &mut Command) -> &mut Command {
    command
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
}

/// Returns the root that is copied. It is created once, in a folder that is renamed when it is
/// complete.
fn clean_root() -> Result<PathBuf, String> {
    let (codename, mirror) = release_and_mirror()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debian");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Other tests may create it concurrently.
    let lock = fs::File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let root = folder.join(format!("{codename}-systemd"));
    if root.exists() {
        return Ok(root);
    }
    if nix::unistd::geteuid().as_raw() != 0 {
        return Err("a clean Debian root requires root, chroot and mount".to_owned());
    }
    let unfinished = tempfile::Builder::new()
        .prefix("making-")
        .tempdir_in(&folder)
        .map_err(|error| error.to_string())?;
    let mut debootstrap = Command::new("unshare");
    debootstrap
        .args(["--mount", "--propagation", "private", "sh", "-euc", DEBOOTSTRAP])
        .arg("sh")
        .arg(unfinished.path())
        .args([&codename, &mirror]);
    checked_output(set_proxies(&mut debootstrap))
        .map_err(|error| format!("debootstrap {codename}: {error}"))?;
    fs::rename(unfinished.keep(), &root).map_err(|error| error.to_string())?;
    Ok(root)
}

/// The release of this machine and the first mirror of its package lists that has it.
fn release_and_mirror() -> Result<(String, String), String> {
    let release =
        fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename
        .ok_or("/etc/os-release has no VERSION_CODENAME: this is not Debian")?
        .to_owned();
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(CODENAME) $(COMPONENT) $(SITE)",
        "Created-By: Packages",
    ]);
    let targets = checked_output(&mut targets)?;
    let wanted = format!("{codename} main ");
    let mirror = targets.lines().find_map(|line| line.strip_prefix(&wanted));
    let mirror = mirror.ok_or_else(|| format!("no package list of {codename}: apt-get update"))?;
    Ok((codename, mirror.to_owned()))
}

/// Runs a program and returns what it printed; the error has the end of its output.
pub(crate) fn checked_output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output: Output = command
        .output()
        .map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let all = text + &String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = all.lines().collect();
    let end = lines[lines.len().saturating_sub(8)..].join("\n");
    Err(format!("{name} failed ({}): {end}", output.status))
}
