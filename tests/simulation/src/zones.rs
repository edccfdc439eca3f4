//! What the daemons' zones say about the tasks of apps and jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_discovery::zone::Zone;

use crate::agents::{Agents, address, agent};

/// After this time without faults, zones show all tasks that run and none that have ended.
const CALM: Duration = Duration::from_mins(3);
/// How long zones may differ from the tasks then: the time between two full comparisons, and a
/// report's way.
const DELAY: Duration = Duration::from_secs(90);
/// How late the master may learn of the end of a task.
const LATE: Duration = Duration::from_mins(10);
/// The domains of the names that are compared.
const DOMAINS: [&str; 2] = [".marathon.mesos.", ".airflow.mesos."];

/// Compares the zones of one daemon with the tasks. It remembers which tasks the last one had.
#[derive(Debug, Default)]
pub(crate) struct ZoneCheck(BTreeSet<String>);

impl ZoneCheck {
    /// Checks the zone that a daemon serves. `calm`: how long there have been no faults.
    pub(crate) fn check(
        &mut self,
        zone: Option<Arc<Zone>>,
        now: Duration,
        calm: Duration,
        agents: &Agents,
    ) -> Result<(), String> {
        let Some(zone) = zone else {
            if calm >= CALM {
                return Err("there is no zone".to_owned());
            }
            return Ok(());
        };
        let mut running = BTreeMap::<_, u32>::new();
        for (name, _, process) in agents.named() {
            *running.entry((name, process.agent)).or_default() += 1;
        }
        let mut still = BTreeSet::new();
        for (name, task, process) in agents.named() {
            // Its end may be on its way, or the master may have lost it.
            if process.is_disturbed || process.running.is_none() {
                continue;
            }
            let node = zone.node(name);
            if node.is_some_and(|node| node.a().contains(&address(process.agent))) {
                // If another task has the name there, or had it until now, the address may be that one's.
                let has_ended = |at: Duration| at + LATE >= now;
                let is_alone = running.get(&(name, process.agent)) == Some(&1)
                    && !agents.last_end(name, process.agent).is_some_and(has_ended);
                if is_alone {
                    still.insert(task.to_owned());
                }
                continue;
            }
            let long = process.running.is_some_and(|since| since + DELAY <= now);
            if self.0.contains(task) {
                return Err(format!("the zone lacks {task}, which it had and which runs"));
            }
            if long && calm >= CALM {
                return Err(format!("the zone lacks {task}, which has been running"));
            }
        }
        self.0 = still;
        if calm < CALM {
            return Ok(());
        }
        for (name, node) in zone.iter() {
            let Some(label) = DOMAINS.iter().find_map(|domain| name.strip_suffix(domain)) else {
                continue;
            };
            // The name of all tasks of an app or of a job: `app-2`, not `app-2-x1y2z-s3`.
            let is_of_tasks = label.starts_with("app-") || label.starts_with("job-");
            if !is_of_tasks || label.contains(['.', '_']) || label.matches('-').count() > 1 {
                continue;
            }
            for ip in node.a() {
                let agent = agent(*ip);
                let runs = running.contains_key(&(name, agent));
                let has_just_ended = agents.last_end(name, agent).is_some_and(|at| at + DELAY >= now);
                if !runs && !has_just_ended {
                    return Err(format!("the zone shows {label} at {ip}, where it no longer runs"));
                }
            }
        }
        Ok(())
    }
}
