//! Programs that tests use: real servers and their clients, from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::steps::root;

mod airflow;
pub(crate) mod kubernetes;
pub(crate) mod node;

/// The name of a program, the files that show that it is installed, and its package.
const NEEDS: &[(&str, &[&str], &str)] = &[
    // Only the server; the package `redis-server` would also start one as a service.
    (
        "redis-server",
        &["/usr/bin/redis-check-rdb", "/usr/bin/redis-server"],
        "redis-tools",
    ),
    ("ZooKeeper", &["/usr/share/java/zookeeper.jar"], "zookeeper"),
    ("java", &["/usr/bin/java"], "default-jre-headless"),
    // The client in the page about discovery.
    ("dig", &["/usr/bin/dig"], "bind9-dnsutils"),
    // The client of DNS over HTTPS.
    ("kdig", &["/usr/bin/kdig"], "knot-dnsutils"),
    ("curl", &["/usr/bin/curl"], "curl"),
    ("openssl", &["/usr/bin/openssl"], "openssl"),
    // The programs that run containers, and the one in their image.
    ("podman", &["/usr/bin/podman"], "podman"),
    ("runc", &["/usr/sbin/runc", "/usr/bin/runc"], "runc"),
    ("netavark", &["/usr/lib/podman/netavark"], "netavark"),
    ("iptables", &["/usr/sbin/iptables", "/sbin/iptables"], "iptables"),
    ("busybox", &["/bin/busybox", "/usr/bin/busybox"], "busybox-static"),
    // A secondary name server.
    ("NSD", &["/usr/sbin/nsd"], "nsd"),
    // Name servers that forward the zone.
    ("BIND", &["/usr/sbin/named"], "bind9"),
    ("Unbound", &["/usr/sbin/unbound"], "unbound"),
    ("dnsmasq", &["/usr/sbin/dnsmasq"], "dnsmasq-base"),
    // Load balancers.
    ("HAProxy", &["/usr/sbin/haproxy"], "haproxy"),
    ("NGINX", &["/usr/sbin/nginx"], "nginx-light"),
    // The datastore of a real Kubernetes.
    ("etcd", &["/usr/bin/etcd"], "etcd-server"),
    // The client of etcd, which also makes backups.
    ("etcdctl", &["/usr/bin/etcdctl"], "etcd-client"),
    // The shell in the default image of a kvstore.
    (
        "bash-static",
        &["/bin/bash-static", "/usr/bin/bash-static"],
        "bash-static",
    ),
    // A SQL server as datastore, and the client, which makes backups.
    ("MariaDB", &["/usr/sbin/mariadbd"], "mariadb-server"),
    ("mariadb", &["/usr/bin/mariadb"], "mariadb-client"),
    ("kubectl", &["/usr/bin/kubectl"], "kubernetes-client"),
    // The shells whose completions are tested, beside bash.
    ("zsh", &["/usr/bin/zsh"], "zsh"),
    ("fish", &["/usr/bin/fish"], "fish"),
    // The browser that opens the dashboard.
    ("Chromium", &["/usr/bin/chromium"], "chromium"),
    // Unpacks Debian's source package of Kubernetes.
    ("dpkg-source", &["/usr/bin/dpkg-source"], "dpkg-dev"),
    // Creates the clean root in which the Debian package is installed.
    ("debootstrap", &["/usr/sbin/debootstrap"], "debootstrap"),
];

/// The script that packages run before they start a service; exit code 101 forbids it.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// The packages of the registry from which tests pull components, and of the server that scrapes
/// the daemon's metrics. Installing them would also start a service, so they are only unpacked.
/// Each contains a program of its name.
const UNPACKED_PACKAGES: &[&str] = &["docker-registry", "prometheus"];

/// Installs missing programs where possible, else prints their packages.
pub(crate) fn install() -> anyhow::Result<()> {
    install_servers()?;
    for &package in UNPACKED_PACKAGES {
        unpack(package)?;
    }
    airflow::install()?;
    node::install()
}

/// The environment that builds the manual, created if it is missing.
pub(crate) fn manual() -> anyhow::Result<PathBuf> {
    airflow::manual()
}

fn unpack(name: &str) -> anyhow::Result<()> {
    let tools = root().join("target/tools");
    let program = Path::new("usr/bin").join(name);
    if Path::new("/").join(&program).exists() || tools.join(&program).exists() {
        return Ok(());
    }
    eprintln!("==> {name} for the tests");
    fs::create_dir_all(&tools).with_context(|| format!("creating {}", tools.display()))?;
    if download(name, &tools).is_err() {
        ensure!(
            is_root(),
            "tests need {name}, but `apt-get download {name}` failed: try sudo apt-get update"
        );
        apt(&["update", "-qq"])?;
        download(name, &tools)?;
    }
    let package = downloaded_package(&tools)?.context("apt-get downloaded no package")?;
    let status = Command::new("dpkg-deb")
        .arg("-x")
        .args([&package, &tools])
        .status()
        .context("cannot run dpkg-deb")?;
    ensure!(status.success(), "dpkg-deb -x failed ({status})");
    fs::remove_file(&package).with_context(|| format!("removing {}", package.display()))?;
    ensure!(
        tools.join(&program).exists(),
        "the package {name} has no {}",
        program.display()
    );
    Ok(())
}

/// Downloads a package, which needs no root.
fn download(name: &str, tools: &Path) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(["download", "-qq", name])
        .current_dir(tools)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run apt-get")?;
    ensure!(status.success(), "apt-get download {name} failed ({status})");
    Ok(())
}

fn downloaded_package(tools: &Path) -> anyhow::Result<Option<PathBuf>> {
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
            "tests need {}: sudo apt-get install -y --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        );
    }
    apt(&["update", "-qq"])?;
    // Tests start the services that they need. If the machine has such a policy already, it is
    // kept.
    let services_forbidden = ServicesForbidden::begin()?;
    apt(&[
        &["install", "-y", "-qq", "--no-install-recommends"],
        packages.as_slice(),
    ]
    .concat())?;
    drop(services_forbidden);
    Ok(())
}

/// While this exists, installed packages start no services.
struct ServicesForbidden(bool);

impl ServicesForbidden {
    fn begin() -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if Path::new(SERVICE_POLICY).exists() {
            return Ok(Self(false));
        }
        fs::write(SERVICE_POLICY, "#!/bin/sh\nexit 101\n")
            .with_context(|| format!("writing {SERVICE_POLICY}"))?;
        let policy = Self(true);
        fs::set_permissions(SERVICE_POLICY, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {SERVICE_POLICY} executable"))?;
        Ok(policy)
    }
}

impl Drop for ServicesForbidden {
    fn drop(&mut self) {
        if self.0
            && let Err(error) = fs::remove_file(SERVICE_POLICY)
        {
            eprintln!("{SERVICE_POLICY} could not be removed again: {error}");
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
    // Without a crate for it: the owner of this process's directory in `/proc` is the effective
    // user.
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
