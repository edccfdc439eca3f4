//! What the daemons' zones say about the tasks of apps.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use transom_discovery::zone::Zone;

use crate::agents::{Agents, address, agent};

/// After this time without faults, zones show all tasks that run and none that have ended.
const CALM: Duration = Duration::from_mins(3);
/// How long zones may differ from the tasks then: the time between two full comparisons, and a
/// report's way.
const DELAY: Duration = Duration::from_secs(90);
/// The domain of the names, without the name of the app.
const DOMAIN: &str = "marathon.mesos.";

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
        let addresses = |app: &str| -> Vec<Ipv4Addr> {
            let node = zone.node(&format!("{app}.{DOMAIN}"));
            node.map_or_else(Vec::new, |node| node.a().to_vec())
        };
        let (mut last, mut shown): (&str, Vec<Ipv4Addr>) = ("", Vec::new());
        let mut still = BTreeSet::new();
        for (app, task, process) in agents.apps() {
            if app != last {
                (last, shown) = (app, addresses(app));
            }
            // Its end may be on its way, or the master may have lost it.
            if process.is_disturbed || process.running.is_none() {
                continue;
            }
            if shown.contains(&address(process.agent)) {
                still.insert(task.to_owned());
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
            let Some(app) = name.strip_suffix(DOMAIN).and_then(|app| app.strip_suffix('.')) else {
                continue;
            };
            if !app.starts_with("app-") || app.contains(['.', '_']) || app.matches('-').count() > 1 {
                continue;
            }
            for ip in node.a() {
                let agent = agent(*ip);
                let runs = agents.instances(app).any(|process| process.agent == agent);
                let has_just_ended = agents.last_end(app, agent).is_some_and(|at| at + DELAY >= now);
                if !runs && !has_just_ended {
                    return Err(format!("the zone shows {app} at {ip}, where it no longer runs"));
                }
            }
        }
        Ok(())
    }
}
