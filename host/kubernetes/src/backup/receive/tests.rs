//! Dumps in a scripted sandbox.

use async_trait::async_trait;
use transom_cluster::agent::FileBytes;

use super::*;
use crate::backup::OperationKind;
use crate::testing::{agent, config};

/// A sandbox with a dump that may change while it is read.
#[derive(Debug)]
struct Sandbox {
    dump: Option<Vec<u8>>,
    /// How many bytes the dump grows for each byte that is read.
    growth: u64,
}

#[async_trait]
impl Cluster for Sandbox {
    async fn read_file(&self, _: SandboxFile<'_>) -> transom_cluster::Result<Option<Vec<u8>>> {
        Ok(self.dump.clone())
    }

    async fn read_bytes(
        &self,
        file: SandboxFile<'_>,
        offset: u64,
        length: u64,
    ) -> transom_cluster::Result<Option<FileBytes>> {
        assert_eq!(file.path, "backup");
        let length = usize::try_from(length.min(1000)).unwrap();
        Ok(self.dump.as_ref().map(|dump| FileBytes {
            data: dump
                .iter()
                .skip(usize::try_from(offset).unwrap())
                .take(length)
                .copied()
                .collect(),
            size: dump.len() as u64 + offset * self.growth,
        }))
    }

    async fn lists_framework(&self, _: &FrameworkId) -> transom_cluster::Result<bool> {
        Ok(true)
    }
}

fn reception(folder: &std::path::Path, sandbox: Sandbox, sha256: &str) -> Reception {
    let mut config = config();
    config.settings.backup.max_bytes = 10_000;
    config.settings.backup.keep = 1;
    let directory = Directory::new(folder, config.name());
    let operation = Operation::new(
        OperationKind::Backup,
        "m3s-1".to_owned(),
        jiff::Timestamp::now(),
        config.settings.backup.timeout.duration(),
    );
    Reception {
        config: Arc::new(config),
        cluster: Arc::new(sandbox),
        directory,
        agent: Arc::new(agent()),
        framework: "f".into(),
        operation: Operation {
            sha256: Some(sha256.to_owned()),
            task: Some("t".to_owned()),
            ..operation
        },
    }
}

#[tokio::test]
async fn dump_is_received_in_pieces_and_replaces_the_oldest_backup() {
    let folder = tempfile::tempdir().unwrap();
    for (name, size) in [("m3s-1", 0_usize), ("m3s-2", 10_000)] {
        let dump: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let sandbox = Sandbox {
            dump: Some(dump.clone()),
            growth: 0,
        };
        let mut reception = reception(folder.path(), sandbox, &format!("{:x}", Sha256::digest(&dump)));
        reception.operation.backup = name.to_owned();
        let directory = reception.directory.clone();
        assert_eq!(reception.run().await.unwrap(), size as u64);
        let list = directory.list().unwrap();
        assert_eq!(list.len(), 1, "{list:?}");
        directory.verify(&directory.find(name).unwrap()).unwrap();
        assert_eq!(std::fs::read(directory.data_path(name)).unwrap(), dump);
    }
}

#[tokio::test]
async fn dump_that_is_not_whole_is_no_backup() {
    let digest = format!("{:x}", Sha256::digest(b"data"));
    let sandbox = |dump: &[u8], growth| Sandbox {
        dump: Some(dump.to_vec()),
        growth,
    };
    let missing = Sandbox {
        dump: None,
        growth: 0,
    };
    for (sandbox, expected) in [
        (missing, "not in its task's sandbox"),
        (sandbox(b"dada", 0), "digest"),
        (sandbox(&[0; 10_001], 0), "at most 10000"),
        (sandbox(&[0; 5000], 1), "has changed"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = reception(folder.path(), sandbox, &digest)
            .run()
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// A snapshot of etcd ends with its digest.
#[tokio::test]
async fn snapshot_without_a_digest_of_its_task_needs_that_of_etcd() {
    let mut whole = vec![7; 3000];
    whole.extend(Sha256::digest(&whole));
    let mut damaged = whole.clone();
    damaged[1500] = 0;
    for (engine, dump, expected) in [
        (Engine::Kvstore, &whole, true),
        (Engine::Kvstore, &damaged, false),
        (Engine::Kvstore, &whole[..3000].to_vec(), false),
        (Engine::Kvstore, &vec![1; 10], false),
        (Engine::Sql, &whole, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox {
            dump: Some(dump.clone()),
            growth: 0,
        };
        let mut reception = reception(folder.path(), sandbox, "");
        Arc::make_mut(&mut reception.config).settings.ds_etcd = engine == Engine::Kvstore;
        let received = reception.run().await;
        assert_eq!(
            received.is_ok(),
            expected,
            "{engine:?} {}: {received:?}",
            dump.len()
        );
    }
}

#[tokio::test]
async fn full_disk_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let sandbox = Sandbox {
        dump: Some(vec![1; 3000]),
        growth: 0,
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let error = reception(folder.path(), sandbox, "")
        .copy(full)
        .await
        .unwrap_err();
    assert!(error_chain(&error).contains("No space left"), "{error:?}");
}
