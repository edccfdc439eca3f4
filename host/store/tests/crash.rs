//! Acknowledged batches survive a kill at any moment, and no batch survives in part.
//!
//! The test starts this binary again as the writer (marked by an environment variable), kills it
//! with SIGKILL during its writes, and checks the directory.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use transom_store::{Batch, Expect, Store, open};

const DIR: &str = "TRANSOM_STORE_CRASH_DIR";
const ROUND: &str = "TRANSOM_STORE_CRASH_ROUND";
const ROUNDS: usize = 25;
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_batches_survive_being_killed() {
    if let (Ok(dir), Ok(round)) = (std::env::var(DIR), std::env::var(ROUND)) {
        return write_until_killed(&dir, &round).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..ROUNDS {
        let before = acknowledged.len();
        // Each round ends after another number of acknowledgements, so that the kill hits other
        // moments of a commit.
        kill_a_writer(dir.path(), round, 40 + 37 * round, &mut acknowledged);
        assert!(acknowledged.len() > before, "round {round} acknowledged batches");
        check(dir.path(), &acknowledged).await;
    }
}

/// The child process: its writers put pairs of keys in one batch each and print every acknowledged
/// batch.
async fn write_until_killed(dir: &str, round: &str) {
    let store = open(&format!("file:{dir}")).await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, round) = (Arc::clone(&store), round.to_owned());
            tokio::spawn(async move {
                for n in 0.. {
                    let name = format!("{round}-{writer}-{n:06}");
                    let batch = Batch::new()
                        .put(format!("left/{name}"), name.clone(), Expect::Absent)
                        .put(format!("right/{name}"), name.clone(), Expect::Absent);
                    let versions = store.commit(batch).await.unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "ack {name} {}", versions[0]).unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

fn kill_a_writer(dir: &Path, round: usize, after: usize, acknowledged: &mut BTreeMap<String, u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "acknowledged_batches_survive_being_killed",
            "--exact",
            "--nocapture",
        ])
        .env(DIR, dir)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut note = |line: String| {
        let mut words = line.split(' ').skip_while(|word| *word != "ack").skip(1);
        if let (Some(name), Some(Ok(version))) = (words.next(), words.next().map(str::parse)) {
            acknowledged.insert(name.to_owned(), version);
        }
    };
    lines.by_ref().take(after).for_each(&mut note);
    child.kill().unwrap();
    // The lines that the child printed before it was killed are acknowledged too.
    lines.for_each(note);
    assert!(!child.wait().unwrap().success(), "the child was killed");
}

async fn check(dir: &Path, acknowledged: &BTreeMap<String, u64>) {
    let store = open(&format!("file:{}", dir.display())).await.unwrap();
    let first_keys = by_name(&store, "left/").await;
    let second_keys = by_name(&store, "right/").await;
    for (name, version) in acknowledged {
        assert_eq!(
            first_keys.get(name),
            Some(version),
            "acknowledged but lost: {name}"
        );
    }
    assert!(
        first_keys.keys().eq(second_keys.keys()),
        "a batch was applied in part"
    );
    let newest = first_keys
        .values()
        .chain(second_keys.values())
        .max()
        .copied()
        .unwrap_or(0);
    let next = store.put("probe", Vec::new().into(), Expect::Any).await.unwrap();
    assert!(next > newest, "version {next} after {newest}");
}

async fn by_name(store: &Arc<dyn Store>, prefix: &str) -> BTreeMap<String, u64> {
    let entries = store.scan(prefix).await.unwrap();
    entries
        .into_iter()
        .map(|entry| {
            let name = entry.key[prefix.len()..].to_owned();
            assert_eq!(entry.value, name, "the value belongs to its key");
            (name, entry.version)
        })
        .collect()
}
