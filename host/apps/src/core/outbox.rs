//! Demands on their way to the scheduler.
//!
//! The scheduler hands out events only as fast as the core takes them, so the core must never wait for the scheduler. What it
//! demands is gathered here, one entry a task, and a task of its own passes it on, again and again until it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_scheduler::{Launcher, Wanted};

/// Pause after a demand that was not taken.
const PAUSE: Duration = Duration::from_millis(500);

/// Demands that were not passed on yet. Bounded by the number of tasks.
#[derive(Debug, Default)]
pub(super) struct Demands {
    want: BTreeMap<TaskId, Wanted>,
    release: BTreeSet<TaskId>,
    forget: BTreeSet<TaskId>,
}

impl Demands {
    pub(super) fn want(&mut self, wanted: Wanted) {
        self.want.insert(wanted.id.clone(), wanted);
    }

    pub(super) fn release(&mut self, task: TaskId) {
        self.want.remove(&task);
        self.release.insert(task);
    }

    pub(super) fn forget(&mut self, task: TaskId) {
        self.forget.insert(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.want.is_empty() && self.release.is_empty() && self.forget.is_empty()
    }
}

/// Passes demands on, in order, until the core ends.
pub(super) async fn run(
    scheduler: Arc<dyn Launcher>,
    mut demands: mpsc::Receiver<Demands>,
    token: CancellationToken,
) {
    loop {
        let Demands {
            want,
            release,
            forget,
        } = tokio::select! {
            () = token.cancelled() => return,
            received = demands.recv() => match received {
                Some(demands) => demands,
                None => return,
            },
        };
        let (want, release): (Vec<Wanted>, Vec<TaskId>) =
            (want.into_values().collect(), release.into_iter().collect());
        insist(&token, "want", !want.is_empty(), || scheduler.want(want.clone())).await;
        insist(&token, "release", !release.is_empty(), || {
            scheduler.release(release.clone(), None)
        })
        .await;
        // One record that cannot be forgotten must not keep the others; it is tried again after the next restart.
        for task in forget {
            if let Err(error) = scheduler.forget(vec![task.clone()]).await {
                tracing::warn!(%task, %error, "the record of an ended task stays");
            }
        }
    }
}

async fn insist<F>(token: &CancellationToken, what: &str, needed: bool, mut demand: impl FnMut() -> F)
where
    F: Future<Output = transom_scheduler::Result<()>>,
{
    while needed && !token.is_cancelled() {
        match demand().await {
            Ok(()) => return,
            Err(error) => tracing::warn!(what, %error, "the scheduler did not take a demand; it is repeated"),
        }
        tokio::select! {
            () = token.cancelled() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
