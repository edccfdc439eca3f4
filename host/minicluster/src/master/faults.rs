//! `/minicluster/faults`, which no real master has. GET lists all faults and the active ones, POST
//! injects one.
//!
//! A call is a JSON object with `fault` and its listed parameters; other members are rejected with
//! 400, and another content type, or none, with 415. The response is 200 with the faults that are active after the call. Faults never affect
//! this page itself, on either master. If calls need credentials, so does this page.

use crate::{
    config::Registry,
    http::{Body, Rejection, authenticate, check_plain_type, json, not_found, read_body, rejection},
    shared::Shared,
    state::{AgentFault, Restart, State},
};
use http::{HeaderMap, Method, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Map, Value, json as document};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A fault with its parameters and their meanings.
struct Fault {
    name: &'static str,
    description: &'static str,
    parameters: &'static [(&'static str, &'static str)],
}

const AGENT_PARAMETER: (&str, &str) = ("agent", "its id, the end of it (S0), or its host name");
const FRAMEWORK_PARAMETER: (&str, &str) = ("framework", "its id or its name");
const REGISTRY_PARAMETER: (&str, &str) = (
    "registry",
    "in_memory or replicated_log: what the master remembers of its agents; as configured when absent",
);
const DOWN_PARAMETER: (&str, &str) = (
    "down_ms",
    "for how long the master's port closes every connection, and a standby redirects to it; 100 when absent",
);
const ELECTION_PARAMETER: (&str, &str) = (
    "election_ms",
    "for how long the standby then answers 503, No leader elected; 100 when absent",
);
const STARTING_PARAMETER: (&str, &str) = (
    "starting_ms",
    "for how long every request is then answered 404, as by a real master that has just been started; 200 when absent",
);
const RECOVERY_PARAMETER: (&str, &str) = (
    "recovery_ms",
    "for how long calls are then answered 503, Master has not finished recovery, and lists are empty; 100 when absent",
);
/// The times of a real master that starts and recovers with little state. The first two are shorter
/// than those of a real failover (see [`crate::state::restart`]).
const DEFAULT_DOWN: Duration = Duration::from_millis(100);
const DEFAULT_ELECTION: Duration = Duration::from_millis(100);
const DEFAULT_STARTING: Duration = Duration::from_millis(200);
const DEFAULT_RECOVERY: Duration = Duration::from_millis(100);

static FAULTS: &[Fault] = &[
    Fault {
        name: "kill-agent",
        description: "Kills an agent: its offers are rescinded, tasks of frameworks without checkpoint are lost, the others \
               are unreachable after the agent timeout. Its port closes every connection.",
        parameters: &[
            AGENT_PARAMETER,
            (
                "keep_tasks",
                "true: the tasks' processes live on; else they are killed too",
            ),
        ],
    },
    Fault {
        name: "start-agent",
        description: "Starts a killed agent: it registers again, with the tasks that still run; for the others it says \
               TASK_FAILED.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "pause-agent",
        description: "Stops an agent: no updates, no answers, orders wait. The master notices after the agent timeout.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "resume-agent",
        description: "Lets a paused agent go on.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "partition-agent",
        description: "Separates an agent from the master, which notices after the agent timeout. Others still reach it.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "heal-agent",
        description: "Ends the partition: the agent comes back with what it runs.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "unregister-agent",
        description: "Stops an agent in good order, as SIGUSR1 does: its tasks are lost and killed, and operators are told \
               AGENT_REMOVED. It does not come back.",
        parameters: &[AGENT_PARAMETER],
    },
    Fault {
        name: "lose-updates",
        description: "The next updates from agents do not arrive; they come when they are retried.",
        parameters: &[("count", "how many; 0 ends it")],
    },
    Fault {
        name: "cut-stream",
        description: "Ends a framework's event stream in the middle of a record, without the terminating chunk.",
        parameters: &[FRAMEWORK_PARAMETER],
    },
    Fault {
        name: "restart-master",
        description: "Kills and starts the leading master: streams are cut, frameworks, tasks and offers forgotten until \
               frameworks subscribe and agents register again.",
        parameters: &[
            REGISTRY_PARAMETER,
            DOWN_PARAMETER,
            STARTING_PARAMETER,
            RECOVERY_PARAMETER,
        ],
    },
    Fault {
        name: "fail-over",
        description: "The same, but the standby leads afterwards. The other one returns when that has recovered, and redirects \
               to it. Masters that elect a leader have a common registry, so it is replicated_log when absent.",
        parameters: &[
            REGISTRY_PARAMETER,
            DOWN_PARAMETER,
            ELECTION_PARAMETER,
            RECOVERY_PARAMETER,
        ],
    },
    Fault {
        name: "executor-message",
        description: "Has the executor of a task send its framework a MESSAGE event. The executor of a command task has the \
               task's id.",
        parameters: &[
            ("task", "its id"),
            (
                "framework",
                "its id or its name; may be absent where only one framework has such a task",
            ),
            ("data", "the message, in base64"),
        ],
    },
    Fault {
        name: "remove-framework",
        description: "Removes a framework as an operator does: its stream ends, its tasks are killed.",
        parameters: &[FRAMEWORK_PARAMETER],
    },
    Fault {
        name: "delay",
        description: "Every answer and every event is late.",
        parameters: &[("ms", "by how many milliseconds; 0 ends it")],
    },
    Fault {
        name: "rescind-offers",
        description: "Takes back all offers, or those of one agent. Free resources are offered again at the next allocation.",
        parameters: &[("agent", "as above; all when absent")],
    },
];

/// Answers a request to this page.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response<Body>, Rejection> {
    authenticate(&shared.config, headers, "mesos-master-readwrite")?;
    let mut response = Map::new();
    if method == Method::GET {
        response.insert("faults".to_owned(), FAULTS.iter().map(fault_document).collect());
    } else if method == Method::POST {
        check_plain_type(headers, "application/json")?;
        if !headers.contains_key(header::CONTENT_TYPE) {
            let why = "Expecting 'Content-Type' of application/json";
            return Err(rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let body = read_body(body).await?;
        let bad_request = |why: String| rejection(StatusCode::BAD_REQUEST, why);
        let request = FaultRequest::parse(&body).map_err(bad_request)?;
        shared
            .change_faults(|state| request.apply(state, Instant::now()))
            .map_err(bad_request)?;
        tracing::info!(fault = request.fault.name, "fault injected");
    } else {
        return Err(not_found());
    }
    let active = shared.with_state(|state| state.active_faults(Instant::now()));
    response.insert("in_force".to_owned(), Value::Array(active));
    Ok(json(&Value::Object(response)))
}

fn fault_document(fault: &Fault) -> Value {
    let parameters: Map<String, Value> = fault
        .parameters
        .iter()
        .map(|(name, description)| ((*name).to_owned(), document!(description)))
        .collect();
    document!({"fault": fault.name, "description": fault.description, "parameters": parameters})
}

/// A request for a fault, with its parameters.
struct FaultRequest {
    fault: &'static Fault,
    arguments: Value,
}

impl FaultRequest {
    fn parse(body: &[u8]) -> Result<Self, String> {
        let arguments: Value =
            serde_json::from_slice(body).map_err(|error| format!("The body is not JSON: {error}"))?;
        let Value::Object(fields) = &arguments else {
            return Err("Expecting a JSON object".to_owned());
        };
        let name = arguments["fault"]
            .as_str()
            .ok_or("Expecting 'fault' to be a text")?;
        let fault = FAULTS.iter().find(|fault| fault.name == name).ok_or_else(|| {
            let names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
            format!("Unknown fault '{name}': expecting one of {}", names.join(", "))
        })?;
        let unknown_key = fields
            .keys()
            .find(|key| *key != "fault" && !fault.parameters.iter().any(|(name, _)| name == key));
        match unknown_key {
            Some(key) => Err(format!("'{name}' takes no '{key}'")),
            None => Ok(Self { fault, arguments }),
        }
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        self.arguments[key]
            .as_str()
            .ok_or_else(|| format!("Expecting '{key}' to be a text"))
    }

    fn number(&self, key: &str) -> Result<u64, String> {
        self.arguments[key]
            .as_u64()
            .ok_or_else(|| format!("Expecting '{key}' to be a number, zero or more"))
    }

    /// The parameter `key` as a duration of at most an hour; `default` if it is missing.
    fn time(&self, key: &str, default: Duration) -> Result<Duration, String> {
        if self.arguments.get(key).is_none() {
            return Ok(default);
        }
        match self.number(key)? {
            ms @ ..=3_600_000 => Ok(Duration::from_millis(ms)),
            ms => Err(format!("'{key}' is {ms}: expecting an hour at the most")),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.arguments.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("Expecting '{key}' to be true or false")),
        }
    }

    fn restart(&self, state: &State) -> Result<Restart, String> {
        let swaps_leader = self.fault.name == "fail-over";
        let registry = match self
            .arguments
            .get("registry")
            .map(|_| self.text("registry"))
            .transpose()?
        {
            None if swaps_leader => Registry::ReplicatedLog,
            None => state.config.registry,
            Some("in_memory") => Registry::InMemory,
            Some("replicated_log") => Registry::ReplicatedLog,
            Some(other) => {
                return Err(format!(
                    "'registry' is '{other}': expecting in_memory or replicated_log"
                ));
            }
        };
        if swaps_leader && state.standbys.is_empty() {
            return Err("There is no standby to fail over to".to_owned());
        }
        Ok(Restart {
            registry,
            down: self.time("down_ms", DEFAULT_DOWN)?,
            election: if swaps_leader {
                self.time("election_ms", DEFAULT_ELECTION)?
            } else {
                Duration::ZERO
            },
            // The standby master is already running when it becomes the leading one.
            starting: if swaps_leader {
                Duration::ZERO
            } else {
                self.time("starting_ms", DEFAULT_STARTING)?
            },
            recovery: self.time("recovery_ms", DEFAULT_RECOVERY)?,
            swaps_leader,
            away: None,
        })
    }

    fn apply(&self, state: &mut State, now: Instant) -> Result<(), String> {
        let id = |state: &State| state.find_agent(self.text("agent")?);
        let framework = |state: &State| state.find_framework(self.text("framework")?);
        match self.fault.name {
            "kill-agent" => state.kill_agent(&id(state)?, self.flag("keep_tasks")?, now),
            "start-agent" => state.restore_agent(&id(state)?, AgentFault::Killed, now),
            "pause-agent" => state.silence_agent(&id(state)?, AgentFault::Paused, now),
            "resume-agent" => state.restore_agent(&id(state)?, AgentFault::Paused, now),
            "partition-agent" => state.silence_agent(&id(state)?, AgentFault::Partitioned, now),
            "heal-agent" => state.restore_agent(&id(state)?, AgentFault::Partitioned, now),
            "unregister-agent" => state.unregister_agent(&id(state)?),
            "lose-updates" => {
                state.lose_updates(self.number("count")?);
                Ok(())
            }
            "cut-stream" => state.cut_stream(&framework(state)?),
            "restart-master" | "fail-over" => {
                state.restart_master(self.restart(state)?, now);
                Ok(())
            }
            "executor-message" => {
                let framework = self.arguments.get("framework").map(|_| framework(state));
                state.send_as_executor(
                    framework.transpose()?.as_ref(),
                    self.text("task")?,
                    self.text("data")?,
                )
            }
            "remove-framework" => {
                let id = framework(state)?;
                state.remove_framework(&id);
                Ok(())
            }
            "delay" => {
                self.number("ms")?;
                state.faults.delay = self.time("ms", Duration::ZERO)?;
                Ok(())
            }
            "rescind-offers" => {
                let agent = self.arguments.get("agent").map(|_| id(state)).transpose()?;
                state.rescind(agent.as_ref());
                Ok(())
            }
            // Unreachable, because the table above lists no other fault.
            other => Err(format!("Unknown fault '{other}'")),
        }
    }
}
