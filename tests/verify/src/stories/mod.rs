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
use serde::Serialize;
use serde_json::{Value, json};

use crate::site::{Site, merge};

/// Declares the stories in the order in which they run: module, name and title.
macro_rules! stories {
    ($($module:ident $Name:ident: $title:literal;)*) => {
        /// The name of a story, as in `--only`.
        #[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
        #[serde(rename_all = "lowercase")]
        pub enum Name {
            $(#[doc = $title] $Name,)*
        }

        impl Name {
            /// The name on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Name => stringify!($module),)*
                }
            }

            /// The function that the story verifies.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$Name => $title,)*
                }
            }
        }

        /// Runs one story while the daemon runs. The error describes the violation.
        pub(crate) async fn run(site: &mut Site, name: Name) -> anyhow::Result<()> {
            match name {
                $(Name::$Name => $module::run(site).await,)*
            }
        }
    };
}

stories! {
    lifecycle Lifecycle:
        "an app is created, changed by a rolling restart, scaled, has a killed task replaced, is deleted";
    checks Checks: "http, tcp and exec checks show their results and kill nothing";
    scale Scale: "dozens of tasks come and go; none is lost, doubled or launched twice";
    discovery Discovery: "DNS and the lookup API answer for running tasks and no longer for deleted ones";
    events Events: "the event stream reports each request, task and deployment";
    jobs Jobs: "jobs run, fail, are killed, and each is launched once although the daemon is killed";
    restart Restart: "a stopped and started daemon takes back its frameworks, tasks and jobs";
    kill Kill: "a daemon killed during a deployment finishes it; no task is lost or doubled";
    leader Leader: "a standby takes over from a killed leader and keeps framework and tasks";
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
