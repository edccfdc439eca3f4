//! What must hold after each step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use transom_store::Leadership;

use crate::calls::Call;
use crate::candidate::TTL;
use crate::services::FRAMEWORKS;
use crate::store::{HeldLease, Server};

/// How long after the last fault everything must be in order again: calls that were made before have
/// arrived, even the slowest, and a lease that one of them acquired for nobody has ended.
const SETTLING: Duration = Duration::from_secs(4 * TTL.as_secs());

/// A disturbance of at most this time costs at most one renewal of a lease.
const MAX_SHORT: Duration = Duration::from_secs(1);
/// Two disturbances with less time between them count as one.
const CLOSE: Duration = Duration::from_secs(1);

/// An invariant that does not hold.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Violation {
    /// In the time of the simulation, in seconds.
    pub at: f64,
    /// The violated invariant, in words.
    pub what: String,
    /// The last events before it, oldest first.
    pub events: Vec<String>,
}

impl Violation {
    /// The job or the app that it is about, if it is about one.
    pub fn subject(&self) -> Option<&str> {
        let mut words = self.what.split([' ', ',', '.', ':']);
        words.find(|word| word.starts_with("job-") || word.starts_with("app-"))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(f, "{event}")?;
        }
        write!(f, "{:>12.2} s  VIOLATED: {}", self.at, self.what)
    }
}

/// A daemon after a step in which it ran.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) address: &'a str,
    /// Whether its term has time left by its own clock, so that it acts.
    pub(crate) acts: bool,
    /// Whether it has just lost a term that it had not given up.
    pub(crate) has_lost: bool,
    pub(crate) leadership: Option<Leadership>,
}

/// The name of the framework with this id or name.
pub(crate) fn framework(id: &str, server: &Server) -> Option<&'static str> {
    FRAMEWORKS.into_iter().find(|name| {
        let stored = || server.get(&format!("{name}/framework-id"));
        *name == id || stored().is_some_and(|stored| stored == id.as_bytes())
    })
}

/// What the invariants remember between steps.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// Whether the only daemon has an embedded store, and so never loses its term.
    embedded: bool,
    /// When the last fault was active.
    last_fault: Duration,
    /// When the present state of leadership began, and who leads.
    leader: (Duration, Option<String>),
    /// When each daemon was last disturbed: intervals in which calls to the store got lost or were
    /// slow, or in which it did not run.
    disturbances: BTreeMap<String, VecDeque<(Duration, Duration)>>,
    /// The last statuses of tasks that were acknowledged when they were stored, as UUIDs.
    acknowledged: BTreeSet<String>,
}

impl Invariants {
    pub(crate) fn new(embedded: bool) -> Self {
        Self {
            embedded,
            ..Self::default()
        }
    }

    /// How long there have been no faults.
    pub(crate) fn calm(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_fault)
    }

    /// Records whether a daemon is disturbed.
    pub(crate) fn disturbed(&mut self, address: &str, is_disturbed: bool, now: Duration) {
        let intervals = self.disturbances.entry(address.to_owned()).or_default();
        if is_disturbed {
            match intervals.back_mut() {
                Some((_, end)) if *end + CLOSE >= now => *end = now,
                _ => intervals.push_back((now, now)),
            }
        }
        while intervals.front().is_some_and(|(_, end)| *end + 2 * TTL < now) {
            intervals.pop_front();
        }
    }

    /// Whether a daemon was disturbed so shortly that it had time to renew its lease.
    fn could_renew(&self, address: &str) -> bool {
        if self.embedded {
            return true;
        }
        let intervals = self.disturbances.get(address);
        let mut lengths = intervals
            .into_iter()
            .flatten()
            .map(|(start, end)| end.saturating_sub(*start));
        lengths.next().is_none_or(|length| length <= MAX_SHORT) && lengths.next().is_none()
    }

    /// Checks a call that the master accepts.
    pub(crate) fn check_call(&mut self, call: &Call, server: &Server) -> Result<(), String> {
        let Some(framework) = call.framework.as_deref().and_then(|id| framework(id, server)) else {
            return Ok(());
        };
        for task in &call.tasks {
            let record = server.get(&format!("{framework}/tasks/{task}"));
            if call.is_launch() && record.is_none() {
                return Err(format!("{task} is launched and not stored"));
            }
            let (Some(uuid), Some(record)) = (&call.acknowledged, record) else {
                continue;
            };
            let record: Value = serde_json::from_slice(record).unwrap_or_default();
            // An earlier status may be acknowledged again. That of an end is not stored if the end was, after
            // a reconciliation, whose statuses have no UUID.
            let has_ended = matches!(
                record["state"].as_str(),
                Some("TASK_FINISHED" | "TASK_FAILED" | "TASK_KILLED" | "TASK_ERROR")
            );
            if has_ended || record["status"]["uuid"] == **uuid {
                self.acknowledged.insert(uuid.clone());
            } else if !self.acknowledged.contains(uuid) {
                return Err(format!(
                    "a status of {task} is acknowledged and not stored, which has {} there",
                    record["state"].as_str().unwrap_or("no state")
                ));
            }
        }
        Ok(())
    }

    /// Checks the daemons that run. `held` is the lease in the store.
    pub(crate) fn check(
        &mut self,
        now: Duration,
        has_faults: bool,
        daemons: &[View<'_>],
        held: Option<&HeldLease>,
    ) -> Result<(), String> {
        if has_faults {
            self.last_fault = now;
        }
        let holder = held.and_then(|held| Some(held.holder.split_once(' ')?.1));
        for daemon in daemons.iter().filter(|daemon| daemon.acts) {
            if holder != Some(daemon.address) {
                let holder = holder.unwrap_or("nobody");
                return Err(format!(
                    "{} acts as leader, but {holder} has the lease",
                    daemon.address
                ));
            }
        }
        let lost = daemons.iter().filter(|daemon| daemon.has_lost);
        if let Some(daemon) = lost.into_iter().find(|daemon| self.could_renew(daemon.address)) {
            return Err(format!(
                "{} lost its term, and could have kept it",
                daemon.address
            ));
        }
        let acting = daemons.iter().find(|daemon| daemon.acts);
        let acting = acting.map(|daemon| daemon.address.to_owned());
        if acting != self.leader.1 {
            self.leader = (now, acting);
        }
        let (since, leader) = &self.leader;
        let settled = self.last_fault.max(*since) + SETTLING;
        if now < settled {
            return Ok(());
        }
        let Some(leader) = leader else {
            return Err(format!(
                "nobody leads {} s after the last fault",
                now.saturating_sub(self.last_fault).as_secs()
            ));
        };
        for daemon in daemons {
            let expected = if daemon.address == leader {
                Leadership::Leader
            } else {
                Leadership::Follower(leader.clone())
            };
            if daemon.leadership.as_ref() != Some(&expected) {
                return Err(format!(
                    "{leader} leads, but {} says {:?}",
                    daemon.address, daemon.leadership
                ));
            }
        }
        Ok(())
    }
}
