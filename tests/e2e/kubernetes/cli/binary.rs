//! The commands of the binary.

use serde_json::{Value, json};
use transom_testkit::zookeeper::{self, ZooKeeper};

use super::stand_in::{CONFIG, Cluster, LOGIN, MASTER_LOGIN, STATUS, Server, VERSION, frameworks, master};

/// The cells of a table.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[test]
fn list_shows_active_frameworks_of_this_kind_and_all_of_them_with_an_option() {
    let cluster = Cluster::start();
    let url = format!("http://{}", cluster.api.address);
    let expected = |rows: &[(&str, &str, &str)]| {
        let mut table = vec![vec!["ID", "Active", "WebUI", "Name"]];
        table.extend(rows.iter().map(|(id, active, name)| match *name {
            "fw-bare" => vec![*id, active, name],
            _ => vec![*id, active, url.as_str(), name],
        }));
        table
            .into_iter()
            .map(|row| row.into_iter().map(str::to_owned).collect())
            .collect::<Vec<Vec<_>>>()
    };
    let active = [
        ("c-0001", "True", "fw"),
        ("c-0005", "True", "fw-two"),
        ("c-0006", "True", "fw-two"),
        ("c-0007", "True", "fw-bare"),
    ];
    assert_eq!(cells(&cluster.stdout_of(&["list"])), expected(&active));
    // The command sends one request, to the master.
    let requests = cluster.master.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].login.as_deref(), Some(MASTER_LOGIN));
    assert_eq!(cluster.api.calls(), Vec::<String>::new());

    let mut all = active.to_vec();
    all.insert(1, ("c-0002", "False", "M3S-old"));
    for words in [["list", "-a"], ["list", "--all"]] {
        assert_eq!(cells(&cluster.stdout_of(&words)), expected(&all), "{words:?}");
    }
    // A framework with a section is listed, whichever of the two section names is used.
    for section in ["fw", "m3s"] {
        cluster.configure(&format!("[{section}.prod]\n"));
        let mut named = active.to_vec();
        named.insert(1, ("c-0004", "True", "prod"));
        assert_eq!(
            cells(&cluster.stdout_of(&["list"])),
            expected(&named),
            "{section}"
        );
    }
    let document: Value =
        serde_json::from_str(&cluster.stdout_of(&["list", "--output", "json"])).expect("JSON");
    assert_eq!(
        document["frameworks"][0],
        json!({"id": "c-0001", "name": "fw", "active": true, "webui_url": url})
    );
}

#[test]
fn commands_send_their_requests_and_print_the_answers() {
    let cluster = Cluster::start();
    let status = format!("{STATUS}\n");
    let both = format!("{STATUS}\nok\n");
    let version = format!("{VERSION}\n");
    let cases: [(&[&str], &[&str], &str); 24] = [
        (&["orchconfig", "fw"], &["GET server/config"], CONFIG),
        (&["kubeconfig", "c-0001"], &["GET server/config"], CONFIG),
        (&["version", "fw"], &["GET server/version"], &version),
        (&["status", "-m", "fw"], &["GET status/fw"], &status),
        (&["status", "fw", "--fw"], &["GET status/fw"], &status),
        (&["status", "--m3s", "fw"], &["GET status/fw"], &status),
        (&["status", "fw", "-k"], &["GET status/orch"], "ok\n"),
        (&["status", "--orch", "fw"], &["GET status/orch"], "ok\n"),
        (&["status", "--kubernetes", "fw"], &["GET status/orch"], "ok\n"),
        (
            &["status", "-k", "-m", "fw"],
            &["GET status/fw", "GET status/orch"],
            &both,
        ),
        (&["status", "fw"], &["GET status/fw", "GET status/orch"], &both),
        (
            &["scale", "-a", "fw", "3"],
            &["GET agent/scale/3"],
            "Scale up/down agent\n2\n",
        ),
        (
            &["scale", "fw", "3", "--agent"],
            &["GET agent/scale/3"],
            "Scale up/down agent\n2\n",
        ),
        (
            &["scale", "-e", "fw", "3"],
            &["GET kvstore/scale/3"],
            "Scale up/down kvstore\n-1\n",
        ),
        (
            &["scale", "--kvstore", "fw", "3"],
            &["GET kvstore/scale/3"],
            "Scale up/down kvstore\n-1\n",
        ),
        (
            &["scale", "fw", "--etcd", "3"],
            &["GET kvstore/scale/3"],
            "Scale up/down kvstore\n-1\n",
        ),
        (
            &["scale", "-m", "fw", "3"],
            &["GET server/scale/3"],
            "Scale up/down manager\n-1\n",
        ),
        (
            &["scale", "--manager", "fw", "3"],
            &["GET server/scale/3"],
            "Scale up/down manager\n-1\n",
        ),
        (
            &["scale", "-am", "fw", "3"],
            &["GET server/scale/3", "GET agent/scale/3"],
            "Scale up/down manager\n-1\nScale up/down agent\n2\n",
        ),
        (&["scale", "fw", "3"], &[], "Nothing to scale\n"),
        (
            &["cluster", "fw", "stop"],
            &["PUT cluster/shutdown"],
            "Shutdown Kubernetes Cluster\n",
        ),
        (
            &["cluster", "fw", "start"],
            &["PUT cluster/start"],
            "Start Kubernetes Cluster\n",
        ),
        (
            &["cluster", "fw", "restart"],
            &["PUT cluster/restart"],
            "Restart Kubernetes Cluster\n",
        ),
        (&["list", "--output", "json"], &[], ""),
    ];
    for group in ["fw", "m3s"] {
        for (words, requests, printed) in &cases {
            assert_requests(&cluster, &[&[group], *words].concat(), requests, printed);
        }
    }
}

/// Runs a command, which must succeed, send these requests with the credentials, and print this
/// text.
fn assert_requests(cluster: &Cluster, words: &[&str], requests: &[&str], printed: &str) {
    let finished = cluster.run(words);
    assert_eq!(
        (finished.code, finished.err.as_str()),
        (Some(0), ""),
        "{words:?}: {finished:?}"
    );
    if words[1] != "list" {
        assert_eq!(finished.out, printed, "{words:?}");
    }
    let sent = cluster.api.requests();
    let calls: Vec<_> = sent
        .iter()
        .map(|one| one.call.replace("/api/fw/v0/", ""))
        .collect();
    assert_eq!(calls, requests, "{words:?}");
    assert!(
        sent.iter().all(|one| one.login.as_deref() == Some(LOGIN)),
        "{sent:?}"
    );
}

#[test]
fn json_output_is_one_document() {
    let cluster = Cluster::start();
    for (words, expected) in [
        (
            &["status", "fw"][..],
            json!({"fw": serde_json::from_str::<Value>(STATUS).expect("JSON"), "orch": "ok"}),
        ),
        (&["status", "-k", "fw"], json!({"orch": "ok"})),
        (
            &["version", "fw"],
            json!({"Version": "v1.30.0", "Framework": "0.1.0"}),
        ),
        (
            &["scale", "-a", "-e", "fw", "3"],
            json!({"scaled": [
                {"service": "kvstore", "count": 3, "difference": -1},
                {"service": "agent", "count": 3, "difference": 2},
            ]}),
        ),
        (&["scale", "fw", "3"], json!({"scaled": []})),
        (
            &["cluster", "fw", "stop"],
            json!({"operation": "shutdown", "answer": ""}),
        ),
    ] {
        let text = cluster.stdout_of(&[words, &["--output", "json"]].concat());
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(document, expected, "{words:?}");
    }
}

#[test]
fn help_and_version_exist_for_both_names_and_for_each_command() {
    let cluster = Cluster::start();
    let commands = ["orchconfig", "list", "scale", "status", "version", "cluster"];
    for words in [
        &["help", "fw"][..],
        &["help", "m3s"],
        &["fw", "--help"],
        &["m3s", "-h"],
        &["man", "fw"],
    ] {
        let finished = cluster.run(words);
        assert_eq!(finished.code, Some(0), "{words:?}: {finished:?}");
        for command in commands {
            assert!(
                finished.out.contains(command),
                "{words:?} has no {command}: {}",
                finished.out
            );
        }
    }
    for command in commands {
        let help = cluster.stdout_of(&[command, "-h"]);
        assert!(help.contains("Usage: transom fw"), "{help}");
        let version = cluster.stdout_of(&[command, "--version"]);
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    }
    assert!(
        cluster
            .stdout_of(&["--version"])
            .contains(env!("CARGO_PKG_VERSION"))
    );
    let help = cluster.stdout_of(&["status", "-h"]);
    for option in ["-k", "--orch", "kubernetes", "-m", "--fw", "m3s"] {
        assert!(help.contains(option), "no {option}: {help}");
    }
    for (words, expected) in [
        (&["fw", "orch"][..], "orchconfig"),
        (&["fw", "scale", "--kv"], "--kvstore"),
    ] {
        let mut completion = cluster.command(&["--", "transom"]);
        completion.args(words).env("TRANSOM_COMPLETE", "fish");
        let output = completion.output().expect("transom runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{words:?}: {text}");
    }
    assert_eq!(cluster.master.calls(), Vec::<String>::new());
}

#[test]
fn configuration_file_is_read_from_the_path_in_a_variable() {
    let cluster = Cluster::start();
    let elsewhere = cluster.home.path().join("other.toml");
    std::fs::copy(cluster.file(), &elsewhere).expect("copied");
    cluster.write("[master]\naddress = \"127.0.0.1:1\"\n");
    for (variables, code) in [
        (&[("MESOS_CLI_CONFIG", &elsewhere)][..], 0),
        (
            &[
                ("CLUSTER_CLI_CONFIG", &elsewhere),
                ("MESOS_CLI_CONFIG", &cluster.file()),
            ],
            0,
        ),
        (
            &[
                ("CLUSTER_CLI_CONFIG", &cluster.file()),
                ("MESOS_CLI_CONFIG", &elsewhere),
            ],
            1,
        ),
        (&[], 1),
    ] {
        let mut command = cluster.command(&["fw", "version", "fw"]);
        let finished = command
            .envs(variables.iter().copied())
            .output()
            .expect("transom runs");
        assert_eq!(finished.status.code(), Some(code), "{variables:?}: {finished:?}");
    }
}

#[test]
fn credentials_of_the_resolved_name_precede_those_of_every_framework() {
    let cluster = Cluster::start();
    let section =
        |name: &str, secret: &str| format!("[{name}]\nprincipal = \"user\"\nsecret = \"{secret}\"\n");
    for (sections, words) in [
        (
            section("fw.fw", "pass") + &section("fw", "other"),
            ["version", "c-0001"],
        ),
        (
            section("m3s.fw", "pass") + &section("fw", "other"),
            ["version", "fw"],
        ),
        (
            section("fw", "pass") + &section("fw.prod", "other"),
            ["version", "fw"],
        ),
        (section("m3s", "pass"), ["version", "prod"]),
    ] {
        cluster.configure(&sections);
        cluster.stdout_of(&words);
    }
    cluster.configure(&(section("fw.fw", "pass") + &section("m3s.fw", "other")));
    let finished = cluster.run(&["fw", "version", "fw"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(
        finished.err.contains("[fw.fw]") && finished.err.contains("[m3s.fw]"),
        "{finished:?}"
    );
}

#[test]
fn redirects_of_standbys_lead_to_the_leader() {
    let cluster = Cluster::start();
    let to = |server: &Server| {
        let address = server.address;
        move |request: &super::stand_in::Request| {
            let path = request.call.split(' ').nth(1).unwrap_or_default();
            super::stand_in::Response(307, format!("Location: http://{address}{path}"), String::new())
        }
    };
    let standby = Server::start(to(&cluster.api));
    let list = frameworks(&format!("http://{}", standby.address)).to_string();
    cluster.master.set_answer(move |request| master(request, &list));
    let follower = Server::start(to(&cluster.master));
    cluster.write(&format!(
        "[master]\naddress = \"http://{}\"\nprincipal = \"ops\"\nsecret = \"master\"\n\
         [fw]\nprincipal = \"user\"\nsecret = \"pass\"\n",
        follower.address
    ));
    assert_eq!(
        cluster.stdout_of(&["cluster", "fw", "stop"]),
        "Shutdown Kubernetes Cluster\n"
    );
    assert_eq!((standby.calls().len(), cluster.api.calls().len()), (1, 1));
    assert_eq!((follower.calls().len(), cluster.master.calls().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leading_master_is_found_in_zookeeper() {
    let zookeeper = ZooKeeper::start().await;
    let cluster = Cluster::start();
    let client = zookeeper.client().await;
    let path = "/fw-cli";
    zookeeper::create_path(&client, path, zookeeper::Acls::anyone_all()).await;
    zookeeper::register(&client, path, cluster.master.address.port()).await;
    cluster.write(&format!(
        "[master]\nprincipal = \"ops\"\nsecret = \"master\"\n\
         [master.zookeeper]\naddresses = [\"{}\"]\npath = \"{path}\"\n",
        zookeeper.address()
    ));
    let finished = tokio::task::spawn_blocking(move || cluster.stdout_of(&["list"]))
        .await
        .expect("it ends");
    assert!(finished.contains("c-0001"), "{finished}");
}
