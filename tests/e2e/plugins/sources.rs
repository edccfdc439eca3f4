//! A component in a registry: its author pushes and signs it, and an operator with the key verifies
//! and uses it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::plugin::Plugin;
use transom_tests::process::binary;
use transom_tests::registry::Registry;
use transom_tests::site::Site;

const PRIVATE: &str = include_str!("../../../host/plugin-host/tests/data/signing/p256.key");
const PUBLIC: &str = include_str!("../../../host/plugin-host/tests/data/signing/p256.pub");

/// `transom plugin ARGUMENTS` in `dir`, which contains the operator's `transom.toml`.
fn plugin(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary())
        .arg("plugin")
        .args(arguments)
        .args(["--output", "json"])
        .current_dir(dir)
        .env_remove("TRANSOM_CONFIG")
        .output()
        .expect("transom runs")
}

/// Runs the command, which must succeed.
fn run_json(dir: &Path, arguments: &[&str]) -> Value {
    let output = plugin(dir, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_component_is_served_from_the_registry() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = dir.path();
    let registry = Registry::start(here);
    let place = format!("oci://{}/team/filter:1", registry.address);
    let settings = format!(
        "\n[plugins.oci]\ninsecure_registries = [\"{}\"]\nrefresh_seconds = 1\n",
        registry.address
    );
    let write = |name: &str, content: &[u8]| fs::write(here.join(name), content).expect("written");
    write("transom.toml", settings.as_bytes());
    write("team.key", PRIVATE.as_bytes());
    write("team.pub", PUBLIC.as_bytes());
    let first = Plugin::first_party("events");
    let manifest = format!("source = \"{place}\"\n{}", first.manifest);
    write("events.toml", manifest.as_bytes());
    write("events.wasm", &first.wasm);
    let pushed = run_json(here, &["push", "events.wasm", &place, "--sign", "team.key"]);
    let source = pushed["source"].as_str().expect("a source").to_owned();
    assert!(source.starts_with(&format!("{place}@sha256:")), "{source}");
    let output = plugin(here, &["push", "team.pub", &place]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a WebAssembly component"));

    let verdict = run_json(here, &["check", "events.toml"]);
    assert_eq!(verdict["source"], source);
    assert_eq!(verdict["signed_by"], Value::Null);
    let strict = format!("{settings}[plugins.signatures]\nkeys = [\"team.pub\"]\n");
    write("transom.toml", strict.as_bytes());
    let verdict = run_json(here, &["check", "events.toml"]);
    let signer = verdict["signed_by"].as_str().expect("a signer");
    assert!(signer.starts_with("team.pub (sha256:"), "{signer}");

    // The daemon serves the files of its directory, except for one component that it pulls by a
    // tag.
    let mut site = Site::start_with(&settings).await;
    fs::write(site.plugins().join("events.toml"), &manifest).expect("written");
    fs::remove_file(site.plugins().join("events.wasm")).expect("removed");
    let at = |expected: String| {
        let (site, expected) = (&site, expected);
        async move {
            eventually(&expected, || async {
                let history = site.get(&site.admin("/v1/plugins/events/history")).await?;
                let newest = &history["records"][0];
                if newest["outcome"] == "admitted" && newest["source"] == expected.as_str() {
                    Ok(())
                } else {
                    Err(newest.to_string())
                }
            })
            .await;
        }
    };
    at(source.clone()).await;
    write("events.wasm", &first.stamped(2).wasm);
    let pushed = run_json(here, &["push", "events.wasm", &place]);
    let moved = pushed["source"].as_str().expect("a source").to_owned();
    assert_ne!(moved, source);
    at(moved).await;
    let list = run_json(here, &["list", "--admin", &site.admin("")]);
    let list = list.as_array().expect("a list");
    let events = list.iter().find(|it| it["name"] == "events").expect("it");
    assert_eq!(
        (&events["state"], &events["source"]["state"]),
        (&Value::from("serving"), &Value::from("current"))
    );
    // The new component of the tag is not signed.
    let output = plugin(here, &["check", "events.toml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("the daemon would reject events.toml: it is not signed"),
        "{stderr}"
    );
    site.cluster.stop_after(site.daemon.take());
}

#[test]
fn a_push_to_a_registry_without_tls_names_the_option() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = dir.path();
    let registry = Registry::start(here);
    fs::write(here.join("events.wasm"), Plugin::first_party("events").wasm).expect("written");
    let place = format!("oci://{}/team/filter:1", registry.address);
    let output = plugin(here, &["push", "events.wasm", &place]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let option = format!("--plain-http {}", registry.address);
    assert!(
        stderr.contains("answers without TLS") && stderr.contains(&option),
        "{stderr}"
    );
    run_json(
        here,
        &[
            "push",
            "events.wasm",
            &place,
            "--plain-http",
            &registry.address.to_string(),
        ],
    );

    // Without a registry at that address the error does not suggest the option.
    let address = registry.address;
    drop(registry);
    let output = plugin(
        here,
        &["push", "events.wasm", &format!("oci://{address}/team/filter:1")],
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(!stderr.contains("--plain-http"), "{stderr}");
}
