//! The state document, `GET /state`: the older and larger source of a master's state.
//!
//! It differs from the v1 messages in form: ids are plain strings, agents are "slaves", counts and
//! amounts are floats, ports are a text (`"[31000-31001, 31010-31010]"`), attributes and resources
//! are objects keyed by name, labels are lists. Only the fields that discovery and the tests use
//! are modelled.

use crate::error::Result;
use crate::ids::{AgentId, ExecutorId, FrameworkId, TaskId};
use crate::lenient::{self, Lenient, prune_list};
use crate::v1::macros::messages;
use crate::v1::{ContainerInfo, ContainerStatus, DiscoveryInfo, DomainInfo, HealthCheck, Label, TaskState};
use serde_json::Value;
use std::collections::BTreeMap;

messages! {
    /// The state of one master. `leader` and `pid` are `master@ip:port`; `leader` is missing while
    /// none leads. `flags` are the master's command line. Times are seconds since 1970. `invalid_entries`
    /// counts invalid agents, frameworks and tasks.
    State {
        must {
            #[serde(default)] id: String,
            #[serde(default)] pid: String,
            #[serde(default)] hostname: String,
            #[serde(default)] version: String,
            #[serde(default)] activated_slaves: f64,
            #[serde(default)] deactivated_slaves: f64,
            #[serde(default)] unreachable_slaves: f64,
            #[serde(skip)] invalid_entries: u64,
        }
        may {
            leader: Option<String>,
            leader_info: Option<Leader>,
            cluster: Option<String>,
            start_time: Option<f64>,
            elected_time: Option<f64>,
            domain: Option<DomainInfo>,
            flags: BTreeMap<String, String>,
            slaves: Vec<Slave>,
            recovered_slaves: Vec<Slave>,
            frameworks: Vec<Framework>,
            completed_frameworks: Vec<Framework>,
            orphan_tasks: Vec<Task>,
        }
    }
    /// The leading master, as a follower knows it.
    Leader {
        must { #[serde(default)] id: String, #[serde(default)] pid: String, #[serde(default)] hostname: String }
        may { port: Option<u16>, domain: Option<DomainInfo> }
    }
    /// An agent; `pid` is `slave(1)@ip:port`. An attribute is a text or a number.
    Slave {
        must {
            #[serde(with = "crate::ids::plain")] id: AgentId,
            #[serde(default)] hostname: String,
            #[serde(default)] pid: String,
            #[serde(default)] active: bool,
            #[serde(default)] deactivated: bool,
            #[serde(default)] resources: Resources,
            #[serde(default)] used_resources: Resources,
            #[serde(default)] offered_resources: Resources,
        }
        may {
            port: Option<u16>,
            attributes: BTreeMap<String, Value>,
            domain: Option<DomainInfo>,
            registered_time: Option<f64>,
            reregistered_time: Option<f64>,
            version: Option<String>,
        }
    }
    /// Amounts by name; `ports` is a text. Names beyond the usual ones are in `other`.
    Resources {
        must {
            #[serde(default)] cpus: f64,
            #[serde(default)] mem: f64,
            #[serde(default)] disk: f64,
            #[serde(default)] gpus: f64,
            #[serde(flatten)] other: BTreeMap<String, Value>,
        }
        may { ports: Option<String> }
    }
    /// A framework. Only frameworks of the older API have a `pid`.
    Framework {
        must {
            #[serde(with = "crate::ids::plain")] id: FrameworkId,
            #[serde(default)] name: String,
            #[serde(default)] user: String,
            #[serde(default)] hostname: String,
            #[serde(default)] webui_url: String,
            #[serde(default)] active: bool,
            #[serde(default)] connected: bool,
            #[serde(default)] recovered: bool,
            #[serde(default)] checkpoint: bool,
            #[serde(default)] failover_timeout: f64,
            #[serde(default)] resources: Resources,
            #[serde(default)] used_resources: Resources,
            #[serde(default)] offered_resources: Resources,
        }
        may {
            pid: Option<String>,
            principal: Option<String>,
            role: Option<String>,
            roles: Vec<String>,
            capabilities: Vec<String>,
            labels: Vec<Label>,
            registered_time: Option<f64>,
            reregistered_time: Option<f64>,
            unregistered_time: Option<f64>,
            tasks: Vec<Task>,
            unreachable_tasks: Vec<Task>,
            completed_tasks: Vec<Task>,
            executors: Vec<Value>,
        }
    }
    /// A task. `executor_id` is empty when the task has a command executor of its own.
    Task {
        must {
            #[serde(with = "crate::ids::plain")] id: TaskId,
            #[serde(default)] name: String,
            #[serde(default, with = "crate::ids::plain")] framework_id: FrameworkId,
            #[serde(default, with = "crate::ids::plain")] executor_id: ExecutorId,
            #[serde(default, with = "crate::ids::plain")] slave_id: AgentId,
            state: TaskState,
            #[serde(default)] resources: Resources,
        }
        may {
            role: Option<String>,
            user: Option<String>,
            labels: Vec<Label>,
            discovery: Option<DiscoveryInfo>,
            container: Option<ContainerInfo>,
            health_check: Option<HealthCheck>,
            statuses: Vec<Status>,
        }
    }
    /// The last update of each state of a task, shortened: no message, reason, uuid or check
    /// result.
    Status {
        must { state: TaskState, #[serde(default)] timestamp: f64 }
        may { labels: Vec<Label>, container_status: Option<ContainerStatus>, healthy: Option<bool> }
    }
}

/// A type for the state document, for callers that need only some of it.
pub trait Document: Sized + Send + 'static {
    /// Parses it.
    fn read(document: &[u8]) -> serde_json::Result<Self>;

    /// The leading master's process id in the document.
    fn leader(&self) -> Option<&str>;

    /// The process id of the master that wrote it.
    fn pid(&self) -> Option<&str>;
}

impl Lenient for State {
    fn prune(document: &mut Value) -> u64 {
        let mut count = 0;
        for list in ["frameworks", "completed_frameworks"] {
            for framework in document
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                for tasks in ["/tasks", "/unreachable_tasks", "/completed_tasks"] {
                    count += prune_list::<Task>(framework, tasks);
                }
            }
        }
        count
            + prune_list::<Framework>(document, "/frameworks")
            + prune_list::<Framework>(document, "/completed_frameworks")
            + prune_list::<Slave>(document, "/slaves")
            + prune_list::<Slave>(document, "/recovered_slaves")
            + prune_list::<Task>(document, "/orphan_tasks")
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.invalid_entries = count;
    }
}

impl State {
    /// Parses the document. Invalid agents, frameworks and tasks are omitted and counted.
    pub fn decode(document: &[u8]) -> Result<Self> {
        lenient::read(document, || "the state document".to_owned())
    }

    /// Whether the master hides what runs: resources are used, but neither a task nor an executor is
    /// listed. A real master omits each framework, task and executor that its ACLs do not let the
    /// principal view, without an error, but shows agents with `used_resources`.
    pub fn hides_tasks(&self) -> bool {
        let uses = |used: &Resources| used.cpus > 0.0 || used.mem > 0.0 || used.disk > 0.0 || used.gpus > 0.0;
        let lists = |one: &Framework| !one.tasks.is_empty() || !one.executors.is_empty();
        if self.frameworks.iter().any(lists) || !self.orphan_tasks.is_empty() {
            false
        } else if self.frameworks.is_empty() {
            self.slaves.iter().any(|agent| uses(&agent.used_resources))
        } else {
            self.frameworks.iter().any(|one| uses(&one.used_resources))
        }
    }
}

impl Resources {
    /// The port ranges, each from first to last inclusive. Invalid ranges are omitted.
    pub fn port_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let text = self.ports.as_deref().unwrap_or_default();
        text.trim_matches(['[', ']']).split(',').filter_map(|part| {
            let (begin, end) = part.trim().split_once('-')?;
            Some((begin.parse().ok()?, end.parse().ok()?))
        })
    }
}

/// The host and port of a pid (`slave(1)@127.0.0.1:5051`, `master@[::1]:5050`); none when it is not
/// one.
pub fn pid_address(pid: &str) -> Option<(&str, u16)> {
    let (_, address) = pid.rsplit_once('@')?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    (!host.is_empty()).then_some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_parsed_from_text() {
        let cases: [(&str, &[(u64, u64)]); 4] = [
            ("[31000-31001, 31010-31010]", &[(31000, 31001), (31010, 31010)]),
            ("[]", &[]),
            ("[7-7]", &[(7, 7)]),
            ("[a-b, 1-2, 3]", &[(1, 2)]),
        ];
        for (text, expected) in cases {
            let resources = Resources {
                ports: Some(text.into()),
                ..Resources::default()
            };
            assert_eq!(resources.port_ranges().collect::<Vec<_>>(), expected, "{text}");
        }
        assert_eq!(Resources::default().port_ranges().count(), 0);
    }

    #[test]
    fn null_fields_are_treated_as_missing() {
        let document = br#"{"leader":null,"flags":null,"slaves":null,"frameworks":[
            {"id":"f","tasks":null,"completed_tasks":[{"id":"t","state":"TASK_FAILED","statuses":null,"labels":null}]}]}"#;
        let state = State::decode(document).unwrap();
        assert_eq!(
            (state.invalid_entries, state.slaves.len(), state.flags.len()),
            (0, 0, 0)
        );
        assert!(state.frameworks[0].tasks.is_empty());
        assert!(state.frameworks[0].completed_tasks[0].statuses.is_empty());
    }

    #[test]
    fn used_resources_without_tasks_show_that_they_are_hidden() {
        let used = |cpus: f64| serde_json::json!({"cpus": cpus, "mem": 0.0, "disk": 0.0, "gpus": 0.0});
        let framework = |cpus: f64, lists: Value| {
            let mut framework = serde_json::json!({"id": "f", "used_resources": used(cpus)});
            framework
                .as_object_mut()
                .unwrap()
                .extend(lists.as_object().unwrap().clone());
            framework
        };
        let task = serde_json::json!({"tasks": [{"id": "t", "state": "TASK_RUNNING"}]});
        let executor = serde_json::json!({"executors": [{"executor_id": "e"}]});
        let cases = [
            (1.0, vec![], true),
            (0.0, vec![], false),
            (1.0, vec![framework(1.0, task)], false),
            (1.0, vec![framework(1.0, executor)], false),
            (1.0, vec![framework(1.0, serde_json::json!({}))], true),
            // Another framework may be hidden on purpose.
            (1.0, vec![framework(0.0, serde_json::json!({}))], false),
        ];
        for (cpus, frameworks, expected) in cases {
            let slaves = [serde_json::json!({"id": "s", "used_resources": used(cpus)})];
            let document = serde_json::json!({"slaves": slaves, "frameworks": frameworks}).to_string();
            let state = State::decode(document.as_bytes()).unwrap();
            assert_eq!(state.hides_tasks(), expected, "{document}");
        }
    }

    #[test]
    fn custom_resources_are_kept() {
        let text = r#"{"cpus":1.0,"mem":2.0,"disk":0.0,"gpus":0.0,"licences":3.0}"#;
        let resources: Resources = serde_json::from_str(text).unwrap();
        assert_eq!(resources.other.get("licences"), Some(&Value::from(3.0)));
        assert_eq!(serde_json::to_string(&resources).unwrap(), text);
    }

    #[test]
    fn pids_have_an_address() {
        for (pid, expected) in [
            ("slave(1)@127.0.0.1:5051", Some(("127.0.0.1", 5051))),
            ("master@[::1]:5050", Some(("::1", 5050))),
            ("scheduler-1@host.example:1", Some(("host.example", 1))),
            ("master@:5050", None),
            ("master@host", None),
            ("127.0.0.1:5050", None),
            ("master@host:70000", None),
        ] {
            assert_eq!(pid_address(pid), expected, "{pid}");
        }
    }
}
