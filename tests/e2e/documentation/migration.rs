//! The configuration steps of the pages in `docs/migration`, run as printed on files of the former
//! programs.
//!
//! Other tests cover the import of state: `apps_import` and `kubernetes_*`.

use std::fs;
use std::path::Path;

use serde_json::Value;
use transom_tests::readme::blocks;

use super::shell;

/// Runs the blocks of the page that import or check a configuration, and compares the resulting
/// settings.
fn walk(
    page: &str,
    dir: &Path,
    file: Option<(&str, &str)>,
    variables: &[(&str, &str)],
    expected: &[(&str, &str)],
) {
    let steps: Vec<&str> = blocks(page)
        .into_iter()
        .filter(|block| block.contains("transom config "))
        .collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
    let mut step = steps[0].to_owned();
    if let Some((printed, own)) = file {
        assert!(step.contains(printed), "{printed} in {step}");
        step = step.replace(printed, own);
    }
    // The command that starts the daemon is left out: it needs free ports and a master, and other
    // tests cover it.
    let lines: Vec<&str> = step
        .lines()
        .filter(|line| line.trim() != "transom serve --config transom.toml")
        .collect();
    shell(dir, &lines.join("\n"), variables);
    let check = "transom config check --config transom.toml --output json";
    let rows: Vec<Value> = serde_json::from_str(&shell(dir, check, variables)).expect("JSON");
    for (key, value) in expected {
        let row = rows.iter().find(|row| row["key"] == *key);
        assert_eq!(
            row.unwrap_or_else(|| panic!("no {key}"))["value"],
            *value,
            "{key}"
        );
    }
}

#[test]
fn steps_from_marathon_make_a_configuration_of_its_files_and_variables() {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = dir.path().join("marathon");
    fs::create_dir(&folder).expect("made");
    for (name, content) in [
        ("master", "zk://10.0.0.1:2181/mesos"),
        ("zk", "zk://10.0.0.1:2181/marathon"),
        ("mesos_role", "prod"),
        ("http_port", "8081"),
    ] {
        fs::write(folder.join(name), content).expect("written");
    }
    walk(
        include_str!("../../../docs/migration/marathon.md"),
        dir.path(),
        Some(("/etc/marathon/conf", "marathon")),
        &[("MARATHON_FRAMEWORK_NAME", "shop")],
        &[
            ("apps.port", "8081"),
            ("apps.role", "\"prod\""),
            ("apps.framework_name", "\"shop\""),
            ("cluster.master", "\"zk://10.0.0.1:2181/mesos\""),
        ],
    );
}

#[test]
fn steps_from_mesos_dns_make_a_configuration_of_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = r#"{"zk": "zk://10.0.0.1:2181/mesos", "masters": ["10.0.0.1:5050"], "refreshSeconds": 60,
        "ttl": 30, "domain": "mesos", "port": 53, "resolvers": ["10.0.0.53"], "timeout": 5, "httpon": true,
        "dnson": true, "httpport": 8123, "externalon": true, "listener": "10.0.0.7", "IPSources": ["netinfo", "host"]}"#;
    fs::write(dir.path().join("config.json"), file).expect("written");
    walk(
        include_str!("../../../docs/migration/mesos-dns.md"),
        dir.path(),
        None,
        &[],
        &[
            ("discovery.port", "53"),
            ("discovery.ttl", "30"),
            ("discovery.resolvers", "[\"10.0.0.53\"]"),
            ("discovery.listener", "\"10.0.0.7\""),
            ("cluster.master", "\"zk://10.0.0.1:2181/mesos\""),
        ],
    );
}

#[test]
fn steps_from_the_airflow_provider_make_a_configuration_of_airflow_cfg() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = "[core]\nexecutor = avmesos_airflow_provider.executors.mesos_executor.MesosExecutor\n\n[mesos]\n\
                mesos_ssl = False\nmaster = 10.0.0.1:5050\nframework_name = Airflow\ncheckpoint = True\n\
                api_username = user\napi_password = hunter2\n";
    fs::write(dir.path().join("airflow.cfg"), file).expect("written");
    walk(
        include_str!("../../../docs/migration/airflow.md"),
        dir.path(),
        Some(("/etc/airflow/airflow.cfg", "airflow.cfg")),
        &[],
        &[
            ("workflow.framework_name", "\"Airflow\""),
            ("workflow.checkpoint", "true"),
            ("workflow.api_username", "\"user\""),
            ("workflow.api_password", "\"********\""),
            ("workflow.master", "\"10.0.0.1:5050\""),
        ],
    );
}

#[test]
fn configuration_of_the_page_about_m3s_is_accepted_with_the_variables_of_m3s() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = include_str!("../../../docs/migration/m3s.md");
    let (_, rest) = page.split_once("```toml\n").expect("a configuration");
    let (configuration, _) = rest.split_once("```").expect("its end");
    fs::write(dir.path().join("transom.toml"), configuration).expect("written");
    walk(
        page,
        dir.path(),
        None,
        &[("K3S_SERVER_COUNT", "1"), ("K3S_AGENT_COUNT", "3")],
        &[
            ("kubernetes.framework_name", "\"m3s\""),
            ("kubernetes.role", "\"m3s\""),
            ("kubernetes.orch_agent_count", "3"),
            ("store.database", "2"),
        ],
    );
}
