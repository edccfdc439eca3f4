//! The plugin directory `clients/cluster-cli/fw`, with the published command line as pip installs
//! it, and without it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use transom_testkit::free_port;
use transom_testkit::zookeeper::{self, ZooKeeper};
use transom_tests::airflow::{output, program, root};
use transom_tests::installed;

use super::stand_in::{
    CONFIG, Cluster, FinishedCommand, LOGIN, Response, STATUS, Server, VERSION, frameworks, master,
};

/// The folder where `cargo xtask test` installs the published command line: `TRANSOM_CLUSTER_CLI`,
/// or next to the build.
fn environment() -> PathBuf {
    std::env::var_os("TRANSOM_CLUSTER_CLI").map_or_else(|| installed("python/cluster-cli"), PathBuf::from)
}

fn plugin() -> PathBuf {
    root().join("clients/cluster-cli/fw")
}

/// Writes a configuration that lists the plugin, with these additional lines.
fn configure(cluster: &Cluster, lines: &str) {
    cluster.write(&format!(
        "plugins = [\"{}\"]\n[master]\naddress = \"{}\"\nprincipal = \"ops\"\nsecret = \"master\"\n{lines}",
        plugin().display(),
        cluster.master.address
    ));
}

fn start() -> Cluster {
    let cluster = Cluster::start();
    configure(&cluster, "[fw.fw]\nprincipal = \"user\"\nsecret = \"pass\"\n");
    cluster
}

/// Runs the published program with these arguments.
fn mesos(cluster: &Cluster, words: &[&str]) -> FinishedCommand {
    let mut command = program(&environment(), cluster.home.path(), "mesos-cli");
    command.args(words).output().expect("it runs").into()
}

/// Runs its command group `fw` with these arguments.
fn within_published_program(cluster: &Cluster, words: &[&str]) -> FinishedCommand {
    mesos(cluster, &[&["fw"], words].concat())
}

/// Runs the plugin without the published program, as on a Python version that this program does not
/// support.
fn without_published_program(cluster: &Cluster, words: &[&str]) -> FinishedCommand {
    let mut command = Command::new(environment().join("bin/python"));
    command
        // The packages of the environment are not visible.
        .args(["-I", "-S", "-B"])
        .arg(plugin())
        .args(words)
        .env_clear()
        .env("HOME", cluster.home.path())
        .stdin(Stdio::null());
    command.output().expect("it runs").into()
}

/// Both ways to run a command.
const INVOCATIONS: &[fn(&Cluster, &[&str]) -> FinishedCommand] =
    &[within_published_program, without_published_program];

#[test]
fn plugin_of_the_published_command_line_sends_the_requests_and_prints_the_answers() {
    let cluster = start();
    let status = format!("{STATUS}\n");
    let both = format!("{STATUS}\nok\n");
    let version = format!("{VERSION}\n");
    let cases: [(&[&str], &[&str], &str); 14] = [
        (&["orchconfig", "fw"], &["GET server/config"], CONFIG),
        (&["kubeconfig", "c-0001"], &["GET server/config"], CONFIG),
        (&["version", "fw"], &["GET server/version"], &version),
        (&["status", "-m", "fw"], &["GET status/fw"], &status),
        (&["status", "--m3s", "fw"], &["GET status/fw"], &status),
        (&["status", "-k", "fw"], &["GET status/orch"], "ok\n"),
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
            &["scale", "-e", "fw", "3"],
            &["GET kvstore/scale/3"],
            "Scale up/down kvstore\n-1\n",
        ),
        (
            &["scale", "--etcd", "fw", "3"],
            &["GET kvstore/scale/3"],
            "Scale up/down kvstore\n-1\n",
        ),
        (
            &["scale", "-m", "fw", "3"],
            &["GET server/scale/3"],
            "Scale up/down manager\n-1\n",
        ),
        (&["scale", "fw", "3"], &[], "Nothing to scale\n"),
        (
            &["cluster", "fw", "stop"],
            &["PUT cluster/shutdown"],
            "Shutdown Kubernetes Cluster\n\n",
        ),
    ];
    for (words, requests, printed) in cases {
        for run in INVOCATIONS {
            let finished = run(&cluster, words);
            assert_eq!(
                (finished.code, finished.out.as_str(), finished.err.as_str()),
                (Some(0), printed, ""),
                "{words:?}"
            );
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
    }
}

#[test]
fn plugin_lists_frameworks_in_the_columns_of_the_published_command_line() {
    let cluster = start();
    let url = format!("http://{}", cluster.api.address);
    let width = url.len() + 2;
    let row =
        |id: &str, active: &str, url: &str, name: &str| format!("{id:8}{active:8}{url:width$}{name:9}\n");
    let head = row("ID", "Active", "WebUI", "Name");
    let rows = [
        row("c-0001", "True", &url, "fw"),
        row("c-0002", "False", &url, "M3S-old"),
        row("c-0005", "True", &url, "fw-two"),
        row("c-0006", "True", &url, "fw-two"),
        row("c-0007", "True", "", "fw-bare"),
    ];
    let all = head.clone() + &rows.concat();
    let active = head + &[&rows[..1], &rows[2..]].concat().concat();
    for (words, expected) in [
        (&["list"][..], &active),
        (&["list", "-a"], &all),
        (&["list", "--all"], &all),
    ] {
        for run in INVOCATIONS {
            let finished = run(&cluster, words);
            assert_eq!(
                (finished.code, finished.out.as_str()),
                (Some(0), expected.as_str()),
                "{words:?}: {finished:?}"
            );
            assert_eq!(cluster.master.calls(), ["GET /master/frameworks/"]);
        }
    }
    configure(&cluster, "[fw.prod]\n");
    let finished = mesos(&cluster, &["fw", "list"]);
    assert!(finished.out.contains("c-0004"), "{finished:?}");
}

#[test]
fn plugins_help_and_version_are_those_of_the_published_command_line() {
    let cluster = start();
    for words in [&["help", "fw"][..], &["fw", "--help"], &["fw", "-h"]] {
        let finished = mesos(&cluster, words);
        assert_eq!(finished.code, Some(0), "{finished:?}");
        for command in [
            "cluster",
            "kubeconfig",
            "list",
            "orchconfig",
            "scale",
            "status",
            "version",
        ] {
            assert!(
                finished.out.contains(&format!("\n  {command} ")),
                "{words:?} has no {command}: {}",
                finished.out
            );
        }
    }
    let finished = mesos(&cluster, &["fw", "--version"]);
    assert_eq!((finished.code, finished.out.as_str()), (Some(0), "0.1.0\n"));
    let finished = mesos(&cluster, &["fw", "status", "-h"]);
    assert!(
        finished.code == Some(0) && finished.out.contains("-k --orch") && finished.out.contains("-m --fw"),
        "{finished:?}"
    );
    // The published program's parser requires options before arguments; ours does not.
    let finished = mesos(&cluster, &["fw", "status", "fw", "-m"]);
    assert!(
        finished.code == Some(1) && finished.err.contains("mesos fw status [options]"),
        "{finished:?}"
    );
    assert_eq!(
        without_published_program(&cluster, &["status", "fw", "-m"]).code,
        Some(0)
    );
}

#[test]
fn plugin_is_available_under_the_older_name_through_a_link() {
    let cluster = start();
    let link = cluster.home.path().join("m3s");
    std::os::unix::fs::symlink(plugin(), &link).expect("linked");
    let text = std::fs::read_to_string(cluster.file()).expect("read");
    cluster.write(&text.replace(&plugin().display().to_string(), &link.display().to_string()));
    let finished = mesos(&cluster, &["m3s", "kubeconfig", "fw"]);
    assert_eq!(
        (finished.code, finished.out.as_str()),
        (Some(0), CONFIG),
        "{finished:?}"
    );
}

#[test]
fn plugin_failures_have_exit_code_1_status_message_and_next_step() {
    let cluster = start();
    let check = |words: &[&str], parts: &[&str]| {
        for run in INVOCATIONS {
            let finished = run(&cluster, words);
            assert_eq!(
                (finished.code, finished.out.as_str()),
                (Some(1), ""),
                "{words:?}: {finished:?}"
            );
            for part in parts {
                assert!(
                    finished.err.contains(part),
                    "{words:?}: no {part:?} in {finished:?}"
                );
            }
            assert!(
                !finished.err.contains("Traceback") && !finished.err.contains(".."),
                "{finished:?}"
            );
        }
    };
    let closed = format!("http://127.0.0.1:{}", free_port());
    check(
        &["cluster", "fw", "foo"],
        &["unknown cluster operation 'foo'", "restart"],
    );
    check(&["scale", "-a", "fw", "many"], &["'many'"]);
    check(&["version", "nope"], &["'nope'", "fw, M3S-old"]);
    check(&["version", "fw-two"], &["2 frameworks", "c-0005, c-0006"]);
    check(&["version", "fw-bare"], &["webui_url"]);
    for (response, parts) in [
        (
            Response::of(401, ""),
            &["401", "[fw.fw]", "AUTH_USERNAME", "config.toml"][..],
        ),
        (Response::of(404, ""), &["404"]),
        (Response::of(405, ""), &["405"]),
        (
            Response::of(422, r#"{"message": "above max_scale"}"#),
            &["422", "above max_scale"],
        ),
        (
            Response::of(500, "broken \u{1b}[31m"),
            &["500", "broken \\x1b[31m"],
        ),
        (
            Response(503, "Retry-After: 7".to_owned(), String::new()),
            &["503", "in 7 s"],
        ),
        (
            Response(302, "Location: /login".to_owned(), String::new()),
            &["302"],
        ),
    ] {
        cluster.api.set_answer(move |_| response.clone());
        check(&["orchconfig", "fw"], parts);
        check(&["cluster", "fw", "stop"], parts);
    }
    let list = frameworks(&closed).to_string();
    cluster.master.set_answer(move |request| master(request, &list));
    check(&["version", "fw"], &["cannot be reached", &closed]);
    cluster.master.set_answer(|_| Response::of(401, ""));
    check(&["list"], &["401", "[master]"]);
    cluster.master.set_answer(|_| Response::of(200, "[]"));
    check(&["list"], &["did not return a list of frameworks"]);
    cluster.write(&format!("plugins = [\"{}\"]\n", plugin().display()));
    check(&["list"], &["config.toml", "[master]", "`address`"]);
}

#[test]
fn plugin_accepts_common_credentials_and_follows_a_standby_to_its_leader() {
    let cluster = start();
    let api = cluster.api.address;
    let standby = Server::start(move |request| {
        let path = request.call.split(' ').nth(1).unwrap_or_default();
        Response(307, format!("Location: http://{api}{path}"), String::new())
    });
    let list = frameworks(&format!("http://{}", standby.address)).to_string();
    cluster.master.set_answer(move |request| master(request, &list));
    for section in ["fw", "m3s", "m3s.fw"] {
        configure(
            &cluster,
            &format!("[{section}]\nprincipal = \"user\"\nsecret = \"pass\"\n"),
        );
        for run in INVOCATIONS {
            let finished = run(&cluster, &["cluster", "fw", "start"]);
            assert_eq!(finished.code, Some(0), "{section}: {finished:?}");
        }
        assert_eq!((standby.calls().len(), cluster.api.calls().len()), (2, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_finds_the_leading_master_in_zookeeper() {
    let zookeeper = ZooKeeper::start().await;
    let cluster = Cluster::start();
    let client = zookeeper.client().await;
    zookeeper::create_path(&client, "/plugin", zookeeper::Acls::anyone_all()).await;
    zookeeper::register(&client, "/plugin", cluster.master.address.port()).await;
    cluster.write(&format!(
        "plugins = [\"{}\"]\n[master]\nprincipal = \"ops\"\nsecret = \"master\"\n\
         [master.zookeeper]\naddresses = [\"{}\"]\npath = \"/plugin\"\n",
        plugin().display(),
        zookeeper.address()
    ));
    let finished = tokio::task::spawn_blocking(move || {
        let mut with_packages = Command::new(environment().join("bin/python"));
        with_packages.arg("-B").arg(plugin()).arg("list").env_clear();
        with_packages.env("HOME", cluster.home.path());
        let with_packages = with_packages.output().expect("it runs").into();
        [
            within_published_program(&cluster, &["list"]),
            with_packages,
            without_published_program(&cluster, &["list"]),
        ]
    });
    let [published, with_packages, bare] = finished.await.expect("they end");
    for finished in [published, with_packages] {
        assert!(
            finished.code == Some(0) && finished.out.contains("c-0001"),
            "{finished:?}"
        );
    }
    assert!(
        bare.code == Some(1) && bare.err.contains("pip install kazoo"),
        "{bare:?}"
    );
}

#[test]
fn plugin_warns_about_an_unverified_certificate_and_rejects_it_if_verification_is_required() {
    let cluster = Cluster::start_with_tls();
    let login = "principal = \"user\"\nsecret = \"pass\"\n";
    for (lines, code, part) in [
        (format!("[fw]\n{login}"), 0, "`ssl_verify = true` in [fw]"),
        (
            format!("[fw]\nssl_verify = true\n{login}"),
            1,
            "certificate verify failed: ",
        ),
    ] {
        configure(&cluster, &lines);
        for run in INVOCATIONS {
            let finished = run(&cluster, &["status", "fw"]);
            assert_eq!(finished.code, Some(code), "{finished:?}");
            assert_eq!(finished.err.matches(part).count(), 1, "{finished:?}");
        }
    }
}

#[test]
fn plugin_passes_ruff_mypy_and_pytest() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = root().join("clients/cluster-cli");
    let here = |name: &str| {
        let mut command = program(&environment(), home.path(), name);
        command.current_dir(&dir);
        command
    };
    output(here("ruff").args(["check", "--no-cache", "."]));
    output(here("ruff").args(["format", "--check", "--no-cache", "."]));
    output(here("mypy").arg("--cache-dir").arg(home.path().join("cache")));
    output(here("python").args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]));
}
