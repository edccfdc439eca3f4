//! `transom plugin dev`: each change of a project is built, tested and served. If a change fails,
//! the previous version continues to serve.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::authors::{run_transom, set_build_environment, transom};
use transom_tests::events::Events;
use transom_tests::process::{Transom, binary};
use transom_tests::site::Site;

/// Starts `transom plugin dev` in a project. The component replaces the first-party filter.
fn develop(project: &Path, admin: &str) -> Transom {
    let mut command = Command::new(binary());
    command
        .args(["plugin", "dev", "--as", "events", "--admin", admin])
        .current_dir(project);
    set_build_environment(&mut command);
    // The default is the cache of the daemon on this machine.
    command.env_remove("TRANSOM_CACHE_DIR");
    Transom::spawn(command)
}

/// The metric line with the number of components that the daemon had to compile.
async fn compiled(site: &Site) -> String {
    let metrics = site.http.get(site.admin("/metrics")).send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    let series = "transom_plugins_compiled_cache_total{result=\"miss\"}";
    let line = metrics.lines().find(|line| line.starts_with(series));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}"))
        .to_owned()
}

/// The daemon's status of the filter.
async fn status(site: &Site) -> Value {
    let answer = site.http.get(site.admin("/v1/plugins/events")).send().await;
    answer.expect("an answer").json().await.expect("JSON")
}

fn wait_until_printed(dev: &mut Transom, text: &str) {
    dev.wait_for_line(text, |line| line.contains(text).then_some(()));
}

/// Replaces a text in a file of the project, as an editor does.
fn edit(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("read");
    assert!(text.contains(from), "{from} in {text}");
    fs::write(file, text.replace(from, to)).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_dev_serves_each_change_and_keeps_the_last_good_one() {
    let site = Site::start().await;
    let first_party = status(&site).await["digest"].clone();
    let compiled_before = compiled(&site).await;
    let dir = tempfile::tempdir().expect("a directory");
    run_transom(
        dir.path(),
        &[
            "plugin",
            "new",
            "hides",
            "--world",
            "event-filter",
            "--language",
            "rust",
        ],
    );
    let project = dir.path().join("hides");
    let (source, cargo) = (project.join("src/lib.rs"), project.join("Cargo.toml"));
    let mut dev = develop(&project, &site.admin(""));
    wait_until_printed(&mut dev, "hides (event-filter, Rust) is served as events");
    wait_until_printed(&mut dev, "3 cases passed");
    wait_until_printed(&mut dev, "version 0.1.0 serves");
    let first = status(&site).await;
    assert_ne!(first["digest"], first_party);
    assert_eq!(
        (&first["version"], &first["state"]),
        (&"0.1.0".into(), &"serving".into())
    );

    assert_eq!(
        compiled(&site).await,
        compiled_before,
        "it was compiled once for both"
    );

    // The log and the calls of the component are shown.
    let opened = "        let Config { hide } = self.0.clone();";
    edit(
        &source,
        opened,
        &format!("        transom_sdk::log::info!(\"a stream is opened\");\n{opened}"),
    );
    edit(&cargo, "version = \"0.1.0\"", "version = \"0.2.0\"");
    wait_until_printed(&mut dev, "version 0.2.0 serves");
    wait_until_printed(&mut dev, "waiting for changes");
    let stream = Events::open(
        &site.http,
        &site.apps("/v2/events?event_type=app_terminated_event"),
    )
    .await;
    wait_until_printed(&mut dev, "log: info a stream is opened");
    wait_until_printed(&mut dev, "calls: ");
    drop(stream);
    log_is_on_the_admin_port(&site).await;
    let second = status(&site).await["digest"].clone();

    // If the build fails, the compiler's output is shown and the previous version serves.
    edit(&source, "fn below(", "fn below(wrong: Unknown, ");
    wait_until_printed(&mut dev, "cannot find type `Unknown`");
    wait_until_printed(&mut dev, "cargo build failed");
    wait_until_printed(
        &mut dev,
        "nothing was changed in the daemon: version 0.2.0 of events",
    );
    assert_eq!(status(&site).await["digest"], second);

    // The same if a case fails.
    edit(&source, "fn below(wrong: Unknown, ", "fn below(");
    edit(&source, "Decision::Pass", "Decision::Drop");
    wait_until_printed(&mut dev, "cases failed");
    assert_eq!(status(&site).await["digest"], second);

    edit(&cargo, "version = \"0.2.0\"", "version = \"0.3.0\"");
    let pass = "            } else {\n                Decision::Drop";
    edit(&source, pass, &pass.replace("Drop", "Pass"));
    wait_until_printed(&mut dev, "version 0.3.0 serves");
    let (status_of_dev, output) = dev.interrupt();
    assert!(status_of_dev.success(), "{output}");
    let ending =
        |line: &str| line.starts_with("version 0.3.0 of events (sha256:") && line.ends_with("serves");
    assert!(output.lines().any(ending), "{output}");

    let last = eventually("the last version to serve", || async {
        match status(&site).await {
            status if status["version"] == "0.3.0" => Ok(status),
            status => Err(status.to_string()),
        }
    })
    .await;
    assert_eq!(last["state"], "serving");
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

/// The admin port returns the lines that `dev` shows, and rejects invalid queries.
async fn log_is_on_the_admin_port(site: &Site) {
    let get = async |path: &str| {
        let answer = site.http.get(site.admin(path)).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.expect("JSON"))
    };
    let (_, log) = get("/v1/plugins/events/log").await;
    let line = &log["lines"][0];
    assert_eq!(
        (&line["level"], &line["message"]),
        (&"info".into(), &"a stream is opened".into())
    );
    let lines = log["lines"].as_array().expect("lines");
    let last = lines.last().expect("a line")["sequence"].to_string();
    let (_, after) = get(&format!("/v1/plugins/events/log?after={last}")).await;
    assert_eq!(after["lines"], Value::Array(Vec::new()));
    for (path, expected) in [
        (
            "/v1/plugins/nobody/log",
            (404, "no version of plugin `nobody` serves"),
        ),
        (
            "/v1/plugins/events/log?after=yesterday",
            (400, "expected for example ?after=0"),
        ),
        (
            "/v1/plugins/events/log?before=1",
            (400, "expected for example ?after=0"),
        ),
    ] {
        let (status, error) = get(path).await;
        let message = error["message"].as_str().unwrap_or_default();
        assert!(
            status == expected.0 && message.contains(expected.1),
            "{path}: {status} {error}"
        );
    }
}

fn rejected(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = transom(dir, &[&["plugin", "dev"], arguments].concat());
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_dev_reports_missing_files_and_settings() {
    let site = Site::start().await;
    let admin = site.admin("");
    let dir = tempfile::tempdir().expect("a directory");
    let world = ["--world", "event-filter", "--language", "javascript"];
    run_transom(dir.path(), &[&["plugin", "new", "mine"][..], &world].concat());
    fs::create_dir(dir.path().join("empty")).expect("made");
    fs::create_dir(dir.path().join("bare")).expect("made");
    fs::write(dir.path().join("bare/Cargo.toml"), "[package]\nname = \"bare\"\n").expect("written");
    let unused_url = format!("http://127.0.0.1:{}", transom_testkit::free_ports(1));
    for (arguments, code, expected) in [
        (
            &["empty"][..],
            2,
            "expected Cargo.toml, package.json with build.mjs, or src/app.py",
        ),
        (&["bare"], 2, "has no manifest: expected NAME.toml with a `world`"),
        (&["absent"], 2, "cannot read absent"),
        (&["mine", "--admin", &unused_url], 3, "`transom dev` starts one"),
        (
            &["mine", "--admin", &admin, "--plugins", "absent"],
            2,
            "there is no folder absent",
        ),
        (
            &["mine", "--admin", &admin, "--as", "../x"],
            2,
            "`../x` is not a plugin's name",
        ),
    ] {
        let (found, error) = rejected(dir.path(), arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}
