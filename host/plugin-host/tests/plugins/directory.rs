//! Special files and invalid names in the plugin directory.

use std::os::unix::{fs::symlink, net::UnixListener};

use nix::{sys::stat::Mode, unistd::mkfifo};
use transom_plugin_host::{Change, State};

use crate::support::{Site, component, custom, install, write_file};

const MANIFEST: &str = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[config]\nmark = \"v1\"\n";

/// The reason why a plugin is rejected, as the list shows it.
fn rejection(site: &Site, name: &str) -> String {
    let status = site.status(name);
    assert_eq!(status.state, State::Rejected, "{status:?}");
    status.refusal.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_names_are_rejected_and_shown_escaped() {
    let site = Site::with(&[]).await;
    let names = [
        ("line\nbreak", "line\\u{a}break"),
        ("red\u{1b}[31m", "red\\u{1b}[31m"),
        ("gp\u{202e}nosj", "gp\\u{202e}nosj"),
        ("with space", "with space"),
        ("größe", "größe"),
        ("-dash", "-dash"),
        (&"x".repeat(65), &"x".repeat(65)),
    ];
    for (name, _) in names {
        install(site.dir.path(), "tests/faulty-probe", name, Some(MANIFEST));
    }
    install(
        site.dir.path(),
        "tests/faulty-probe",
        "A.good_1-name",
        Some(MANIFEST),
    );
    let changes = site.plugins.rescan().await;
    for (_, escaped_name) in names {
        let reason = rejection(&site, escaped_name);
        assert!(
            reason.contains("invalid plugin name: expected 1 to 64"),
            "{reason}"
        );
        let rejected = |it: &Change| matches!(it, Change::Rejected { name, .. } if name == escaped_name);
        assert!(changes.iter().any(rejected), "{escaped_name}: {changes:?}");
    }
    assert_eq!(site.status("A.good_1-name").state, State::Serving);
    assert_eq!(site.plugins.rescan().await, [], "a rejection is published once");
    let list = format!("{:?}", site.plugins.list());
    assert!(!list.contains(['\n', '\u{1b}', '\u{202e}']), "{list}");

    for (name, _) in names {
        std::fs::remove_file(site.dir.path().join(format!("{name}.wasm"))).unwrap();
        std::fs::remove_file(site.dir.path().join(format!("{name}.toml"))).unwrap();
    }
    site.plugins.rescan().await;
    assert_eq!(site.plugins.list().len(), 1);
    assert!(!site.metrics().contains("plugin=\"-dash\""), "{}", site.metrics());
    site.stop().await;
}

/// An orchestrator mounts files in this form: `odd.wasm -> ..data/odd.wasm`, `..data -> ..2026`. It
/// updates them by replacing the last link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_within_the_directory_are_followed() {
    let site = Site::with(&[]).await;
    let dir = site.dir.path();
    let version = |number: &str, mark: &str| {
        let place = dir.join(format!("..{number}"));
        std::fs::create_dir(&place).unwrap();
        std::fs::copy(component("tests/faulty-probe"), place.join("odd.wasm")).unwrap();
        std::fs::write(place.join("odd.toml"), MANIFEST.replace("v1", mark)).unwrap();
        symlink(format!("..{number}"), dir.join("..new")).unwrap();
        std::fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
    };
    version("1", "v1");
    for file in ["odd.wasm", "odd.toml"] {
        symlink(format!("..data/{file}"), dir.join(file)).unwrap();
    }
    site.plugins.rescan().await;
    let report = |mark: &str| Ok(custom(&format!(r#"{{"mark": "{mark}", "attempt": 1}}"#)));
    assert_eq!(site.probe("odd", "{}", None).await, report("v1"));
    version("2", "v2");
    site.plugins.rescan().await;
    assert_eq!(site.probe("odd", "{}", None).await, report("v2"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn special_files_are_rejected_with_their_type() {
    let elsewhere = tempfile::tempdir().unwrap();
    install(elsewhere.path(), "tests/faulty-probe", "odd", Some(MANIFEST));
    let site = Site::with(&[("tests/faulty-probe", "good", Some(MANIFEST))]).await;
    let at = |name: &str| site.dir.path().join(name);
    let manifests = ["away", "nowhere", "pipe", "socket", "device", "looped"];
    for name in manifests {
        write_file(site.dir.path(), &format!("{name}.toml"), MANIFEST.as_bytes());
    }
    symlink(elsewhere.path().join("odd.wasm"), at("away.wasm")).unwrap();
    symlink("missing", at("nowhere.wasm")).unwrap();
    symlink("looped.wasm", at("looped.wasm")).unwrap();
    mkfifo(&at("pipe.wasm"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(at("socket.wasm")).unwrap();
    symlink("/dev/zero", at("device.wasm")).unwrap();
    // The component is valid, but the manifest is a link to a file outside the directory.
    std::fs::copy(component("tests/faulty-probe"), at("granted.wasm")).unwrap();
    symlink(elsewhere.path().join("odd.toml"), at("granted.toml")).unwrap();
    std::fs::create_dir(at("folder.wasm")).unwrap();
    site.plugins.rescan().await;
    for (name, expected) in [
        ("away", "outside the plugin directory"),
        ("nowhere", "it is a dangling link"),
        ("looped", "cannot read"),
        ("pipe", "it is a pipe: expected a file"),
        ("socket", "it is a socket: expected a file"),
        ("device", "outside the plugin directory"),
        ("granted", "outside the plugin directory"),
    ] {
        let reason = rejection(&site, name);
        assert!(reason.contains(expected), "{name}: {reason}");
    }
    assert_eq!(site.status("good").state, State::Serving);
    assert_eq!(site.plugins.list().len(), 8, "a folder is not a plugin");
    assert_eq!(site.plugins.rescan().await, [], "a rejection is published once");
    site.stop().await;
}
