//! The script, with fake programs instead of etcd's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::SCRIPT;

/// A fake `etcdctl` that answers like etcd 3.4, and records which member is promoted.
const ETCDCTL: &str = r#"#!/bin/sh
case "$*" in
*"member list"*) echo "e932a1d24e29e0d0, started, kv, http://h0:1, http://h0:2, false" ;;
*"member add kv-1 --learner"*)
    printf "Member %16s added to cluster c0429f12984d6e4a\\n" "$MEMBER"
    echo
    echo 'ETCD_NAME="kv-1"'
    echo 'ETCD_INITIAL_CLUSTER="kv=http://h0:1,kv-1=http://h1:1"'
    echo 'ETCD_INITIAL_CLUSTER_STATE="existing"'
    ;;
*"member promote $MEMBER") touch promoted && echo "Member $MEMBER promoted in cluster" ;;
*) echo "unexpected: $*" >&2 && exit 1 ;;
esac
"#;
/// A fake `etcd` that runs until the member is promoted, with a limit.
const ETCD: &str = r#"#!/bin/sh
left=100
until [ -e promoted ] || [ "$left" = 0 ]; do
    left=$((left - 1))
    sleep 0.05
done
echo "$ETCD_INITIAL_CLUSTER $ETCD_INITIAL_CLUSTER_STATE"
"#;

fn run(folder: &Path, start: &str, member: &str) -> Output {
    for (name, text) in [("etcdctl", ETCDCTL), ("etcd", ETCD)] {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", folder.display());
    Command::new("sh")
        .args(["-c", SCRIPT])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path)
        .env("MEMBER", member)
        .env("KVSTORE_START", start)
        .env("KVSTORE_OTHERS", "http://h0:2")
        .env("ETCD_NAME", "kv-1")
        .env("ETCD_DATA_DIR", folder.join("data"))
        .env("ETCD_LISTEN_CLIENT_URLS", "http://h1:2")
        .env("ETCD_INITIAL_ADVERTISE_PEER_URLS", "http://h1:1")
        .output()
        .unwrap()
}

#[test]
fn joining_member_is_promoted_also_with_a_short_id() {
    // etcdctl pads ids to 16 digits.
    for member in ["e0ad07dd8d6a2f3b", "a5e4f58b33af9b4"] {
        let folder = tempfile::tempdir().unwrap();
        let wal = folder.path().join("data/member/wal");
        fs::create_dir_all(&wal).unwrap();
        let output = run(folder.path(), "join", member);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text.trim(),
            "kv=http://h0:1,kv-1=http://h1:1 existing",
            "{output:?}"
        );
        assert!(
            folder.path().join("promoted").exists(),
            "{member:?} was not promoted"
        );
        assert!(!wal.exists(), "the cluster sends its own data");
    }
}

#[test]
fn member_without_its_data_does_not_return() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "return", "1");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("must not return without them"), "{text}");
}

#[test]
fn unknown_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "sideways", "1");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("KVSTORE_START is 'sideways'"), "{text}");
}
