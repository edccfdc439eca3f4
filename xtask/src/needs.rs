//! Programs that tests start: real servers, from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::steps::root;

mod airflow;
pub(crate) mod kubernetes;
pub(crate) mod node;

/// A program that tests start, the file that shows that it is there, and the package it comes from.
const NEEDS: [(&str, &[&str], &str); 20] = [
    // The server itself; installing the package `redis-server` would also start one.
    (
        "redis-server",
        &["/usr/bin/redis-check-rdb", "/usr/bin/redis-server"],
        "redis-tools",
    ),
    ("ZooKeeper", &["/usr/share/java/zookeeper.jar"], "zookeeper"),
    ("java", &["/usr/bin/java"], "default-jre-headless"),
    // What the page about discovery is read with.
    ("dig", &["/usr/bin/dig"], "bind9-dnsutils"),
    // The client of DNS over HTTPS and over QUIC.
    ("kdig", &["/usr/bin/kdig"], "knot-dnsutils"),
    ("curl", &["/usr/bin/curl"], "curl"),
    ("openssl", &["/usr/bin/openssl"], "openssl"),
    // What runs containers, and a program for their image.
    ("podman", &["/usr/bin/podman"], "podman"),
    ("runc", &["/usr/sbin/runc", "/usr/bin/runc"], "runc"),
    ("netavark", &["/usr/lib/podman/netavark"], "netavark"),
    ("iptables", &["/usr/sbin/iptables", "/sbin/iptables"], "iptables"),
    ("busybox", &["/bin/busybox", "/usr/bin/busybox"], "busybox-static"),
    // The name server that follows the zone.
    ("NSD", &["/usr/sbin/nsd"], "nsd"),
    // The datastore of a real Kubernetes.
    ("etcd", &["/usr/bin/etcd"], "etcd-server"),
    // Its client, which also backs it up.
    ("etcdctl", &["/usr/bin/etcdctl"], "etcd-client"),
    // A SQL server as datastore, and what backs it up.
    ("MariaDB", &["/usr/sbin/mariadbd"], "mariadb-server"),
    ("mariadb", &["/usr/bin/mariadb"], "mariadb-client"),
    ("kubectl", &["/usr/bin/kubectl"], "kubernetes-client"),
    // The browser that opens the dashboard.
    ("Chromium", &["/usr/bin/chromium"], "chromium"),
    // Unpacks the source package of Kubernetes.
    ("dpkg-source", &["/usr/bin/dpkg-source"], "dpkg-dev"),
];

/// The script that packages run before they start a service; exit code 101 forbids it.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The registry that tests pull components from. Installing its package would also start one, so it
/// is only unpacked.
const REGISTRY: &str = "docker-registry";

/// Installs missing programs where possible, else prints their packages.
pub(crate) fn install() -> anyhow::Result<()> {
    install_servers()?;
    unpack_registry()?;
    airflow::install()?;
    node::install()
}

/// The environment that builds the manual, made if it is missing.
pub(crate) fn manual() -> anyhow::Result<PathBuf> {
    airflow::manual()
}

fn unpack_registry() -> anyhow::Result<()> {
    let tools = root().join("target/tools");
    let program = Path::new("usr/bin").join(REGISTRY);
    if Path::new("/").join(&program).exists() || tools.join(&program).exists() {
        return Ok(());
    }
    eprintln!("==> {REGISTRY} for the tests");
    fs::create_dir_all(&tools).with_context(|| format!("creating {}", tools.display()))?;
    if download(&tools).is_err() {
        ensure!(
            is_root(),
            "tests start {REGISTRY}, and `apt-get download {REGISTRY}` does not get it: try sudo apt-get update"
        );
        apt(&["update", "-qq"])?;
        download(&tools)?;
    }
    let package = downloaded(&tools)?.context("apt-get downloaded no package")?;
    let status = Command::new("dpkg-deb")
        .arg("-x")
        .args([&package, &tools])
        .status()
        .context("cannot run dpkg-deb")?;
    ensure!(status.success(), "dpkg-deb -x failed ({status})");
    fs::remove_file(&package).with_context(|| format!("removing {}", package.display()))?;
    ensure!(
        tools.join(&program).exists(),
        "the package {REGISTRY} has no {}",
        program.display()
    );
    Ok(())
}

/// Needs no rights beyond the user's own.
fn download(tools: &Path) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(["download", "-qq", REGISTRY])
        .current_dir(tools)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run apt-get")?;
    ensure!(status.success(), "apt-get download {REGISTRY} failed ({status})");
    Ok(())
}

fn downloaded(tools: &Path) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(tools)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "deb") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn install_servers() -> anyhow::Result<()> {
    let missing: Vec<&(&str, &[&str], &str)> = NEEDS
        .iter()
        .filter(|(_, files, _)| !files.iter().any(|file| Path::new(file).exists()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
    let packages: Vec<&str> = missing.iter().map(|(.., package)| *package).collect();
    eprintln!("==> {} for the tests", names.join(", "));
    if !is_root() {
        bail!(
            "tests start {}: sudo apt-get install -y --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        );
    }
    apt(&["update", "-qq"])?;
    // Tests start what they need; a machine that has a policy of its own keeps it.
    let unasked = Unasked::forbidden()?;
    apt(&[
        &["install", "-y", "-qq", "--no-install-recommends"],
        packages.as_slice(),
    ]
    .concat())?;
    drop(unasked);
    Ok(())
}

/// While it lives, packages that are installed start no services.
struct Unasked(bool);

impl Unasked {
    fn forbidden() -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if Path::new(POLICY).exists() {
            return Ok(Self(false));
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("writing {POLICY}"))?;
        let policy = Self(true);
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {POLICY} executable"))?;
        Ok(policy)
    }
}

impl Drop for Unasked {
    fn drop(&mut self) {
        if self.0
            && let Err(error) = fs::remove_file(POLICY)
        {
            eprintln!("{POLICY} could not be removed again: {error}");
        }
    }
}

/// Calls `apt-get`, quietly.
pub(crate) fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .context("cannot run apt-get")?;
    ensure!(
        status.success(),
        "apt-get {} failed ({status})",
        arguments.join(" ")
    );
    Ok(())
}

pub(crate) fn is_root() -> bool {
    // Without a library: the owner of our own process directory is who we are.
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
