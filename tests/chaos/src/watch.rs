//! Looks at what runs, all the time: journals and process table, and what must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::judge::{self, Breach, Invariant};
use crate::observe::{self, Journals, Process};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Everything seen so far. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    run: Arc<str>,
    seen: Arc<Mutex<Observations>>,
}

#[derive(Debug)]
struct Observations {
    journals: Journals,
    looks: u64,
    breaches: BTreeMap<Invariant, BTreeSet<String>>,
}

/// One look.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) running: Vec<Process>,
    pub(crate) launches: usize,
}

impl Watch {
    pub(crate) fn new(run: &str, cluster_dir: &Path) -> Self {
        let seen = Observations {
            journals: Journals::new(cluster_dir),
            looks: 0,
            breaches: BTreeMap::new(),
        };
        Self {
            run: run.into(),
            seen: Arc::new(Mutex::new(seen)),
        }
    }

    /// Looks now.
    pub(crate) async fn look(&self) -> anyhow::Result<Look> {
        let watch = self.clone();
        tokio::task::spawn_blocking(move || watch.look_here())
            .await
            .context("a look was interrupted")?
    }

    fn look_here(&self) -> anyhow::Result<Look> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // In this order: what the journals call ended by now must not be in the table.
        seen.journals.read()?;
        let running = observe::processes(&self.run)?;
        seen.looks += 1;
        for (invariant, what) in judge::always(&seen.journals, &running) {
            seen.breaches.entry(invariant).or_default().insert(what);
        }
        Ok(Look {
            running,
            launches: seen.journals.launches(),
        })
    }

    /// Looks from time to time until it is aborted. An error ends it.
    pub(crate) fn keep_looking(&self) -> JoinHandle<anyhow::Error> {
        let watch = self.clone();
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(INTERVAL);
            loop {
                interval.tick().await;
                if let Err(error) = watch.look().await {
                    return error;
                }
            }
        })
    }

    /// How often it looked.
    pub(crate) fn looks(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).looks
    }

    /// What was broken at any moment.
    pub(crate) fn breaches(&self) -> Vec<Breach> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let each = seen
            .breaches
            .iter()
            .flat_map(|(invariant, all)| all.iter().map(|what| (*invariant, what.clone())));
        each.collect()
    }
}
