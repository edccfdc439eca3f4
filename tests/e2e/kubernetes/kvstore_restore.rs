//! Restores into a kvstore of three members with Debian's etcd.

use std::fs;
use std::path::Path;

use serde_json::json;
use transom_testkit::eventually;
use transom_tests::site::Site;

use crate::kubernetes::backup::{
    back_up, fw, restart_during_restore, sha256, wait_for_phase, wait_until_over,
};
use crate::kubernetes::kvstore::{Member, agent_on, etcdctl, start, three_voters, wait_for_three_voters};

const KEY: &str = "/registry/key";

async fn put(members: impl Iterator<Item = &Member>, value: &str) {
    let endpoints: Vec<&Member> = members.collect();
    let written = etcdctl(&endpoints, &["put", KEY, value]).await;
    written.expect("written");
}

/// The value that each of three members has; all must have the same one.
async fn value(site: &Site, what: &str) -> String {
    eventually(what, || async {
        let (members, _) = three_voters(site).await?;
        let mut values = Vec::new();
        for member in members.values() {
            let own = ["get", "--consistency=s", "--print-value-only", KEY];
            values.push(etcdctl(&[member], &own).await?);
        }
        values.dedup();
        match &values[..] {
            [value] => Ok(value.clone()),
            _ => Err(format!("{values:?}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_have_the_backup_even_if_the_daemon_is_killed() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut site = start(folder.path(), "").await;
    let (members, ids) = wait_for_three_voters(&site, "three members", |_| true).await;
    put(members.values(), "before").await;
    let name = back_up(&site).await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);
    put(members.values(), "after").await;

    let restore = format!("/datastore/backups/{name}/restore");
    restart_during_restore(&mut site, &restore).await;
    wait_for_phase(&site, "load").await;
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(wait_until_over(&site, "restore", &name).await, None);
    assert_eq!(value(&site, "three members with the backup").await, "before");
    let (members, restored) = wait_for_three_voters(&site, "three members", |_| true).await;
    assert!(ids.is_disjoint(&restored), "{ids:?} {restored:?}");

    // If etcd rejects a snapshot, one member returns to its former data, and the others join it.
    put(members.values(), "later").await;
    corrupt(&folder.path().join(format!("backups/{name}")));
    let failed = fw(&site, folder.path(), &["restore", "fw", &name, "--yes"]).expect_err("rejected");
    assert!(failed.contains("the former data is back"), "{failed}");
    assert_eq!(value(&site, "three members with their data").await, "later");
    site.cluster.stop_after(site.daemon);
}

/// Replaces the data of a backup, and the digest in its manifest.
fn corrupt(file: &Path) {
    let data = b"no snapshot";
    fs::write(file.with_extension("backup"), data).expect("written");
    let manifest = fs::read_to_string(file.with_extension("json")).expect("the manifest");
    let mut manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
    manifest["size"] = data.len().into();
    manifest["sha256"] = sha256(&file.with_extension("backup")).into();
    fs::write(file.with_extension("json"), manifest.to_string()).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_is_lost_for_good_is_replaced_from_a_backup() {
    let folder = tempfile::tempdir().expect("a directory");
    let site = start(folder.path(), "").await;
    let (members, _) = wait_for_three_voters(&site, "three members", |_| true).await;
    put(members.values(), "before").await;
    let name = back_up(&site).await;
    assert_eq!(wait_until_over(&site, "backup", &name).await, None);
    put(members.values(), "after").await;

    // Two members, one of them the first, are lost with agents that never return.
    for number in [0, 1] {
        let agent = agent_on(&site, &members[&number].host).await;
        site.fault(&json!({"fault": "kill-agent", "agent": agent})).await;
    }
    eventually("the loss to be known", || async {
        let explained = site.get(&site.kubernetes("/explain")).await?;
        let waiting = explained["waiting"].to_string();
        let known = ["running: 1", "member 0 has", "member 1 has"];
        if known.iter().all(|text| waiting.contains(text)) {
            Ok(())
        } else {
            Err(waiting)
        }
    })
    .await;
    let restored = fw(&site, folder.path(), &["restore", "fw", &name, "--yes"]).expect("restored");
    assert_eq!(restored, format!("{name} is restored"));
    assert_eq!(value(&site, "three members on other agents").await, "before");
    let (after, _) = wait_for_three_voters(&site, "three members", |_| true).await;
    for lost in [&members[&0].host, &members[&1].host] {
        assert!(after.values().all(|member| member.host != *lost), "{after:?}");
    }
    site.cluster.stop_after(site.daemon);
}
