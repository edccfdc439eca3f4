//! The first script of the Kubernetes framework's containers, from its source through the component
//! and the cluster's fetcher into the task.

use std::fs;
use std::path::Path;

use serde_json::Value;
use transom_testkit::{eventually, wait_for};
use transom_tests::plugin::{Plugin, remove};
use transom_tests::process::user;
use transom_tests::site::Site;

/// Takes the place of the orchestrator's script.
const SCRIPT: &str = "#!/bin/sh\necho \"mirror=@MIRROR@ role=@TRANSOM_ROLE@ arguments=$*\"\nexec sleep 600\n";

/// A framework whose tasks are processes: a datastore that does nothing, and a server that prints
/// the result of the script's substitutions.
async fn start() -> (Site, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let script = folder.path().join("bootstrap.sh");
    fs::write(&script, SCRIPT).expect("written");
    let site = start_with(&script, "").await;
    (site, folder)
}

/// Starts a framework with another script and additional configuration.
async fn start_with(script: &Path, more: &str) -> Site {
    Site::start_with(&format!(
        "[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
         ds_command = \"exec sleep 600\"\nds_cpu = 0.1\nds_mem = 32\nds_disk = 1\norch_server_mem = 32\n\
         orch_server_disk = 1\nportrange_from = 1024\nportrange_to = 65535\norch_agent_count = 0\nbootstrap_url = \"file://{}\"\n\
         {more}",
        user(),
        script.display(),
    ))
    .await
}

async fn put(site: &Site, path: &str) {
    let answer = site
        .http
        .put(site.kubernetes(path))
        .send()
        .await
        .expect("an answer");
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}

/// The number of tasks with this text in their output.
fn count_outputs(folder: &Path, text: &str) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let (path, name) = (entry.path(), entry.file_name());
            // `latest` is a link to one of the other entries.
            if path.is_symlink() {
                0
            } else if path.is_dir() {
                count_outputs(&path, text)
            } else {
                let contains_text =
                    name == "stdout" && fs::read_to_string(&path).is_ok_and(|output| output.contains(text));
                usize::from(contains_text)
            }
        })
        .sum()
}

async fn install(site: &Site, mirror: &str) {
    let table = format!("variables = {{ MIRROR = \"{mirror}\" }}");
    let component = Plugin::first_party("bootstrap").config(&table);
    component.install(&site.plugins(), "bootstrap");
    site.rescan().await;
}

async fn wait_until_printed(site: &Site, text: &str) {
    wait_for(text, async || count_outputs(site.cluster.work_dir(), text) > 0).await;
}

/// Waits until no server is running and this reason is shown.
async fn wait_until_nothing_starts(site: &Site, reason: &str) {
    eventually("the reason why nothing starts", || async {
        let explained: Value = site.get(&site.kubernetes("/explain")).await?;
        let reasons = explained["waiting"].to_string();
        let running = site.get(&site.kubernetes("/server/scale")).await?;
        if reasons.contains(reason) && running["Running"] == 0 {
            Ok(())
        } else {
            Err(format!("{running} {explained}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_component_decides_what_the_next_container_runs() {
    let (site, _folder) = start().await;
    // Without the variable, its placeholder in the script is not replaced.
    wait_until_printed(&site, "mirror=@MIRROR@ role=server").await;
    wait_until_printed(&site, "arguments=/usr/local/bin/k3s server").await;

    install(&site, "one.example").await;
    put(&site, "/server/restart").await;
    wait_until_printed(&site, "mirror=one.example role=server").await;

    remove(&site.plugins(), "bootstrap");
    site.rescan().await;
    put(&site, "/server/restart").await;
    wait_until_nothing_starts(&site, "`bootstrap`").await;

    install(&site, "two.example").await;
    wait_until_printed(&site, "mirror=two.example role=server").await;
    assert_eq!(
        count_outputs(site.cluster.work_dir(), "role=server"),
        3,
        "one task after the other"
    );
    site.cluster.stop_after(site.daemon);
}

/// No agent trusts the certificate of the API.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_served_without_tls_beside_an_api_with_tls() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path();
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let certificate = names.self_signed(&key).expect("a certificate");
    fs::write(path.join("key.pem"), key.serialize_pem()).expect("written");
    fs::write(path.join("cert.pem"), certificate.pem()).expect("written");
    fs::write(path.join("bootstrap.sh"), SCRIPT).expect("written");
    let port = transom_testkit::free_port();
    let more = format!(
        "tls_certificate = \"{0}/cert.pem\"\ntls_key = \"{0}/key.pem\"\n[kubernetes.bootstrap]\nport = {port}\n",
        path.display()
    );
    let site = start_with(&path.join("bootstrap.sh"), &more).await;
    wait_until_printed(&site, "role=server").await;
    for path in ["/api/fw/v0/server/config", "/bootstrap/a/b", "/backup/a/b"] {
        let answer = site
            .http
            .get(format!("http://127.0.0.1:{port}{path}"))
            .send()
            .await;
        assert_eq!(answer.expect("an answer").status(), 404, "{path}");
    }
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_survive_kill_dash_nine_and_no_task_is_started_twice() {
    let (mut site, _folder) = start().await;
    wait_until_printed(&site, "role=server").await;
    put(&site, "/agent/scale/3").await;
    site.kill_daemon();
    site.start_daemon().await;
    let scale = site
        .get(&site.kubernetes("/agent/scale"))
        .await
        .expect("an answer");
    assert_eq!(scale["Scale"], 3);
    eventually("the server to be known again", || async {
        let running = site.get(&site.kubernetes("/server/scale")).await?;
        if running["Running"] == 1 {
            Ok(())
        } else {
            Err(running.to_string())
        }
    })
    .await;
    assert_eq!(count_outputs(site.cluster.work_dir(), "role=server"), 1);
    site.cluster.stop_after(site.daemon);
}

/// `examples/plugins/registry-mirror` replaces the first-party component.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_party_component_adds_registry_mirrors_to_the_script() {
    let folder = tempfile::tempdir().expect("a directory");
    let (script, file) = (
        folder.path().join("bootstrap.sh"),
        folder.path().join("etc/registries.yaml"),
    );
    let text = format!("cat '{}'\nexec sleep 600\n", file.display());
    fs::write(&script, format!("#!/bin/sh\n{text}")).expect("written");
    let more =
        "[kubernetes.bootstrap]\nrefresh_seconds = 0\n[plugins.use]\nbootstrap = \"registry-mirror\"\n";
    let site = start_with(&script, more).await;
    wait_until_nothing_starts(&site, "`registry-mirror`").await;

    let mirror = |url: &str| {
        let table = format!(
            "file = \"{}\"\n[config.mirrors]\n\"docker.io\" = [\"{url}\"]",
            file.display()
        );
        Plugin::example("registry-mirror").config(&table)
    };
    mirror("https://one.example").install(&site.plugins(), "registry-mirror");
    site.rescan().await;
    wait_until_printed(&site, "- \"https://one.example\"").await;

    // A malformed mirror is rejected with its position, and the previous version continues to
    // serve.
    mirror("https://two.example:0").install(&site.plugins(), "registry-mirror");
    site.rescan().await;
    let status = site
        .get(&site.admin("/v1/plugins/registry-mirror"))
        .await
        .expect("a status");
    let rejection = status["refusal"].to_string();
    assert!(
        rejection.contains("/mirrors/docker.io/0") && rejection.contains("no valid port"),
        "{status}"
    );
    put(&site, "/server/restart").await;
    wait_for("another server with the mirror", async || {
        count_outputs(site.cluster.work_dir(), "- \"https://one.example\"") == 2
    })
    .await;

    // A script that the component rejects starts nothing, and the reason is shown.
    fs::write(&script, text).expect("written");
    put(&site, "/server/restart").await;
    wait_until_nothing_starts(&site, "line 1 of the script names no interpreter").await;
    site.cluster.stop_after(site.daemon);
}
