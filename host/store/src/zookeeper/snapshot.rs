//! Snapshots: the log then begins after a position, and what is before it is deleted.

use bytes::Bytes;
use transom_common::ambient::{blocking, uuid};

use super::ensemble::{Current, Ensemble, SNAPSHOTS};
use super::records::encode;
use super::state::State;
use crate::{Cause, Error};

/// Entries of the log that make a snapshot due.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// The same in bytes, unless the last snapshot is larger.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// Writes a snapshot of `state`, and lets the log continue it if it still begins as in `before`. A
/// crash leaves pieces that the next snapshot deletes.
pub(super) async fn write(
    ensemble: Ensemble,
    state: State,
    (before, version): (Current, i32),
) -> Result<(), Cause> {
    let position = state.position;
    let encoded = blocking(move || {
        let records: Vec<_> = state.records().collect();
        let plain = records.iter().map(|record| record.size() as u64).sum();
        encode(&records).map(|encoded| (Bytes::from(encoded), plain))
    });
    let (encoded, plain) = encoded.await.ok_or(Error::Closed)??;
    let Some(pieces) = ensemble.write_pieces(SNAPSHOTS, uuid(), &encoded, plain).await? else {
        return Ok(());
    };
    let name = pieces.name.clone();
    let current = before.followed_by(position, pieces);
    if !ensemble.set_current(&current, version).await? {
        // Another daemon was faster.
        return ensemble.delete_pieces(SNAPSHOTS, &name).await;
    }
    tracing::debug!(
        position,
        bytes = encoded.len(),
        "the store's log continues a new snapshot"
    );
    ensemble.clean(&current).await
}
