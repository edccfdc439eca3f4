//! Daemons that know less than the ensemble, while entries and pieces are deleted.

use transom_common::ambient::uuid;

use super::super::ensemble::{Appended, Current, Ensemble, Pieces, SNAPSHOTS, STAGED_PIECES};
use super::super::records::{Record, encode};
use super::*;

/// The session of a daemon that has read the start of the log.
async fn session(server: &ZooKeeper) -> (Ensemble, Current, i32) {
    let ensemble = Ensemble::connect(&settings(&server.address())).await.unwrap();
    ensemble.prepare(1, false).await.unwrap();
    let (current, version) = ensemble.current().await.unwrap();
    (ensemble, current, version)
}

fn put(value: Bytes) -> (Bytes, u64) {
    let record = Record::Put {
        key: "a".into(),
        version: 2,
        value,
    };
    (encode([&record]).unwrap().into(), record.size() as u64)
}

async fn pieces(ensemble: &Ensemble, folder: &str) -> Pieces {
    let (encoded, plain) = put(filling(2 << 20));
    let written = ensemble.write_pieces(folder, uuid(), &encoded, plain).await;
    written.unwrap().unwrap()
}

/// As one that was suspended while others wrote, and deleted entries after a snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_that_has_missed_a_snapshot_knows_that_its_state_is_old() {
    let server = ZooKeeper::start().await;
    let (late, before, version) = session(&server).await;
    let (writer, ..) = session(&server).await;
    let (encoded, _) = put("x".into());
    let id = uuid();
    for position in 1..=2 {
        let appended = writer.append(position, version, id, Ok(&encoded)).await;
        assert!(matches!(appended, Ok(Appended::Done)));
    }
    assert!(!late.ends_before(1, version, true).await.unwrap());
    assert!(late.ends_before(3, version, true).await.unwrap());
    let current = before.followed_by(2, pieces(&writer, SNAPSHOTS).await);
    assert!(writer.set_current(&current, version).await.unwrap());
    writer.clean(&current).await.unwrap();
    assert!(nodes(&server, "log").await.is_empty());
    // There is no entry at the next position, and there was one.
    for is_strict in [true, false] {
        assert!(!late.ends_before(1, version, is_strict).await.unwrap());
    }
    assert!(late.watch(1, version).await.unwrap().is_none());
    let appended = late.append(1, version, id, Ok(&encoded)).await;
    assert!(matches!(appended, Ok(Appended::Superseded)));
    let (state, _, version) = late.load().await.unwrap();
    assert_eq!(state.position, 2);
    assert!(late.ends_before(3, version, true).await.unwrap());
    assert!(late.watch(3, version).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_are_used_or_deleted() {
    let server = ZooKeeper::start().await;
    let (one, before, version) = session(&server).await;
    let (other, ..) = session(&server).await;
    // A daemon that deletes what its older snapshot does not need, while another one uses its pieces.
    let used = before.followed_by(0, pieces(&one, SNAPSHOTS).await);
    assert!(one.set_current(&used, version).await.unwrap());
    other.clean(&before).await.unwrap();
    one.load().await.unwrap();
    // And just before.
    let (_, version) = one.current().await.unwrap();
    let unused = before.followed_by(0, pieces(&one, SNAPSHOTS).await);
    other.clean(&before).await.unwrap();
    assert!(!one.set_current(&unused, version).await.unwrap());
    one.load().await.unwrap();

    let (staged, id) = (pieces(&one, STAGED_PIECES).await, uuid());
    let appended = one.append(1, version, id, Err(&staged)).await;
    assert!(matches!(appended, Ok(Appended::Done)));
    let unused = pieces(&one, STAGED_PIECES).await;
    other.clean(&used).await.unwrap();
    assert_eq!(nodes(&server, "staged").await, std::slice::from_ref(&staged.name));
    let appended = one.append(2, version, id, Err(&unused)).await;
    assert!(matches!(appended, Ok(Appended::Unstaged)));
    let (entries, has_more) = other.read(1).await.unwrap();
    assert!(entries.len() == 1 && !has_more && entries[0].id == id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_pieces_are_named() {
    let server = ZooKeeper::start().await;
    let (one, before, version) = session(&server).await;
    let (staged, id) = (pieces(&one, STAGED_PIECES).await, uuid());
    one.append(1, version, id, Err(&staged)).await.unwrap();
    let path = format!("{ROOT}/staged/{}/0", staged.name);
    client(&server).await.delete(&path, None).await.unwrap();
    assert!(
        rejection(&server)
            .await
            .contains("pieces of the entry 1 of the log are missing")
    );

    let snapshot = pieces(&one, SNAPSHOTS).await;
    let path = format!("{ROOT}/snapshots/{}/0", snapshot.name);
    assert!(
        one.set_current(&before.followed_by(1, snapshot), version)
            .await
            .unwrap()
    );
    client(&server).await.delete(&path, None).await.unwrap();
    assert!(
        rejection(&server)
            .await
            .contains("pieces of the snapshot are missing")
    );
}

/// Why a new daemon cannot read.
async fn rejection(server: &ZooKeeper) -> String {
    let store = open(&server.address());
    eventually("the store says why", || async {
        match store.get("a").await {
            Err(error @ Error::Unavailable { .. }) => {
                let text = transom_common::error_chain(&error);
                if text.contains("missing") {
                    Ok(text)
                } else {
                    Err(text)
                }
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await
}
