//! `transom plugin check --against serving` lists what an upgrade requests in addition, before its
//! files are copied.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use transom_tests::plugin::Plugin;
use transom_tests::process::binary;
use transom_tests::site::Site;

const MANIFEST: &str = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n";

/// `transom plugin check grows.wasm --against serving` in `dir`.
fn check(dir: &Path, admin: &str, manifest: &str) -> Output {
    fs::write(dir.join("grows.wasm"), Plugin::test_guest("wasi-everything").wasm).expect("written");
    fs::write(dir.join("grows.toml"), manifest).expect("written");
    Command::new(binary())
        .args(["plugin", "check", "grows.wasm", "--against", "serving"])
        .args(["--admin", admin, "--output", "json"])
        .env("TRANSOM_CACHE_DIR", dir.join("cache"))
        .current_dir(dir)
        .output()
        .expect("transom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn document(output: &Output) -> Value {
    let read = serde_json::from_slice(&output.stdout);
    read.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_against_serving_lists_additional_requests_of_an_upgrade() {
    let site = Site::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let (dir, admin) = (dir.path(), site.admin(""));

    let output = check(dir, &admin, MANIFEST);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = document(&output);
    assert_eq!(found["against"]["version"], Value::Null, "{found}");
    assert_eq!(found["against"]["grants"]["network"], json!(["task"]), "{found}");

    let mut first = Plugin::test_guest("faulty-probe");
    MANIFEST.clone_into(&mut first.manifest);
    first.install(&site.plugins(), "grows");
    site.rescan().await;
    let output = check(dir, &admin, MANIFEST);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("`wasi:clocks/wall-clock`") && error.contains("grants.imports = \"wasi-guest\""),
        "{error}"
    );
    let found = document(&output);
    let imports = found["against"]["imports"].as_array().expect("imports");
    assert!(imports.contains(&json!("wasi:sockets/tcp")), "{found}");
    assert_eq!(found["against"]["limits"], json!({}), "{found}");
    assert_eq!(found["refusal"], found["against"]["refusal"], "{found}");

    let manifest = "world = \"check-probe\"\n[grants]\nnetwork = [\"task\", \"10.0.0.0/8:443\"]\n\
                    command = true\nimports = \"wasi-guest\"\n[limits]\nmemory = \"32MiB\"\n";
    let output = check(dir, &admin, manifest);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = document(&output);
    let against = &found["against"];
    let grants = json!({"network": ["10.0.0.0/8:443"], "command": true});
    assert_eq!(against["grants"], grants, "{found}");
    let limits = json!({"memory": {"from": 16 << 20, "to": 32 << 20}});
    assert_eq!(against["limits"], limits, "{found}");
    assert_eq!(against["refusal"], Value::Null, "{found}");

    // The daemon admits the upgrade.
    let upgrade = Plugin {
        wasm: Plugin::test_guest("wasi-everything").wasm,
        manifest: manifest.to_owned(),
    };
    upgrade.install(&site.plugins(), "grows");
    site.rescan().await;
    let status = site.http.get(site.admin("/v1/plugins/grows")).send().await;
    let status: Value = status.expect("an answer").json().await.expect("JSON");
    assert_eq!(status["refusal"], Value::Null, "{status}");
    assert_eq!(status["digest"], found["digest"], "{status}");
    let output = check(dir, &admin, manifest);
    let found = document(&output);
    for what in ["imports", "grants", "limits"] {
        let requested = &found["against"][what];
        assert!(*requested == json!([]) || *requested == json!({}), "{found}");
    }

    let unknown = "world = \"check-probe\"\n[grants]\nimports = \"wasi-guests\"\n";
    let output = check(dir, &admin, unknown);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("`grants.imports` is \"wasi-guests\"") && error.contains("\"wasi-guest\""),
        "{error}"
    );
    let unused_url = format!("http://127.0.0.1:{}", transom_testkit::free_ports(1));
    let output = check(dir, &unused_url, MANIFEST);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}
