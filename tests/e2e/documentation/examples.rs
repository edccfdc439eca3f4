//! Everything in `examples/` works unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use transom_testkit::eventually;
use transom_tests::plugin::Plugin;
use transom_tests::process::binary;
use transom_tests::site::Site;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_app_runs() {
    let site = Site::start().await;
    let mut names: Vec<String> = fs::read_dir(examples().join("apps"))
        .expect("examples")
        .flatten()
        // The definitions in the folder `containers` need images and volumes that the embedded
        // cluster does not have.
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 11, "{names:?}");
    for name in &names {
        let posted = site.post_example(name).await;
        let id = posted["id"].as_str().expect("an id").to_owned();
        let instances = usize::try_from(posted["instances"].as_u64().expect("a count")).expect("few");
        site.wait_until_running(&id, instances).await;
    }
    // The ports of these apps differ from those of their agents; the checks reach the tasks
    // nevertheless.
    for id in ["/bridge", "/network"] {
        let what = format!("a check of {id} that reaches it");
        let reached =
            |tasks: &[Value]| tasks.len() == 1 && tasks[0]["checkResult"]["http"]["statusCode"] == 200;
        site.tasks_when(id, &what, reached).await;
    }
    // The constraint of `pinned.json` is satisfied: the first agent is the one in rack r1.
    let pinned = site.wait_until_running("/pinned", 2).await;
    let hosts: BTreeSet<&str> = pinned.iter().filter_map(|task| task["host"].as_str()).collect();
    assert_eq!(hosts, BTreeSet::from(["127.0.0.1"]));
    let spread = site.wait_until_running("/spread", 3).await;
    let hosts: BTreeSet<&str> = spread.iter().filter_map(|task| task["host"].as_str()).collect();
    assert_eq!(hosts.len(), 3, "{spread:?}");
    site.scale("/spread", 2).await;
    let left = site.wait_until_running("/spread", 2).await;
    let hosts: BTreeSet<&str> = left.iter().filter_map(|task| task["host"].as_str()).collect();
    assert_eq!(hosts.len(), 2, "{left:?}");
    let app = site.apps("/v2/apps/health");
    eventually("both instances are healthy", || async {
        let app = site.get(&app).await?;
        let healthy = app["app"]["tasksHealthy"] == 2;
        if healthy { Ok(()) } else { Err(app.to_string()) }
    })
    .await;
    let database = site.wait_until_running("/ops/database", 1).await;
    assert_eq!(
        database[0]["localVolumes"][0]["containerPath"], "data",
        "{database:?}"
    );
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_example_manifest_is_admitted() {
    let site = Site::start().await;
    let path = examples().join("plugins/quiet/events.toml");
    let plugin = Plugin {
        manifest: fs::read_to_string(&path).expect("a manifest"),
        ..Plugin::first_party("events")
    };
    plugin.install(&site.plugins(), "events");
    site.rescan().await;
    let status = site
        .get(&site.admin("/v1/plugins/events"))
        .await
        .expect("a status");
    assert_eq!(status["refusal"], Value::Null, "{}: {status}", path.display());
    site.cluster.stop_after(site.daemon);
}

#[test]
fn the_configuration_is_valid() {
    let file = examples().join("transom.toml");
    let checked = Command::new(binary())
        .args(["config", "check", "--output", "json", "--config"])
        .arg(&file)
        .output()
        .expect("transom runs");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    let rows: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let port = rows
        .as_array()
        .expect("rows")
        .iter()
        .find(|row| row["key"] == "discovery.port")
        .expect("a row for it");
    assert_eq!(port["value"], "53");
    assert!(
        port["from"]
            .as_str()
            .is_some_and(|from| from.ends_with("transom.toml")),
        "{port}"
    );
}

/// TOML blocks of `docs/plugins`: from the page about the manifest a manifest with every key at its
/// default, and tests for each world; from the page for operators a plan for each rollout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifest_of_the_plugins_pages_is_admitted() {
    let pages = ["manifest.md", "operators.md"].map(|name| {
        let page = examples().join("../docs/plugins").join(name);
        fs::read_to_string(page).expect("the page")
    });
    let page = pages.concat();
    let blocks: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let block = |sign: &str| {
        let found: Vec<&&str> = blocks.iter().filter(|block| block.contains(sign)).collect();
        let [only] = found[..] else {
            panic!("{sign}: {found:?}");
        };
        *only
    };
    let (manifest, tests) = (block("[grants]"), block("[[self-test]]"));
    let tests: Vec<&str> = tests.split_inclusive("\n\n").collect();
    // The manifest with the key `rollout` of this plan, and the plan's table.
    let plan = |table: &str| {
        let (key, table) = block(table).split_once("\n\n").expect("a key and a table");
        let with_key = manifest.replace("rollout = \"immediate\"", key);
        // No calls are recorded here, so that `reject` would not admit the component.
        (with_key, table.replace("\"reject\"", "\"admit\""))
    };
    let site = Site::start().await;
    for (name, world, test, table, outcome) in [
        (
            "check-http",
            "check-probe",
            tests[0].to_owned(),
            "[shadow]",
            "shadowing",
        ),
        (
            "attributes",
            "attribute-matcher",
            tests[1..3].concat(),
            "[canary]",
            "canary",
        ),
        (
            "events",
            "event-filter",
            tests[3].to_owned(),
            "[replay]",
            "admitted",
        ),
    ] {
        let (manifest, plan) = plan(table);
        let manifest = manifest.replace("world = \"check-probe\"", &format!("world = \"{world}\""));
        let plugin = Plugin {
            manifest: format!("{manifest}\n{plan}\n{test}"),
            ..Plugin::first_party(name)
        };
        plugin.install(&site.plugins(), name);
        site.rescan().await;
        let url = site.admin(&format!("/v1/plugins/{name}"));
        let status = site.get(&url).await.expect("a status");
        assert_eq!(status["refusal"], Value::Null, "{status}");
        let history = site.get(&format!("{url}/history")).await.expect("records");
        let newest = &history["records"][0];
        assert_eq!(
            (&newest["sequence"], &newest["outcome"]),
            (&Value::from(2), &Value::from(outcome)),
            "{name} was admitted again: {history}"
        );
    }
    site.cluster.stop_after(site.daemon);
}
