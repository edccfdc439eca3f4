//! The stories: functions that users of the daemon rely on, each from start to end.

mod checks;
mod discovery;
mod events;
mod jobs;
mod kill;
mod leader;
mod lifecycle;
mod restart;
mod scale;

use std::fmt;

use clap::ValueEnum;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::site::{Site, merge};

/// The name of a story, as in `--only`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub enum Name {
    /// Create, run, change, scale, kill and delete an app.
    Lifecycle,
    /// Results of http, tcp and exec checks.
    Checks,
    /// Scaling an app to some dozens of tasks and back.
    Scale,
    /// A and SRV records of tasks.
    Discovery,
    /// The event stream.
    Events,
    /// Jobs of the workflow API.
    Jobs,
    /// Stopping the daemon with SIGTERM and starting it again.
    Restart,
    /// SIGKILL of the daemon during deployments.
    Kill,
    /// SIGKILL of the leader of two daemons with a Redis.
    Leader,
}

impl Name {
    /// All names, or the given ones, each once and in the order of the stories.
    pub fn in_order(selected: &[Self]) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|name| selected.is_empty() || selected.contains(name))
            .collect()
    }

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Checks => "checks",
            Self::Scale => "scale",
            Self::Discovery => "discovery",
            Self::Events => "events",
            Self::Jobs => "jobs",
            Self::Restart => "restart",
            Self::Kill => "kill",
            Self::Leader => "leader",
        }
    }

    /// The function that the story verifies.
    pub fn title(self) -> &'static str {
        match self {
            Self::Lifecycle => {
                "an app is created, changed by a rolling restart, scaled, has a killed task replaced, is deleted"
            }
            Self::Checks => "http, tcp and exec checks show their results and kill nothing",
            Self::Scale => "dozens of tasks come and go; none is lost, doubled or launched twice",
            Self::Discovery => {
                "DNS and the lookup API answer for running tasks and no longer for deleted ones"
            }
            Self::Events => "the event stream reports each request, task and deployment",
            Self::Jobs => {
                "jobs run, fail, are killed, and each is launched once although the daemon is killed"
            }
            Self::Restart => "a stopped and started daemon takes back its frameworks, tasks and jobs",
            Self::Kill => "a daemon killed during a deployment finishes it; no task is lost or doubled",
            Self::Leader => "a standby takes over from a killed leader and keeps framework and tasks",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Runs one story while the daemon runs. The error describes the violation.
pub(crate) async fn run(site: &mut Site, name: Name) -> anyhow::Result<()> {
    match name {
        Name::Lifecycle => lifecycle::run(site).await,
        Name::Checks => checks::run(site).await,
        Name::Scale => scale::run(site).await,
        Name::Discovery => discovery::run(site).await,
        Name::Events => events::run(site).await,
        Name::Jobs => jobs::run(site).await,
        Name::Restart => restart::run(site).await,
        Name::Kill => kill::run(site).await,
        Name::Leader => leader::run(site).await,
    }
}

/// An app of small tasks that sleep; `more` is added to its definition.
fn app(id: &str, instances: usize, more: &Value) -> Value {
    let mut definition = json!({
        "id": id,
        "cmd": "exec sleep 100000",
        "cpus": 0.01,
        "mem": 16,
        "disk": 0,
        "instances": instances,
        "portDefinitions": [],
        "requirePorts": false,
        // A failed task is replaced immediately and counts as a launch.
        "backoffSeconds": 1,
        "backoffFactor": 1.0,
        "maxLaunchDelaySeconds": 5,
    });
    merge(&mut definition, more);
    definition
}

/// Requests `count` host ports from the offers.
fn ports(count: usize) -> Value {
    let ports = (0..count).map(|number| json!({"port": 0, "protocol": "tcp", "name": format!("p{number}")}));
    ports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_in_the_order_of_stories() {
        for name in Name::value_variants() {
            let value = name.to_possible_value().unwrap();
            assert_eq!(value.get_name(), name.as_str());
        }
        let some = Name::in_order(&[Name::Kill, Name::Checks, Name::Kill]);
        assert_eq!(some, [Name::Checks, Name::Kill]);
        assert_eq!(Name::in_order(&[]).len(), 9);
    }
}
