//! The Kubernetes framework of a run: a datastore, a server and some agents, whose number changes
//! at random. Its tasks are processes: the datastore does nothing, and the server serves an API
//! that contains only nodes.
//!
//! Its requests use a separate random generator, so that a seed gives the apps the same sequence
//! with and without the framework.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use transom_tests::process::{orchestrator, user};

use crate::client::{get, outcome_of};
use crate::invariants::{Breach, Invariant};
use crate::model::Outcome;
use crate::site::Site;
use crate::spec::{APP, REVISION, RUN};
use crate::task_processes::Process;

/// Maximum of wanted agents.
const MAX_AGENTS: u32 = 4;
/// Share of the steps that scale the agents.
const SCALE_PROBABILITY: f64 = 0.4;
/// Prefix of `APP` of its tasks.
const PREFIX: &str = "/framework/";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);

/// The section of a daemon's configuration. `folder` contains the data of the tasks.
pub(crate) fn section(run: &str, folder: &str, port: u16) -> String {
    let program = orchestrator(Path::new(folder));
    let program = program.display();
    let variables = |kind: &str| {
        [
            format!("{RUN}={run}"),
            format!("{APP}={PREFIX}{kind}"),
            format!("{REVISION}=0"),
        ]
    };
    let (server, agent) = (variables("server"), variables("agent"));
    let datastore = variables("datastore").join(" ");
    format!(
        "[kubernetes]\nport = {port}\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
         ds_command = \"exec env {datastore} sleep 1000000\"\nds_cpu = 0.01\nds_mem = 1\nds_disk = 1\n\
         orch_container = false\norch_server_string = \"{program} server --nodes-only\"\n\
         orch_server_node_env = {server:?}\norch_server_cpu = 0.01\norch_server_mem = 1\norch_server_disk = 1\n\
         volume_orch_server = \"{folder}/server\"\nkubeconfig = \"k3s.yaml\"\n\
         orch_agent_string = \"{program} agent\"\norch_agent_node_env = {agent:?}\n\
         orch_agent_cpu = 0.01\norch_agent_mem = 1\norch_agent_disk = 1\norch_agent_count = 1\n\
         orch_node_timeout = \"5s\"\ndrain_timeout = \"5s\"\nportrange_from = 1024\nportrange_to = 65535\n\
         bootstrap_url = \"file://{folder}/bootstrap.sh\"\n",
        user(),
    )
}

/// The first script of its servers and agents.
pub(crate) const SCRIPT: &str = "#!/bin/sh\nexec \"$@\"\n";

/// Chooses the wanted number of agents, and records the numbers that the responses allow.
#[derive(Debug)]
pub(crate) struct Agents {
    random: StdRng,
    planned: u32,
    possible_counts: BTreeSet<u32>,
}

impl Agents {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(!seed),
            planned: 1,
            possible_counts: BTreeSet::from([1]),
        }
    }

    /// The request of the next step, if there is one: the index of the daemon, and the number.
    pub(crate) fn next(&mut self) -> Option<(usize, u32)> {
        let scales = self.random.random_bool(SCALE_PROBABILITY);
        let (daemon, count) = (
            self.random.random_range(0..2),
            self.random.random_range(0..=MAX_AGENTS),
        );
        scales.then(|| {
            self.planned = count;
            (daemon, count)
        })
    }

    /// The wanted number if every request succeeded.
    pub(crate) fn planned(&self) -> u32 {
        self.planned
    }

    /// Applies a request and its outcome.
    pub(crate) fn apply_write(&mut self, count: u32, outcome: Outcome) {
        match outcome {
            Outcome::Acknowledged => self.possible_counts = BTreeSet::from([count]),
            Outcome::Unanswered => {
                self.possible_counts.insert(count);
            }
            Outcome::Rejected => {}
        }
    }

    /// Whether this is the only possible number.
    pub(crate) fn is_certainly(&self, count: u32) -> bool {
        self.possible_counts.len() == 1 && self.possible_counts.contains(&count)
    }

    /// Applies the number that a daemon shows. An error means that earlier responses exclude it.
    pub(crate) fn apply_observed(&mut self, count: u32) -> Result<(), String> {
        if self.possible_counts.contains(&count) {
            self.possible_counts = BTreeSet::from([count]);
            return Ok(());
        }
        Err(format!(
            "{count} agents are wanted, acknowledged was {:?}",
            self.possible_counts
        ))
    }
}

/// Requests a number of agents; returns the outcome and its description.
pub(crate) async fn scale(site: &Site, daemon: usize, count: u32) -> (Outcome, String) {
    let url = site.framework(daemon, &format!("/agent/scale/{count}"));
    let request = site.http.request(Method::PUT, url).timeout(REQUEST_TIMEOUT);
    match request.send().await {
        Ok(response) => outcome_of(response).await,
        Err(error) if error.is_connect() => (Outcome::Rejected, "no connection".to_owned()),
        Err(error) => (
            Outcome::Unanswered,
            format!("no answer: {:#}", anyhow::Error::from(error)),
        ),
    }
}

/// The wanted number of agents. A standby forwards the request to the leader.
pub(crate) async fn wanted(site: &Site) -> anyhow::Result<u32> {
    let shown = get(site, &site.framework(0, "/agent/scale")).await?;
    let count = shown["Scale"]
        .as_u64()
        .and_then(|count| u32::try_from(count).ok());
    count.with_context(|| format!("no number of agents in {shown}"))
}

/// The reason why not all nodes are ready.
pub(crate) async fn not_ready(site: &Site) -> anyhow::Result<Option<String>> {
    let url = site.framework(0, "/status/orch");
    let answer = site.http.get(url).timeout(REQUEST_TIMEOUT).send().await?;
    let text = answer.error_for_status()?.text().await?;
    if text == "ok" {
        return Ok(None);
    }
    Ok(Some(get(site, &site.framework(0, "/explain")).await?.to_string()))
}

/// Removes the framework's tasks from those of the run, and returns them.
pub(crate) fn tasks_of(running: &mut Vec<Process>) -> Vec<Process> {
    running
        .extract_if(.., |process| process.app.starts_with(PREFIX))
        .collect()
}

/// Compares the running tasks at a quiet moment with the wanted ones.
pub(crate) fn compare(agents: u32, running: &[Process]) -> Vec<Breach> {
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for process in running {
        by_kind.entry(&process.app).or_default().push(&process.task);
    }
    let mut breaches = Vec::new();
    for (kind, count) in [("datastore", 1), ("server", 1), ("agent", agents as usize)] {
        let app = format!("{PREFIX}{kind}");
        let tasks = by_kind.remove(app.as_str()).unwrap_or_default();
        let invariant = if tasks.len() < count {
            Invariant::WantedRunOnce
        } else {
            Invariant::NoneUnwanted
        };
        if tasks.len() != count {
            breaches.push((
                invariant,
                format!("{app} has {} tasks and not {count}: {tasks:?}", tasks.len()),
            ));
        }
    }
    breaches
}

/// The framework ids of these tasks.
pub(crate) fn ids(running: &[Process]) -> impl Iterator<Item = &str> {
    let own = running.iter().filter(|process| process.app.starts_with(PREFIX));
    own.map(|process| process.framework.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(kind: &str, task: &str) -> Process {
        Process {
            app: format!("{PREFIX}{kind}"),
            task: task.to_owned(),
            framework: "f".to_owned(),
            revision: "0".to_owned(),
            pid: 1,
            start: 1,
        }
    }

    #[test]
    fn possible_numbers_of_agents_follow_from_the_responses() {
        let mut agents = Agents::new(1);
        assert!(agents.is_certainly(1));
        agents.apply_write(3, Outcome::Unanswered);
        assert!(!agents.is_certainly(1) && !agents.is_certainly(3));
        agents.apply_write(4, Outcome::Rejected);
        assert!(agents.apply_observed(4).is_err());
        agents.apply_observed(3).unwrap();
        assert!(agents.is_certainly(3) && agents.apply_observed(1).is_err());
        agents.apply_write(0, Outcome::Acknowledged);
        assert!(agents.is_certainly(0));
    }

    #[test]
    fn requests_depend_only_on_the_seed() {
        let text = |seed| {
            let mut agents = Agents::new(seed);
            (0..50).map(|_| agents.next()).collect::<Vec<_>>()
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn tasks_are_compared_with_the_wanted_ones() {
        let (datastore, server) = (process("datastore", "d"), process("server", "s"));
        let agents = [process("agent", "a"), process("agent", "b")];
        let whole = [&[datastore.clone(), server.clone()][..], &agents].concat();
        let table = [
            (2, whole.clone(), vec![]),
            (1, whole.clone(), vec![Invariant::NoneUnwanted]),
            (3, whole.clone(), vec![Invariant::WantedRunOnce]),
            (2, whole[1..].to_vec(), vec![Invariant::WantedRunOnce]),
        ];
        for (wanted, running, expected) in table {
            let found = compare(wanted, &running)
                .into_iter()
                .map(|(invariant, _)| invariant);
            assert_eq!(found.collect::<Vec<_>>(), expected, "{running:?}");
        }
    }
}
