//! Observes the running tasks continuously: journals, process table, and the invariants of every
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::framework;
use crate::invariants::{self, Breach, Invariant};
use crate::task_processes::{self, Journals, Process};

/// The interval of observations.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(250);

/// All observations so far. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    run: Arc<str>,
    state: Arc<Mutex<Observations>>,
}

#[derive(Debug)]
struct Observations {
    journals: Journals,
    count: u64,
    /// The ids of the Kubernetes framework.
    frameworks: BTreeSet<String>,
    breaches: BTreeMap<Invariant, BTreeSet<String>>,
}

/// One observation.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) running: Vec<Process>,
    pub(crate) launches: usize,
}

impl Observer {
    pub(crate) fn new(run: &str, cluster_dir: &Path) -> Self {
        let state = Observations {
            journals: Journals::new(cluster_dir),
            count: 0,
            frameworks: BTreeSet::new(),
            breaches: BTreeMap::new(),
        };
        Self {
            run: run.into(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Observes now.
    pub(crate) async fn observe(&self) -> anyhow::Result<Observation> {
        let observer = self.clone();
        tokio::task::spawn_blocking(move || observer.observe_blocking())
            .await
            .context("an observation was interrupted")?
    }

    fn observe_blocking(&self) -> anyhow::Result<Observation> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Journals first: a process that has ended according to them must not be in the process
        // table.
        state.journals.read()?;
        let running = task_processes::processes(&self.run)?;
        state.count += 1;
        state
            .frameworks
            .extend(framework::ids(&running).map(str::to_owned));
        if state.frameworks.len() > 1 {
            let what = format!("its ids were {:?}", state.frameworks);
            let breaches = state.breaches.entry(Invariant::OneFramework).or_default();
            breaches.insert(what);
        }
        for (invariant, what) in invariants::check_always(&state.journals, &running) {
            state.breaches.entry(invariant).or_default().insert(what);
        }
        Ok(Observation {
            running,
            launches: state.journals.launches(),
        })
    }

    /// Observes at intervals until it is aborted. An error ends it.
    pub(crate) fn observe_repeatedly(&self) -> JoinHandle<anyhow::Error> {
        let observer = self.clone();
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(OBSERVATION_INTERVAL);
            loop {
                interval.tick().await;
                if let Err(error) = observer.observe().await {
                    return error;
                }
            }
        })
    }

    /// The number of observations.
    pub(crate) fn observations(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// The violations of invariants that hold at any moment.
    pub(crate) fn breaches(&self) -> Vec<Breach> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let breaches = state
            .breaches
            .iter()
            .flat_map(|(invariant, all)| all.iter().map(|what| (*invariant, what.clone())));
        breaches.collect()
    }
}
