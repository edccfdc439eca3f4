//! An operator replaces a plugin by sending its files to the admin port, with `transom plugin upload` or
//! any HTTP client.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::plugin::Plugin;
use transom_tests::process::binary;
use transom_tests::set_proxies;
use transom_tests::site::Site;

const UPLOADS: &str = "uploads = true\n";
const TEAM_PRIVATE: &str = include_str!("../../../host/plugin-host/tests/data/signing/p256.key");
const TEAM_PUBLIC: &str = include_str!("../../../host/plugin-host/tests/data/signing/p256.pub");
const STRANGER_PRIVATE: &str = include_str!("../../../host/plugin-host/tests/data/signing/other.key");

/// `transom plugin upload ARGUMENTS` in `dir`: the exit code and all output.
fn upload(site: &Site, dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command.args(["plugin", "upload"]).args(arguments);
    let output = command
        .args(["--admin", &site.admin("")])
        .current_dir(dir)
        .output()
        .expect("transom runs");
    (output.status.code(), printed(&output))
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

async fn status(site: &Site, name: &str) -> Value {
    let url = site.admin(&format!("/v1/plugins/{name}"));
    site.get(&url).await.unwrap_or_default()
}

/// Sends `PUT /v1/plugins/NAME/files`; returns the status and the body.
async fn put_files(site: &Site, name: &str, body: Vec<u8>) -> (u16, String) {
    let request = site
        .http
        .request(Method::PUT, site.admin(&format!("/v1/plugins/{name}/files")));
    let answer = request.body(body).send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

/// An archive of these files, made with `tar` as an operator would.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        fs::write(dir.path().join(name), content).expect("written");
    }
    let mut command = Command::new("tar");
    command.arg("c").args(files.iter().map(|(name, _)| name));
    let output = command.current_dir(dir.path()).output().expect("tar runs");
    assert!(output.status.success(), "{}", printed(&output));
    output.stdout
}

/// The names in a directory, with the content of each file and the target of each link.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let entries = entries.filter(|entry| !entry.path().is_dir());
    let read = |path: &Path| match fs::read_link(path) {
        Ok(target) => target.into_os_string().into_encoded_bytes(),
        Err(_) => fs::read(path).expect("a file"),
    };
    entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                read(&entry.path()),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploaded_component_serves_or_is_rejected_and_leaves_the_old_one_serving() {
    let site = Site::start_with_plugins(UPLOADS, "").await;
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let first = status(&site, "events").await["digest"].clone();
    let manifest = fs::read(site.plugins().join("events.toml")).expect("a manifest");

    let events = Plugin::first_party("events");
    fs::write(dir.join("events.wasm"), &events.stamped(1).wasm).expect("written");
    let (code, text) = upload(&site, dir, &["events.wasm", "--output", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&report["written"], &report["state"]),
        (&json!(["events.wasm"]), &json!("serving"))
    );
    let second = status(&site, "events").await["digest"].clone();
    assert_eq!(report["digest"], second);
    assert_ne!(second, first);
    let kept = fs::read(site.plugins().join("events.toml")).expect("a manifest");
    assert_eq!(kept, manifest, "the daemon's manifest stays");

    // The same upload again: nothing is admitted, and the output is the same.
    let (code, text) = upload(&site, dir, &["events.wasm"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("events: version ") && text.ends_with(" serves\n"),
        "{text}"
    );

    // A component that does not compile, and one of another world.
    fs::write(dir.join("events.wasm"), "\0asm\x0d\0\x01\0broken").expect("written");
    let probe = Plugin::first_party("check-tcp");
    fs::write(dir.join("probe.wasm"), &probe.wasm).expect("written");
    for (arguments, expected) in [
        (&["events.wasm"][..], "does not compile"),
        (
            &["probe.wasm", "--as", "events"],
            "does not export `transom:events/filter",
        ),
    ] {
        let (code, text) = upload(&site, dir, arguments);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains(expected) && text.trim_end().ends_with(") serves"),
            "{text}"
        );
        let now = status(&site, "events").await;
        assert_eq!((&now["digest"], &now["state"]), (&second, &json!("serving")));
    }

    // Uploads follow the rules of rollouts and of quarantine.
    let canary = format!("rollout = \"canary-manual\"\n{}", events.manifest);
    fs::write(dir.join("canary.toml"), canary).expect("written");
    fs::write(dir.join("events.wasm"), &events.stamped(2).wasm).expect("written");
    let arguments = ["events.wasm", "--manifest", "canary.toml"];
    let (code, text) = upload(&site, dir, &arguments);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("runs as a canary"), "{text}");
    let aborted = site
        .http
        .post(site.admin("/v1/plugins/events/abort"))
        .send()
        .await;
    assert_eq!(aborted.expect("an answer").status().as_u16(), 200);
    let (code, text) = upload(&site, dir, &arguments);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ignores these files"), "{text}");
    assert_eq!(status(&site, "events").await["digest"], second);

    // A new plugin, uploaded without `transom`.
    fs::write(dir.join("mine.toml"), &probe.manifest).expect("written");
    fs::write(dir.join("mine.wasm"), &probe.wasm).expect("written");
    let script = format!(
        "tar c mine.wasm mine.toml | curl -sS -T - {}",
        site.admin("/v1/plugins/mine/files")
    );
    let mut shell = Command::new("sh");
    let output = set_proxies(&mut shell)
        .args(["-c", &script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output();
    let output = printed(&output.expect("sh runs"));
    let report: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
    assert_eq!(report["written"], json!(["mine.toml", "mine.wasm"]), "{report}");
    eventually("the new plugin to serve", || async {
        let now = status(&site, "mine").await;
        let serves = now["state"] == "serving" && now["digest"] == report["digest"];
        if serves { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_of_files_that_a_rollback_replaced_is_ignored() {
    let site = Site::start_with_plugins(UPLOADS, "").await;
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let first = status(&site, "events").await["digest"].clone();
    // The two uploads differ only in the manifest.
    let events = Plugin::first_party("events");
    let commented = format!("# rolled back\n{}", events.manifest);
    fs::write(dir.join("commented.toml"), commented).expect("written");
    fs::write(dir.join("events.wasm"), &events.wasm).expect("written");
    let arguments = ["events.wasm", "--manifest", "commented.toml"];
    let (code, text) = upload(&site, dir, &arguments);
    assert_eq!(code, Some(0), "{text}");
    let history = site.get(&site.admin("/v1/plugins/events/history")).await;
    let newest = history.expect("a history")["records"][0].take();
    assert_eq!(
        (&newest["outcome"], &newest["by"]),
        (&json!("admitted"), &json!("upload"))
    );
    let rollback = site.http.post(site.admin("/v1/plugins/events/rollback"));
    let answer = rollback.send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    let now = status(&site, "events").await;
    assert_eq!(
        now["digest"], first,
        "the same component with its earlier manifest"
    );
    let (code, text) = upload(&site, dir, &arguments);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ignores these files"), "{text}");
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_of_an_upload_is_verified() {
    let keys = tempfile::tempdir().expect("a directory");
    let key = |name: &str, content: &str| {
        let path = keys.path().join(name);
        fs::write(&path, content).expect("written");
        path
    };
    let public = key("team.pub", TEAM_PUBLIC);
    let (team, stranger) = (
        key("team.key", TEAM_PRIVATE),
        key("stranger.key", STRANGER_PRIVATE),
    );
    // The first-party components are not signed, so signatures must not be required.
    let signatures = format!("\n[plugins.signatures]\nkeys = [{public:?}]\nrequired = false\n");
    let site = Site::start_with_plugins(UPLOADS, &signatures).await;
    let first = status(&site, "events").await["digest"].clone();
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let wasm = Plugin::first_party("events").stamped(1).wasm;
    fs::write(dir.join("events.wasm"), wasm).expect("written");
    let sign = |key: &Path| {
        let mut openssl = Command::new("openssl");
        openssl.args(["dgst", "-sha256", "-out", "events.wasm.sig", "-sign"]);
        let output = openssl.arg(key).arg("events.wasm").current_dir(dir).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "{}", printed(&output));
    };

    sign(&stranger);
    let (code, text) = upload(&site, dir, &["events.wasm"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("rejects it") && text.contains("signature"),
        "{text}"
    );
    assert_eq!(status(&site, "events").await["digest"], first);

    sign(&team);
    let (code, text) = upload(&site, dir, &["events.wasm", "--output", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["written"], json!(["events.wasm.sig", "events.wasm"]));
    let history = site.get(&site.admin("/v1/plugins/events/history")).await;
    let newest = history.expect("a history")["records"][0].take();
    let signer = newest["signed_by"].as_str().unwrap_or_default();
    assert!(signer.starts_with("team.pub (sha256:"), "{newest}");

    // A signature file stays if the upload does not replace it, but it does not match another
    // component.
    fs::remove_file(dir.join("events.wasm.sig")).expect("removed");
    let unsigned = Plugin::first_party("events").stamped(2).wasm;
    fs::write(dir.join("events.wasm"), unsigned).expect("written");
    let (code, text) = upload(&site, dir, &["events.wasm"]);
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(status(&site, "events").await["digest"], report["digest"]);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_upload_changes_no_file() {
    let site = Site::start_with_plugins(
        UPLOADS,
        "username = \"ann\"\npassword = \"secret\"\nread_only_username = \"rob\"\nread_only_password = \"look\"\n\
         trusted_networks = [\"127.0.0.1/32\"]\n",
    )
    .await;
    let plugins = site.plugins();
    let outside = tempfile::tempdir().expect("a directory");
    let victim = outside.path().join("victim");
    fs::write(&victim, "mine").expect("written");
    for (name, target) in [("linked", victim.as_path()), ("inside", Path::new("events.wasm"))] {
        symlink(target, plugins.join(format!("{name}.wasm"))).expect("linked");
    }
    fs::create_dir(plugins.join("folder.wasm")).expect("made");
    site.rescan().await;
    let before = content(&plugins);

    let Plugin { wasm, manifest } = Plugin::first_party("events");
    let pair = |name: &str, manifest: &str, wasm: &[u8]| {
        let (toml, component) = (format!("{name}.toml"), format!("{name}.wasm"));
        tar(&[(&toml, manifest.as_bytes()), (&component, wasm)])
    };
    let alone = |manifest: &str| tar(&[("new.toml", manifest.as_bytes())]);
    let small = manifest.replace("[limits]\n", "[limits]\nsize = \"1KiB\"\n");
    let pinned = format!("digest = \"sha256:{}\"\n{manifest}", "0".repeat(64));
    let source = "world = \"event-filter\"\nsource = \"oci://127.0.0.1:1/x:1\"\n";
    for (name, body, code, expected) in [
        ("..%2Fevents", wasm.clone(), 400, "percent-encoded"),
        ("-x", wasm.clone(), 400, "invalid plugin name"),
        ("%1b[2J", wasm.clone(), 400, "percent-encoded"),
        ("events", Vec::new(), 400, "tar archive"),
        ("events", b"no archive".to_vec(), 400, "tar archive"),
        ("events", pair("other", &manifest, &wasm), 400, "other.toml"),
        (
            "events",
            tar(&[("events.wasm.sig", b"x")]),
            400,
            "nothing to write",
        ),
        ("events", pair("events", &small, &wasm), 413, "limits.size"),
        ("events", pair("events", "world = \"x\"", &wasm), 422, "`world`"),
        ("events", pair("events", "[", &wasm), 422, "line 1"),
        ("events", pair("events", &pinned, &wasm), 422, "pins sha256:000"),
        (
            "events",
            pair("events", source, &wasm),
            422,
            "expected one of them",
        ),
        ("new", wasm.clone(), 422, "new.toml is missing"),
        ("new", alone(&manifest), 422, "new.wasm is missing"),
        ("linked", pair("linked", &manifest, &wasm), 409, "is a link"),
        ("inside", pair("inside", &manifest, &wasm), 409, "is a link"),
        ("folder", pair("folder", &manifest, &wasm), 409, "is a folder"),
    ] {
        let (status, text) = put_files(&site, name, body).await;
        assert_eq!(status, code, "{name}: {text}");
        assert!(text.contains(expected), "{name}: {text}");
        assert_eq!(content(&plugins), before, "{name}: {text}");
    }
    assert_eq!(fs::read(&victim).expect("a file"), b"mine");

    // Requests as a page of another site could send them, and requests of read-only and unknown
    // users.
    let url = site.admin("/v1/plugins/events/files");
    let send = async |change: fn(reqwest::RequestBuilder) -> reqwest::RequestBuilder| {
        let request = site.http.put(&url).body("x");
        let answer = change(request).send().await.expect("an answer");
        answer.status().as_u16()
    };
    assert_eq!(
        send(|it| it.header("content-type", "multipart/form-data; boundary=x")).await,
        415
    );
    assert_eq!(send(|it| it.header("origin", "http://evil.example")).await, 403);
    assert_eq!(send(|it| it.basic_auth("rob", Some("look"))).await, 403);
    assert_eq!(send(|it| it.basic_auth("rob", Some("guessed"))).await, 401);
    assert_eq!(content(&plugins), before);
    // A body that is too large is rejected before it is sent. Other requests have the usual limit.
    for (request, length) in [
        ("PUT /v1/plugins/events/files", 300_000_000),
        ("POST /v1/plugins/events/promote", 9_000_000),
    ] {
        let mut stream = TcpStream::connect(site.addresses["admin"]).expect("connected");
        let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("written");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        assert!(line.contains(" 413 "), "{request}: {line}");
    }
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_without_the_setting_accepts_no_files() {
    let site = Site::start().await;
    let before = content(&site.plugins());
    let dir = tempfile::tempdir().expect("a directory");
    let wasm = Plugin::first_party("events").stamped(1).wasm;
    fs::write(dir.path().join("events.wasm"), &wasm).expect("written");
    let (status, text) = put_files(&site, "events", wasm).await;
    assert!(
        status == 403 && text.contains("`plugins.uploads`"),
        "{status} {text}"
    );
    let (code, text) = upload(&site, dir.path(), &["events.wasm"]);
    assert!(
        code == Some(1) && text.contains("`uploads = true`"),
        "{code:?} {text}"
    );
    let listed = site.get(&site.admin("/v1/plugins")).await.expect("a list");
    assert_eq!(listed["uploads"], json!(false));
    let (code, text) = upload(&site, dir.path(), &["absent.wasm"]);
    assert!(
        code == Some(2) && text.contains("cannot read absent.wasm"),
        "{code:?} {text}"
    );
    assert_eq!(content(&site.plugins()), before);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}
