//! Discovery while a cluster manager restarts and loses an agent, from an operator's view: the log,
//! `/ready` and the metrics of the real binary, and the DNS answers during the fault.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_testkit::{eventually, free_ports};
use transom_tests::process::{Transom, binary};
use transom_tests::site::{Cluster, addresses, copy_components};
use transom_tests::{dns, http};

/// A cluster manager and a daemon with apps and discovery. Full comparisons with the master's state
/// are an hour apart, so that earlier updates must come from the event stream.
struct Site {
    cluster: Cluster,
    daemon: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    dir: TempDir,
}

impl Site {
    async fn start(flags: &[&str]) -> Site {
        let dir = tempfile::tempdir().unwrap();
        copy_components(&dir.path().join("plugins"));
        let cluster = Cluster::start_with(dir.path(), flags);
        let mut masters = cluster.master.to_string();
        if let Some(at) = flags.iter().position(|flag| *flag == "--standby") {
            masters = format!("{masters},{}", flags[at + 1]);
        }
        let config = format!(
            "[log]\nformat = \"json\"\nlevel = \"info\"\n\
             [cluster]\nmaster = \"{masters}\"\n\
             [store]\nserver = \"file:{}\"\n\
             [plugins]\ndir = \"plugins\"\n\
             [apps]\nport = 0\n\
             [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_on = false\nrefresh_seconds = 3600\n\
             [admin]\nport = 0\n",
            dir.path().join("store").display(),
        );
        fs::write(dir.path().join("transom.toml"), config).unwrap();
        let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
        let addresses = addresses(&mut daemon);
        let site = Site {
            cluster,
            daemon,
            addresses,
            dir,
        };
        site.wait_for_source("stream").await;
        site
    }

    async fn text(&self, path: &str) -> Result<String, String> {
        let url = format!("http://{}{path}", self.addresses["admin"]);
        let answer = http().get(url).send().await.map_err(|error| error.to_string())?;
        answer.text().await.map_err(|error| error.to_string())
    }

    /// The value of a metric, named with its labels.
    async fn metric(&self, name: &str) -> u64 {
        let metrics = self.text("/metrics").await.unwrap();
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {name} in {metrics}"))
            .parse()
            .unwrap()
    }

    /// Waits until discovery is ready with records from this source.
    async fn wait_for_source(&self, source: &str) {
        eventually(&format!("records from {source}"), || async {
            let ready: Value =
                serde_json::from_str(&self.text("/ready").await?).map_err(|error| error.to_string())?;
            let discovery = &ready["services"]["discovery"];
            if discovery["ready"] == true && discovery["source"] == source {
                Ok(())
            } else {
                Err(ready.to_string())
            }
        })
        .await;
    }

    async fn addresses_of(&self, name: &str) -> Vec<String> {
        let answer = dns::ask(self.addresses["dns"], name, RecordType::A)
            .await
            .unwrap();
        let mut addresses: Vec<String> = answer.addresses.iter().map(ToString::to_string).collect();
        addresses.sort();
        addresses
    }

    async fn wait_for_answer(&self, name: &str, expected: &[&str]) {
        eventually(&format!("{name} at {expected:?}"), || async {
            let found = self.addresses_of(name).await;
            if found == expected {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// The number of the daemon's log entries of this level that contain this text.
    fn count_log_entries(&self, level: &str, text: &str) -> usize {
        let entries = self.daemon.output();
        let entries = entries
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        entries
            .filter(|entry| entry["level"] == level && entry.to_string().contains(text))
            .count()
    }
}

const AGENTS: &[&str] = &["127.0.0.1", "127.0.0.2", "127.0.0.3"];
const RECONNECTS: &str = "transom_discovery_reconnects_total";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_master_leads_to_no_polling_and_no_error() {
    let site = Site::start(&[]).await;
    site.wait_for_answer("slave.mesos.", AGENTS).await;
    // The end of the stream and every response are delayed by 0.7 s. The master therefore answers
    // the first reconnect with 404. Later requests reach it when its routes exist: it serves the
    // state document and answers calls with 503. On a slow machine the 404 may be missed; the
    // restart is then repeated.
    let mut restarts = 0;
    while restarts < 5 && site.count_log_entries("WARN", "answers 404 to") == 0 {
        restarts += 1;
        site.cluster.fault(&json!({"fault": "delay", "ms": 700})).await;
        let restart = json!({"fault": "restart-master", "starting_ms": 2000, "recovery_ms": 2000});
        site.cluster.fault(&restart).await;
        eventually("an end of the stream", || async {
            match site.count_log_entries("WARN", "lost the event stream") {
                lost if lost == restarts => Ok(()),
                _ => Err(site.text("/ready").await?),
            }
        })
        .await;
        eventually("the stream", || async {
            match site.metric(RECONNECTS).await {
                reconnects if reconnects == restarts as u64 => Ok(()),
                _ => Err(site.text("/ready").await?),
            }
        })
        .await;
        site.cluster.fault(&json!({"fault": "delay", "ms": 0})).await;
    }
    assert!(
        site.count_log_entries("WARN", "answers 404 to") > 0,
        "{}",
        site.daemon.output()
    );
    site.wait_for_source("stream").await;
    site.wait_for_answer("slave.mesos.", AGENTS).await;
    assert_eq!(
        site.metric("transom_discovery_source{source=\"stream\"}").await,
        1
    );
    assert_eq!(
        site.metric("transom_discovery_source{source=\"polling\"}").await,
        0
    );
    let output = site.daemon.output();
    assert_eq!(site.count_log_entries("WARN", "polling"), 0, "{output}");
    assert_eq!(site.count_log_entries("ERROR", ""), 0, "{output}");
    let followed = site.count_log_entries("INFO", "following the event stream");
    assert_eq!(followed, restarts + 1, "{output}");
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(Some(daemon));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_an_unreachable_agent_are_removed_and_return_with_it() {
    let site = Site::start(&["--agent-timeout", "1"]).await;
    site.wait_for_answer("slave.mesos.", AGENTS).await;
    let app = json!({
        "id": "/web", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 1,
        "constraints": [["hostname", "CLUSTER", "127.0.0.2"]],
        "unreachableStrategy": {"inactiveAfterSeconds": 3600, "expungeAfterSeconds": 7200},
    });
    let url = format!("http://{}/v2/apps", site.addresses["apps"]);
    let answer = http().post(url).json(&app).send().await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    site.wait_for_answer("web.marathon.mesos.", &["127.0.0.2"]).await;
    let agent = |fault: &str| json!({"fault": fault, "agent": "127.0.0.2"});
    site.cluster.fault(&agent("partition-agent")).await;
    site.wait_for_answer("slave.mesos.", &["127.0.0.1", "127.0.0.3"])
        .await;
    site.wait_for_answer("web.marathon.mesos.", &[]).await;
    site.cluster.fault(&agent("heal-agent")).await;
    site.wait_for_answer("slave.mesos.", AGENTS).await;
    site.wait_for_answer("web.marathon.mesos.", &["127.0.0.2"]).await;
    assert_eq!(site.metric("transom_discovery_resync_differences_total").await, 0);
    assert_eq!(site.metric(RECONNECTS).await, 0);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(Some(daemon));
}

/// The cluster manager fails over in the order of a real one. One agent returns only when the test lets
/// it: until then the running daemon keeps its records, and one that starts has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_of_the_master_empties_no_zone() {
    let standby = format!("127.0.0.1:{}", free_ports(1));
    let site = Site::start(&["--standby", &standby]).await;
    site.wait_for_answer("slave.mesos.", AGENTS).await;
    let app = json!({
        "id": "/web", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 3,
        "constraints": [["hostname", "UNIQUE"]],
    });
    let url = format!("http://{}/v2/apps", site.addresses["apps"]);
    let answer = http().post(url).json(&app).send().await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    site.wait_for_answer("web.marathon.mesos.", AGENTS).await;
    let of_agent = |fault: &str| json!({"fault": fault, "agent": AGENTS[2]});
    site.cluster.fault(&of_agent("partition-agent")).await;
    site.cluster.fault(&json!({"fault": "fail-over"})).await;
    let complete = async || {
        for name in ["slave.mesos.", "web.marathon.mesos."] {
            assert_eq!(
                site.addresses_of(name).await,
                AGENTS,
                "{name} during the failover"
            );
        }
    };
    eventually("the new leader's stream", || async {
        complete().await;
        match site.metric(RECONNECTS).await {
            0 => Err(site.text("/ready").await?),
            _ => Ok(()),
        }
    })
    .await;

    let late_dir = site.dir.path().join("late");
    fs::create_dir(&late_dir).unwrap();
    let config = format!(
        "[log]\nformat = \"json\"\nlevel = \"info\"\n[cluster]\nmaster = \"{},{standby}\"\n\
         [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_on = false\n\
         [admin]\nport = 0\n",
        site.cluster.master
    );
    fs::write(late_dir.join("transom.toml"), config).unwrap();
    let mut late = Transom::start(&late_dir, ["serve", "--config", "transom.toml"]);
    let late_addresses = addresses(&mut late);
    let ready = || async {
        let url = format!("http://{}/ready", late_addresses["admin"]);
        let answer = http().get(url).send().await.map_err(|error| error.to_string())?;
        answer.json::<Value>().await.map_err(|error| error.to_string())
    };
    eventually("the late daemon's reason", || async {
        complete().await;
        let ready = ready().await?;
        let discovery = &ready["services"]["discovery"];
        assert_eq!(discovery["ready"], false, "{ready}");
        let problem = discovery["problem"].as_str().unwrap_or_default();
        let waits = problem.contains("1 of its agents have not registered yet");
        waits.then_some(()).ok_or(ready.to_string())
    })
    .await;
    site.cluster.fault(&of_agent("heal-agent")).await;
    eventually("the late daemon's records", || async {
        complete().await;
        let ready = ready().await?;
        (ready["ready"] == true).then_some(()).ok_or(ready.to_string())
    })
    .await;
    for name in ["slave.mesos.", "web.marathon.mesos."] {
        let answer = dns::ask(late_addresses["dns"], name, RecordType::A)
            .await
            .unwrap();
        assert_eq!(answer.addresses.len(), 3, "{name}: {answer:?}");
    }
    complete().await;
    late.kill();
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(Some(daemon));
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_the_principal_may_not_view_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    copy_components(&dir.path().join("plugins"));
    let mut config = transom_minicluster::Config::three_agents(dir.path().join("cluster"));
    let first = free_ports(300);
    for (agent, first) in config.agents.iter_mut().zip((first..).step_by(100)) {
        agent.ports = (first, first + 99);
    }
    config.credentials = vec![("ops".to_owned(), "secret".to_owned())];
    config.blind_principals = vec!["ops".to_owned()];
    let token = CancellationToken::new();
    let cluster = config.start(token.clone()).await.unwrap();
    let config = format!(
        "[log]\nformat = \"json\"\nlevel = \"info\"\n[cluster]\nmaster = \"{}\"\nusername = \"ops\"\npassword = \"secret\"\nprincipal = \"ops\"\n\
         [store]\nserver = \"file:store\"\n\
         [plugins]\ndir = \"plugins\"\n\
         [apps]\nport = 0\n\
         [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_on = false\nrefresh_seconds = 1\n\
         [admin]\nport = 0\n",
        cluster.master()
    );
    fs::write(dir.path().join("transom.toml"), config).unwrap();
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let addresses = addresses(&mut daemon);
    let ready = || async {
        let url = format!("http://{}/ready", addresses["admin"]);
        let answer = http().get(url).send().await.map_err(|error| error.to_string())?;
        let ready: Value = answer.json().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(ready["services"]["discovery"].clone())
    };
    // Nothing runs, so nothing is missing.
    eventually("an empty zone", || async {
        let discovery = ready().await?;
        (discovery["ready"] == true)
            .then_some(())
            .ok_or(discovery.to_string())
    })
    .await;
    let app = json!({"id": "/web", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 1});
    let url = format!("http://{}/v2/apps", addresses["apps"]);
    eventually("the app", || async {
        let answer = http()
            .post(&url)
            .json(&app)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        (answer.status() == 201)
            .then_some(())
            .ok_or(answer.status().to_string())
    })
    .await;
    let acls = "`view_frameworks`, `view_tasks`";
    eventually("the reason", || async {
        let discovery = ready().await?;
        let problem = discovery["problem"].as_str().unwrap_or_default();
        let said = discovery["ready"] == false && problem.contains(acls);
        said.then_some(()).ok_or(discovery.to_string())
    })
    .await;
    let log = daemon.output();
    assert!(
        log.contains("the cluster's records are incomplete") && log.contains(acls),
        "{log}"
    );
    let mut doctor = std::process::Command::new(binary());
    doctor
        .args(["doctor", "--config", "transom.toml"])
        .current_dir(dir.path());
    let output = tokio::task::spawn_blocking(move || doctor.output())
        .await
        .unwrap()
        .unwrap();
    let findings = String::from_utf8_lossy(&output.stdout);
    assert!(
        findings.contains("the master lists neither tasks nor executors"),
        "{findings}"
    );
    daemon.terminate();
    token.cancel();
    cluster.stopped().await;
}
