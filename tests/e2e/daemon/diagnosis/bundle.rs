//! `transom bundle`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use axum::http::Uri;
use axum::{Json, Router};
use serde_json::json;
use transom_tests::site::Site;

use super::{run, text};

/// The files of an archive: the name below the archive's folder, and the text.
fn files_of_archive(archive: &Path) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().expect("a directory");
    let tar = Command::new("tar")
        .arg("xzf")
        .arg(archive)
        .current_dir(dir.path())
        .status();
    assert!(tar.expect("tar").success());
    let mut files = Vec::new();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(dir.path())
                    .expect("below it")
                    .components()
                    .skip(1);
                let name = name.collect::<std::path::PathBuf>().display().to_string();
                files.push((name, fs::read_to_string(&path).expect("text")));
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_contains_diagnostics_and_no_secret() {
    let secrets = [
        "admin-Pa\\\"ss",
        "registry-s3cret",
        "task-env-passw0rd",
        "arg-t0ken",
    ];
    let settings = format!(
        "username = \"ops\"\npassword = \"{}\"\n[[plugins.oci.credentials]]\nregistry = \"r.example\"\nuser = \"u\"\n\
         password = \"{}\"\n",
        secrets[0], secrets[1]
    );
    let mut site = Site::start_with(&settings).await;
    let app = json!({
        "id": "/secretive", "cmd": format!("sleep 1000 # {}", secrets[3]), "cpus": 9000, "mem": 16,
        "env": {"DB": secrets[2]},
    });
    site.post_app(&app).await;
    let dir = site.config().parent().expect("a folder").to_owned();
    // The address of the admin port is not in the file: it was chosen at the start.
    let url = site.admin("");
    let write = |file: &'static str| {
        let (dir, url) = (dir.clone(), url.clone());
        async move {
            let output = run(
                &dir,
                &["bundle", "--config", "transom.toml", "--url", &url, "--to", file],
            )
            .await;
            assert!(output.status.success(), "{}", text(&output.stderr));
            let printed = text(&output.stdout);
            assert!(printed.contains(file), "{printed}");
            (printed, files_of_archive(&dir.join(file)))
        }
    };
    let (printed, files) = write("running.tar.gz").await;
    let named = |name: &str| {
        files
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, text)| text.as_str())
    };
    for (name, part) in [
        ("overview.json", "\"services\""),
        ("ready.json", "\"ready\": true"),
        ("metrics.txt", "transom_apps_apps"),
        ("configuration.json", "admin.password"),
        ("plugins.json", "\"attributes\""),
        ("plugins/attributes/history.json", "\"admitted\""),
        ("plugins/attributes/log.json", "\"lines\""),
        ("state/apps-v2-queue.json", "/secretive"),
        ("state/apps-v2-tasks.json", "\"tasks\""),
        ("doctor.json", "\"findings\""),
        ("environment.json", "Linux version"),
    ] {
        let text = named(name).unwrap_or_else(|| panic!("no {name}: {printed}"));
        assert!(text.contains(part), "{name}: {text}");
        assert!(text.len() <= (4 << 20) + 100, "{name} has {} bytes", text.len());
        assert!(printed.contains(name), "{name} is not in the list: {printed}");
    }
    let mode = fs::metadata(dir.join("running.tar.gz"))
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    site.kill_daemon();
    let (_, stopped) = write("stopped.tar.gz").await;
    let missing = stopped
        .iter()
        .find(|(name, _)| name == "missing.txt")
        .expect("a list");
    assert!(missing.1.contains("no daemon answers"), "{}", missing.1);
    for name in ["configuration.json", "doctor.json", "environment.json"] {
        assert!(stopped.iter().any(|(found, _)| found == name), "{name}");
    }
    let plain = secrets[0].replace('\\', "");
    for (name, text) in files.iter().chain(&stopped) {
        for secret in secrets.iter().copied().chain([plain.as_str()]) {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
    }
    // An existing archive is not replaced.
    let again = run(
        &dir,
        &["bundle", "--config", "transom.toml", "--to", "stopped.tar.gz"],
    )
    .await;
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
}

/// The admin port of another machine, whose services listen on addresses that are also addresses of
/// this machine.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_another_machine_connects_only_to_its_admin_port() {
    let site = Site::start().await;
    let mut overview = site.get(&site.admin("/v1/overview")).await.expect("an overview");
    let service_here = TcpListener::bind("127.0.0.1:0").expect("a port");
    service_here.set_nonblocking(true).expect("a socket");
    let address = service_here.local_addr().expect("an address").to_string();
    for service in overview["services"].as_array_mut().expect("services") {
        for port in service["ports"].as_array_mut().expect("ports") {
            port["address"] = json!(address);
        }
    }
    let answer = move |uri: Uri| {
        let overview = overview.clone();
        async move {
            match uri.path() {
                "/v1/overview" => Json(overview),
                path => Json(json!({"path": path})),
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The task ends with the test.
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let dir = tempfile::tempdir().expect("a directory");
    let output = run(dir.path(), &["bundle", "--url", &url, "--to", "other.tar.gz"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let files = files_of_archive(&dir.path().join("other.tar.gz"));
    for (name, path) in [
        ("state/apps-v2-queue.json", "/v1/services/apps/v2/queue"),
        (
            "state/discovery-v1-version.json",
            "/v1/services/discovery/v1/version",
        ),
    ] {
        let found = files.iter().find(|(found, _)| found == name);
        assert!(
            found.is_some_and(|(_, text)| text.contains(path)),
            "{name}: {files:?}"
        );
    }
    let connected = service_here.accept().map(|(_, client)| client);
    assert!(connected.is_err(), "{connected:?}");
    site.cluster.stop_after(site.daemon);
}
