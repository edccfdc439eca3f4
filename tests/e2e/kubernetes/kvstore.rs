//! A kvstore of three members with Debian's etcd: one etcd cluster that keeps its quorum while a
//! member moves to another agent, and that waits for its members when the quorum is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinHandle;
use transom_testkit::{eventually, wait_for};
use transom_tests::process::user;
use transom_tests::site::Site;

const KEY: &str = "/registry/written-before";
const VALUE: &str = "kept";

/// A member of the kvstore as `/explain` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) host: String,
    /// The address for its clients.
    pub(crate) address: String,
    /// The folder with the certificates of a client.
    certificates: PathBuf,
}

/// After this time an unreachable member is replaced: short enough for the wait for it, and longer than
/// a member takes to start on a busy machine.
const NODE_TIMEOUT: &str = "orch_node_timeout = \"25s\"\n";

/// A site with five agents and a kvstore of three members, which nothing uses; `more`: further
/// settings of the framework.
pub(crate) async fn start(folder: &Path, more: &str) -> Site {
    let data = folder.display();
    let configuration = format!(
        "[kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
         ds_etcd = true\nds_mysql = false\nds_count = 3\nds_cpu = 0.1\nds_mem = 64\nds_disk = 1\n\
         volume_ds = \"{data}/datastore\"\norch_server_count = 0\norch_agent_count = 0\n\
         portrange_from = 1024\nportrange_to = 65535\n{more}\
         [kubernetes.backup]\ndir = \"{data}/backups\"\nmem = 32\ndisk = 1\n",
        user(),
    );
    let site = Site::start_on(&["--agents", "5", "--agent-timeout", "2"], &configuration).await;
    let credentials = eventually("the credentials of the kvstore", || async {
        site.get(&site.kubernetes("/datastore/credentials")).await
    })
    .await;
    let folder = certificates(&site);
    fs::create_dir(&folder).expect("created");
    for name in ["authority", "certificate", "key"] {
        let text = credentials[name].as_str().expect("a text");
        fs::write(folder.join(name), text).expect("written");
    }
    site
}

/// The folder with the certificates of a client of the site's kvstore.
fn certificates(site: &Site) -> PathBuf {
    site.config().with_file_name("certificates")
}

/// Runs `etcdctl` with these members as endpoints; returns its output.
pub(crate) async fn etcdctl(members: &[&Member], arguments: &[&str]) -> Result<String, String> {
    let endpoints: Vec<String> = members
        .iter()
        .map(|it| format!("https://{}", it.address))
        .collect();
    let folder = &members.first().expect("a member").certificates;
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .env("ETCDCTL_CACERT", folder.join("authority"))
        .env("ETCDCTL_CERT", folder.join("certificate"))
        .env("ETCDCTL_KEY", folder.join("key"))
        .args(["--command-timeout=20s", "--endpoints", &endpoints.join(",")])
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .expect("etcdctl, of Debian's package etcd-client");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

async fn explained(site: &Site) -> Result<Value, String> {
    site.get(&site.kubernetes("/explain")).await
}

/// The running members by number.
fn running_members(site: &Site, explained: &Value) -> BTreeMap<u64, Member> {
    let tasks = explained["tasks"]["datastore"].as_array().into_iter().flatten();
    let running = tasks.filter(|task| task["state"] == "TASK_RUNNING");
    running
        .map(|task| {
            let host = task["host"].as_str().expect("a host").to_owned();
            let member = Member {
                certificates: certificates(site),
                address: format!("{host}:{}", task["ports"][0]),
                host,
            };
            (task["number"].as_u64().expect("a number"), member)
        })
        .collect()
}

/// The ids of etcd's members, all of which must have started and be voters.
async fn voters(endpoints: &[&Member]) -> Result<BTreeSet<String>, String> {
    let list = etcdctl(endpoints, &["member", "list"]).await?;
    let mut ids = BTreeSet::new();
    for line in list.lines() {
        let fields: Vec<&str> = line.split(", ").collect();
        if (fields.get(1), fields.last()) != (Some(&"started"), Some(&"false")) {
            return Err(list);
        }
        ids.insert(fields[0].to_owned());
    }
    Ok(ids)
}

/// Waits until three members vote, `accept` accepts them, and nothing waits; returns them and their
/// ids in etcd.
pub(crate) async fn wait_for_three_voters(
    site: &Site,
    what: &str,
    accept: impl Fn(&BTreeMap<u64, Member>) -> bool,
) -> (BTreeMap<u64, Member>, BTreeSet<String>) {
    eventually(what, || async {
        let (members, voters) = three_voters(site).await?;
        if accept(&members) {
            Ok((members, voters))
        } else {
            Err(format!("{members:?}"))
        }
    })
    .await
}

/// The three voting members and their ids in etcd; an error while one is missing or something
/// waits.
pub(crate) async fn three_voters(site: &Site) -> Result<(BTreeMap<u64, Member>, BTreeSet<String>), String> {
    let explained = explained(site).await?;
    let members = running_members(site, &explained);
    let rests = explained["waiting"].as_array().is_some_and(Vec::is_empty);
    if members.len() != 3 || !rests {
        return Err(explained.to_string());
    }
    let endpoints: Vec<&Member> = members.values().collect();
    let voters = voters(&endpoints).await?;
    if voters.len() == 3 {
        Ok((members, voters))
    } else {
        Err(format!("{voters:?}"))
    }
}

/// The id of the agent on a host.
pub(crate) async fn agent_on(site: &Site, host: &str) -> Value {
    let listed = site.get(&format!("http://{}/slaves", site.cluster.master)).await;
    let listed = listed.expect("agents");
    let agents = listed["slaves"].as_array().expect("a list");
    let found = agents.iter().find(|agent| agent["hostname"] == host);
    found.unwrap_or_else(|| panic!("{host} in {listed}"))["id"].clone()
}

/// Drains the agent on a host, as an operator does.
pub(crate) async fn drain(site: &Site, host: &str) {
    let call = json!({
        "type": "DRAIN_AGENT",
        "drain_agent": {"agent_id": {"value": agent_on(site, host).await}, "max_grace_period": {"seconds": 5}},
    });
    let url = format!("http://{}/api/v1", site.cluster.master);
    let answer = site.http.post(url).json(&call).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
}

/// Reads the key repeatedly until it is stopped. Every read must succeed.
struct Reader {
    stopped: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
    task: JoinHandle<Result<(), String>>,
}

impl Reader {
    fn start<'a>(members: impl Iterator<Item = &'a Member>) -> Self {
        let endpoints: Vec<Member> = members.cloned().collect();
        let (stopped, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count) = (Arc::clone(&stopped), Arc::clone(&reads));
        let task = tokio::spawn(async move {
            let endpoints: Vec<&Member> = endpoints.iter().collect();
            while !stop.load(Ordering::Relaxed) {
                let value = etcdctl(&endpoints, &["get", "--print-value-only", KEY]).await?;
                if value != VALUE {
                    return Err(format!("read {value:?}"));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { stopped, reads, task }
    }

    async fn stop(self) {
        let reads = self.reads.load(Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
        self.task.await.expect("no panic").expect("every read succeeds");
        assert!(reads > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_moves_to_another_agent_and_the_key_stays_readable() {
    let folder = tempfile::tempdir().expect("a directory");
    let site = start(folder.path(), NODE_TIMEOUT).await;
    let (before, ids) = wait_for_three_voters(&site, "three members", |_| true).await;
    let hosts: BTreeSet<&str> = before.values().map(|member| &*member.host).collect();
    assert_eq!(hosts.len(), 3, "{before:?}");
    let endpoints: Vec<&Member> = before.values().collect();
    etcdctl(&endpoints, &["put", KEY, VALUE]).await.expect("written");

    for even in [2, 4] {
        let url = site.kubernetes(&format!("/kvstore/scale/{even}"));
        let answer = site.http.put(url).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 422);
        let text = answer.text().await.expect("a text");
        assert!(text.contains("only in odd numbers"), "{text}");
    }

    // An operator drains the agent of the first member.
    let moving = &before[&0].host;
    let reader = Reader::start(before.values().filter(|member| member.host != *moving));
    drain(&site, moving).await;
    let away = |members: &BTreeMap<u64, Member>| members.values().all(|member| member.host != *moving);
    let (drained, other_ids) =
        wait_for_three_voters(&site, "a member in place of the drained one", away).await;
    reader.stop().await;
    assert_eq!(ids.intersection(&other_ids).count(), 2, "{ids:?} {other_ids:?}");

    // Another agent is lost with its member.
    let (_, lost) = drained.iter().find(|(number, _)| **number != 0).expect("another");
    let reader = Reader::start(drained.values().filter(|member| member.host != lost.host));
    let agent = agent_on(&site, &lost.host).await;
    site.fault(&json!({"fault": "kill-agent", "agent": agent})).await;
    let away = |members: &BTreeMap<u64, Member>| members.values().all(|member| member.host != lost.host);
    let (after, last_ids) = wait_for_three_voters(&site, "a member in place of the lost one", away).await;
    reader.stop().await;
    assert_eq!(
        other_ids.intersection(&last_ids).count(),
        2,
        "{other_ids:?} {last_ids:?}"
    );

    // The replacement itself has the data: a serializable read is answered without the other
    // members.
    let known: BTreeSet<&str> = drained.values().map(|member| &*member.address).collect();
    let new = after
        .values()
        .find(|member| !known.contains(&*member.address))
        .expect("another");
    let own = ["get", "--consistency=s", "--print-value-only", KEY];
    assert_eq!(etcdctl(&[new], &own).await.as_deref(), Ok(VALUE));
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_no_member_moves_until_the_agents_are_back() {
    let folder = tempfile::tempdir().expect("a directory");
    let site = start(folder.path(), NODE_TIMEOUT).await;
    let (before, ids) = wait_for_three_voters(&site, "three members", |_| true).await;
    let endpoints: Vec<&Member> = before.values().collect();
    etcdctl(&endpoints, &["put", KEY, VALUE]).await.expect("written");

    let mut agents = Vec::new();
    for number in [1, 2] {
        let agent = agent_on(&site, &before[&number].host).await;
        site.fault(&json!({"fault": "kill-agent", "agent": agent})).await;
        agents.push(agent);
    }
    eventually("the reason, and what to do", || async {
        let explained = explained(&site).await?;
        let waiting = explained["waiting"].to_string();
        let mut expected = vec![
            "the kvstore has no quorum (healthy: 0 of 3 members, needed: 2, running: 1); no member is moved"
                .to_owned(),
        ];
        expected.extend([1, 2].map(|number| {
            let host = &before[&number].host;
            format!("member {number} has its data on {host} and starts there; start that agent again")
        }));
        if expected.iter().all(|text| waiting.contains(text)) {
            Ok(())
        } else {
            Err(waiting)
        }
    })
    .await;
    let remaining_members = running_members(&site, &explained(&site).await.expect("an answer"));
    assert_eq!(
        remaining_members.keys().collect::<Vec<_>>(),
        [&0],
        "{remaining_members:?}"
    );
    assert_eq!(remaining_members[&0].address, before[&0].address);

    for agent in agents {
        site.fault(&json!({"fault": "start-agent", "agent": agent})).await;
    }
    let (after, same_ids) = wait_for_three_voters(&site, "the members to return", |_| true).await;
    assert_eq!(same_ids, ids);
    let endpoints = |members: &BTreeMap<u64, Member>| -> Vec<String> {
        members.values().map(|member| member.address.clone()).collect()
    };
    assert_eq!(endpoints(&after), endpoints(&before));
    let returned = &after[&1];
    wait_for("the key", async || {
        etcdctl(&[returned], &["get", "--print-value-only", KEY])
            .await
            .as_deref()
            == Ok(VALUE)
    })
    .await;
    site.cluster.stop_after(site.daemon);
}

/// Runs `etcdctl` as a client that has no certificate, or one of another authority.
async fn attack(member: &Member, folder: &Path, options: &[&str]) -> Result<String, String> {
    let own = format!("--endpoints=https://{}", member.address);
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .current_dir(folder)
        .args(["--command-timeout=2s", "--dial-timeout=2s", &own, "get", KEY])
        .args(options)
        .kill_on_drop(true)
        .output()
        .await
        .expect("etcdctl");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kvstore_rejects_who_has_no_certificate_of_its_authority() {
    let folder = tempfile::tempdir().expect("a directory");
    let site = start(folder.path(), NODE_TIMEOUT).await;
    let (members, _) = wait_for_three_voters(&site, "three members", |_| true).await;
    let endpoints: Vec<&Member> = members.values().collect();
    etcdctl(&endpoints, &["put", KEY, VALUE]).await.expect("written");

    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    let foreign = params.self_signed(&key).expect("a certificate").pem();
    fs::write(folder.path().join("foreign.pem"), foreign).expect("written");
    fs::write(folder.path().join("foreign.key"), key.serialize_pem()).expect("written");
    for member in members.values() {
        let authority = format!("--cacert={}", member.certificates.join("authority").display());
        for options in [
            &["--insecure-skip-tls-verify", "--insecure-transport=false"][..],
            &[authority.as_str()],
            &[authority.as_str(), "--cert=foreign.pem", "--key=foreign.key"],
        ] {
            let answer = attack(member, folder.path(), options).await;
            assert!(answer.is_err(), "{options:?}: {answer:?}");
        }
        let url = format!("http://{}/v3/kv/range", member.address);
        let plain = site.http.post(url).body("{}").send().await;
        assert!(
            !plain.is_ok_and(|answer| answer.status().is_success()),
            "without TLS"
        );
    }

    // The keys are readable for their owner only, and are neither in a sandbox nor in an environment.
    let stored = folder.path().join("datastore/transom-tls");
    for entry in fs::read_dir(&stored).expect("the certificates") {
        let mode = entry
            .expect("an entry")
            .metadata()
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
    }
    let key = fs::read_to_string(stored.join("client-key.pem")).expect("a key");
    let secret = key.lines().nth(1).expect("a line");
    for path in ["/explain", "/datastore/backups", "/status/fw"] {
        let answer = site.get(&site.kubernetes(path)).await.expect("an answer");
        assert!(!answer.to_string().contains(secret), "{path}");
    }
    let mut site = site;
    let (_, log) = site.daemon.take().expect("a daemon").interrupt();
    assert!(!log.contains(secret) && !log.contains("PRIVATE KEY"), "{log}");
    site.cluster.stop();
}

#[test]
fn even_counts_are_rejected_in_the_configuration() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("transom.toml");
    for count in [2, 4] {
        let settings = format!("[kubernetes]\nds_etcd = true\nds_mysql = false\nds_count = {count}\n");
        fs::write(&file, settings).expect("written");
        let output = std::process::Command::new(transom_tests::process::binary())
            .args(["config", "check", "--config"])
            .arg(&file)
            .output()
            .expect("an output");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let expected =
            format!("(DS_COUNT) is {count}; the members of a kvstore form a cluster only in odd numbers");
        assert!(text.contains(&expected), "{text}");
    }
}
