//! The packages of `cargo xtask dist`, used as an administrator uses them.
//!
//! They contain the binary that the other tests use, so that no further build is needed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::debian::DebianRoot;
use transom_tests::process::{Transom, binary, components, user};
use transom_tests::site::{Cluster, addresses};
use transom_tests::{http, installed};

use crate::apps::containers;

/// The timestamp of everything in the packages, so that they do not depend on the checkout.
const EPOCH: &str = "1764547200";

/// The version that is upgraded.
const PREVIOUS: &str = "0.0.9";
const CURRENT: &str = env!("CARGO_PKG_VERSION");

/// Runs `cargo xtask dist` with the binary and the components under test.
fn dist(out: &Path, arguments: &[&str]) {
    let mut command = Command::new(installed("xtask"));
    command
        .args(["dist", "--profile", "dev", "--out"])
        .arg(out)
        .arg("--binary")
        .arg(binary())
        .arg("--components")
        .arg(components())
        .args(arguments)
        .env("SOURCE_DATE_EPOCH", EPOCH);
    let output = command.output().expect("xtask");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The Debian package of the previous version, built once.
pub(crate) fn previous_package() -> PathBuf {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    let out = PACKAGES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages-before");
        dist(&out, &["--package-version", PREVIOUS, "--only", "debian"]);
        out
    });
    package(out, ".deb")
}

/// All packages of this version, built once.
pub(crate) fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        dist(&out, &[]);
        out
    })
}

/// The only file with this suffix.
pub(crate) fn package(dir: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(dir)
        .expect("packages")
        .flatten()
        .map(|entry| entry.path());
    let found: Vec<_> = files
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// Runs a program that must succeed; returns its output.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// A daemon and a client of it.
struct Daemon {
    process: Transom,
    apps: SocketAddr,
}

impl Daemon {
    fn started(mut process: Transom) -> Self {
        let apps = addresses(&mut process)["apps"];
        Self { process, apps }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = http().get(format!("http://{}{path}", self.apps)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        answer.json().await.map_err(|error| error.to_string())
    }

    /// Posts an app that runs until it is killed.
    async fn post(&self, id: &str) {
        let app = json!({"id": id, "cmd": "exec sleep 1000000", "cpus": 0.1, "mem": 32, "user": user()});
        let answer = eventually("the leader", || async {
            let url = format!("http://{}/v2/apps", self.apps);
            let answer = http()
                .post(url)
                .json(&app)
                .send()
                .await
                .map_err(|it| it.to_string())?;
            match answer.status().as_u16() {
                201 => Ok(201),
                503 => Err(answer.text().await.unwrap_or_default()),
                other => panic!("{other}: {}", answer.text().await.unwrap_or_default()),
            }
        });
        assert_eq!(answer.await, 201);
    }

    /// The id of the only task of an app, once it runs.
    async fn wait_until_running(&self, app: &str) -> String {
        eventually("a running task", || async {
            let document = self.get(&format!("/v2/apps{app}/tasks")).await?;
            let task = &document["tasks"][0];
            if task["state"] == "TASK_RUNNING" {
                Ok(task["id"].as_str().expect("an id").to_owned())
            } else {
                Err(document.to_string())
            }
        })
        .await
    }
}

/// The value of a key of the service's unit.
fn unit_value(root: &DebianRoot, key: &str) -> String {
    let unit = root.read("/lib/systemd/system/transom.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key} in {unit}")).to_owned()
}

/// Starts the program of the unit, as the unit's user in its directory.
fn start_unit(root: &DebianRoot) -> Daemon {
    let exec = unit_value(root, "ExecStart");
    let words: Vec<&str> = exec.split(' ').collect();
    let user = unit_value(root, "User");
    Daemon::started(Transom::spawn(root.command(Some(&user), &words)))
}

/// Changes the settings as an administrator does: the master's address, and free ports.
fn configure(root: &DebianRoot, master: SocketAddr) -> String {
    let file = root.path("/etc/transom/transom.toml");
    let text = fs::read_to_string(&file).expect("settings");
    let mut changed = text.replace("127.0.0.1:5050", &master.to_string());
    for port in ["port = 8080", "port = 8053", "http_port = 8123", "port = 9990"] {
        assert!(changed.contains(port), "{port} in {text}");
        let key = port.split(" = ").next().expect("a key");
        changed = changed.replace(port, &format!("{key} = 0"));
    }
    fs::write(&file, &changed).expect("written");
    changed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debian_package_is_installed_upgraded_with_a_running_task_and_purged() {
    let Some(root) = DebianRoot::for_test("debian_package") else {
        return;
    };
    let before = root.paths();
    root.install(&previous_package());
    let shown = root.run(&[
        "dpkg-query",
        "--show",
        "--showformat",
        "${Version} ${Status}",
        "transom",
    ]);
    assert_eq!(shown, format!("{PREVIOUS} install ok installed"));
    let modes = [
        "/etc/transom/transom.toml",
        "/var/lib/transom",
        "/usr/bin/transom",
    ];
    let modes = root.run(&[&["stat", "--format", "%a %U %G %n"], modes.as_slice()].concat());
    assert_eq!(
        modes,
        "640 root transom /etc/transom/transom.toml\n750 transom transom /var/lib/transom\n\
         755 root root /usr/bin/transom\n"
    );

    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path());
    let settings = configure(&root, cluster.master);
    let daemon = start_unit(&root);
    daemon.post("/kept").await;
    let task = daemon.wait_until_running("/kept").await;

    // As on a machine with systemd: the files are replaced first, then the daemon is restarted.
    root.install(&package(packages(), ".deb"));
    assert_eq!(root.read("/etc/transom/transom.toml"), settings);
    let (status, log) = daemon.process.terminate();
    assert!(status.success(), "{status}: {log}");
    let daemon = start_unit(&root);
    assert_eq!(daemon.wait_until_running("/kept").await, task);
    assert_eq!(cluster.launches().len(), 1, "{:?}", cluster.launches());
    daemon.post("/new").await;
    daemon.wait_until_running("/new").await;

    let (status, log) = daemon.process.terminate();
    assert!(status.success(), "{status}: {log}");
    cluster.stop();
    check_removal_and_purge(&root, &before, &settings);
}

/// Removing the package keeps the configuration; purging keeps only the data.
fn check_removal_and_purge(root: &DebianRoot, before: &std::collections::BTreeSet<String>, settings: &str) {
    root.run(&["dpkg", "--remove", "transom"]);
    assert!(!root.path("/usr/bin/transom").exists());
    assert_eq!(root.read("/etc/transom/transom.toml"), settings);
    root.run(&["dpkg", "--purge", "transom"]);
    let left: Vec<String> = root
        .paths()
        .difference(before)
        .filter(|path| !path.starts_with("/var/lib/transom"))
        .cloned()
        .collect();
    // The package's user owns the data and stays. `adduser` keeps a lock, and copies of the files
    // of users and groups.
    let of_users = [
        "/etc/group-",
        "/etc/gshadow-",
        "/etc/passwd-",
        "/etc/shadow-",
        "/etc/subgid-",
        "/etc/subuid-",
        "/run/adduser",
    ];
    assert!(
        left.iter().all(|path| of_users.contains(&path.as_str())),
        "{left:?}"
    );
    assert!(root.path("/var/lib/transom/store").is_dir());
    assert!(root.read("/etc/passwd").contains("\ntransom:"));

    // If there is no data, purging removes the user, too.
    fs::remove_dir_all(root.path("/var/lib/transom")).expect("removed");
    root.install(&package(packages(), ".deb"));
    root.run(&["dpkg", "--purge", "transom"]);
    assert!(!root.path("/var/lib/transom").exists());
    assert!(!root.read("/etc/passwd").contains("\ntransom:"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tarball_runs_where_it_is_unpacked() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = package(packages(), ".tar.gz");
    output(
        Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(dir.path()),
    );
    let unpacked = dir
        .path()
        .join(format!("transom-{CURRENT}-{}-linux", std::env::consts::ARCH));
    for file in [
        "LICENSE",
        "README.md",
        "docs/plugins/manifest.md",
        "examples/apps/http.json",
        "completions/bash/transom",
        "completions/zsh/_transom",
        "completions/fish/transom.fish",
        "man/man1/transom-serve.1",
        "plugins/attributes.wasm",
        "plugins/attributes.toml",
        "sbom.cdx.json",
        "systemd/transom.service",
    ] {
        assert!(unpacked.join(file).is_file(), "{file}");
    }
    let cluster = Cluster::start(dir.path());
    let mut command = Command::new(unpacked.join("bin/transom"));
    command
        .args(["serve", "--config", "transom.toml"])
        .args(
            ["apps", "dns", "discovery", "admin"]
                .iter()
                .flat_map(|port| ["--port".to_owned(), format!("{port}=0")]),
        )
        .current_dir(&unpacked)
        .env("TRANSOM_CLUSTER_MASTER", cluster.master.to_string());
    let daemon = Daemon::started(Transom::spawn(command));
    daemon.post("/app").await;
    daemon.wait_until_running("/app").await;
    cluster.stop_after(Some(daemon.process));
}

/// The file of a blob, whose digest and size must be those of its descriptor.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let hash = digest.strip_prefix("sha256:").expect("SHA-256");
    let file = layout.join("blobs/sha256").join(hash);
    let found = output(Command::new("sha256sum").arg(&file));
    assert!(found.starts_with(hash), "{descriptor}: {found}");
    let size = fs::metadata(&file).expect("a blob").len();
    assert_eq!(descriptor["size"], size, "{descriptor}");
    file
}

fn json_of(file: &Path) -> Value {
    let text = fs::read(file).expect("a document");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn image_layout_has_the_digests_and_the_configuration_that_it_names() {
    let layout = package(packages(), "-oci");
    assert_eq!(json_of(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json_of(&layout.join("index.json"));
    let manifest = json_of(&blob(&layout, &index["manifests"][0]));
    let config = json_of(&blob(&layout, &manifest["config"]));
    let layers = manifest["layers"].as_array().expect("layers");
    let diff_ids = config["rootfs"]["diff_ids"].as_array().expect("digests");
    assert_eq!((layers.len(), diff_ids.len()), (2, 2));
    for (layer, diff_id) in layers.iter().zip(diff_ids) {
        let file = blob(&layout, layer);
        let mut plain = Command::new("sh");
        plain.args(["-c", "gzip -dc \"$0\" | sha256sum"]).arg(&file);
        let found = output(&mut plain);
        assert_eq!(
            format!("sha256:{}", found.split(' ').next().expect("a digest")),
            *diff_id
        );
    }
    let run = &config["config"];
    assert_eq!(run["User"], "65532:65532");
    assert_eq!(run["Entrypoint"], json!(["/usr/bin/transom"]));
    // The layers, the configuration and the manifest are the only blobs.
    let blobs = fs::read_dir(layout.join("blobs/sha256")).expect("blobs").count();
    assert_eq!(blobs, layers.len() + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_serves_in_a_container_without_a_network() {
    let Some(runtime) = containers::runtime("image_serves").await else {
        return;
    };
    if runtime.program != "podman" {
        println!(
            "skipped: image_serves: {} reads no image layouts",
            runtime.program
        );
        return;
    }
    // Relative: podman names the image after the path, in which it accepts few characters.
    let layout = package(packages(), "-oci");
    let name = layout.file_name().expect("a name").display();
    let image = format!("oci:{name}:{CURRENT}");
    let (globals, options) = runnable(&runtime.program, &image);
    let mut command = Command::new(&runtime.program);
    command
        .args(globals)
        .args(["run", "--rm", "--rmi", "--network", "none"])
        .current_dir(packages());
    let mut container = Transom::spawn({
        command.args(options).arg(&image);
        command
    });
    let apps = addresses(&mut container)["apps"];
    assert_eq!(apps.port(), 8080);
    container.wait_for_line("an admitted plugin", |line| {
        (line.contains("plugin admitted") && line.contains("check-command")).then_some(())
    });
    let (status, log) = container.terminate();
    assert!(status.success(), "{status}: {log}");
}

/// The options of the runtime, before and after `run`, that this machine needs to run the image.
/// Some machines permit only lower limits.
fn runnable(program: &str, image: &str) -> (&'static [&'static str], &'static [&'static str]) {
    let runc: &[&str] = &["--runtime", "runc", "--cgroup-manager", "cgroupfs"];
    let lower: &[&str] = &["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=16384:16384"];
    let mut failures = Vec::new();
    for (globals, options) in [(&[][..], &[][..]), (&[], lower), (runc, &[]), (runc, lower)] {
        let mut run = Command::new(program);
        run.args(globals)
            .args(["run", "--rm", "--network", "none"])
            .current_dir(packages());
        let output = run
            .args(options)
            .args([image, "--version"])
            .output()
            .expect("started");
        if output.status.success() {
            let version = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(version, format!("transom {CURRENT}\n"));
            return (globals, options);
        }
        failures.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    panic!("{program} does not run {image}: {failures:#?}");
}

#[test]
fn packages_of_the_same_inputs_are_equal_and_match_their_checksums() {
    let again = tempfile::tempdir().expect("a directory");
    dist(&again.path().join("dist"), &[]);
    let sums = fs::read_to_string(packages().join("SHA256SUMS")).expect("checksums");
    assert_eq!(
        fs::read_to_string(again.path().join("dist/SHA256SUMS")).expect("checksums"),
        sums
    );
    output(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(packages()),
    );
    for ending in [".deb", ".tar.gz", ".cdx.json", "index.json"] {
        assert!(
            sums.lines().any(|line| line.ends_with(ending)),
            "{ending}: {sums}"
        );
    }
}

#[test]
fn bill_of_materials_names_crates_components_and_libraries() {
    let bill = json_of(&package(packages(), ".cdx.json"));
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let entries = bill["components"].as_array().expect("components");
    let entry = |name: &str| {
        let found = entries.iter().find(|entry| entry["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    for name in ["tokio", "wasmtime"] {
        let licenses = entry(name)["licenses"][0]["expression"]
            .as_str()
            .expect("a licence");
        assert!(!licenses.is_empty());
        assert_eq!(entry(name)["hashes"][0]["alg"], "SHA-256");
    }
    assert_eq!(entry("attributes.wasm")["type"], "application");
    assert_eq!(entry("libc.so.6")["type"], "library");
    // A crate of tests only.
    assert!(entries.iter().all(|entry| entry["name"] != "transom-testkit"));
}
