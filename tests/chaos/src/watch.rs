//! Observes the running tasks continuously: journals, process table, and the invariants of every
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::framework;
use crate::judge::{self, Breach, Invariant};
use crate::observe::{self, Journals, Process};

/// The interval of observations.
const INTERVAL: Duration = Duration::from_millis(250);

/// All observations so far. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    run: Arc<str>,
    seen: Arc<Mutex<Observations>>,
}

#[derive(Debug)]
struct Observations {
    journals: Journals,
    looks: u64,
    /// The ids of the Kubernetes framework.
    frameworks: BTreeSet<String>,
    breaches: BTreeMap<Invariant, BTreeSet<String>>,
}

/// One observation.
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
            frameworks: BTreeSet::new(),
            breaches: BTreeMap::new(),
        };
        Self {
            run: run.into(),
            seen: Arc::new(Mutex::new(seen)),
        }
    }

    /// Observes now.
    pub(crate) async fn look(&self) -> anyhow::Result<Look> {
        let watch = self.clone();
        tokio::task::spawn_blocking(move || watch.look_here())
            .await
            .context("a look was interrupted")?
    }

    fn look_here(&self) -> anyhow::Result<Look> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Journals first: a process that has ended according to them must not be in the process
        // table.
        seen.journals.read()?;
        let running = observe::processes(&self.run)?;
        seen.looks += 1;
        seen.frameworks
            .extend(framework::ids(&running).map(str::to_owned));
        if seen.frameworks.len() > 1 {
            let what = format!("its ids were {:?}", seen.frameworks);
            let breaches = seen.breaches.entry(Invariant::OneFramework).or_default();
            breaches.insert(what);
        }
        for (invariant, what) in judge::always(&seen.journals, &running) {
            seen.breaches.entry(invariant).or_default().insert(what);
        }
        Ok(Look {
            running,
            launches: seen.journals.launches(),
        })
    }

    /// Observes at intervals until it is aborted. An error ends it.
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

    /// The number of observations.
    pub(crate) fn looks(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).looks
    }

    /// The violations of invariants that hold at any moment.
    pub(crate) fn breaches(&self) -> Vec<Breach> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let each = seen
            .breaches
            .iter()
            .flat_map(|(invariant, all)| all.iter().map(|what| (*invariant, what.clone())));
        each.collect()
    }
}
