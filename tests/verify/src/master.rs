//! A client of the master's and the agents' HTTP APIs: the cluster's view of the daemon's tasks.
//!
//! It shares no code with the daemon's own client, so that the same bug cannot hide in both.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum of redirects in one call, in case the leading master changes.
const REDIRECTS: usize = 3;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No connection was possible, or it was closed.
    #[error("{0} cannot be reached")]
    Unreachable(String, #[source] reqwest::Error),
    /// An error status.
    #[error("{0} answered {1}: {body}", body = .2.trim())]
    Status(String, StatusCode, String),
    /// The body is not what was expected.
    #[error("{0}: {1}")]
    Body(String, String),
}

impl Error {
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(_, status, _) => Some(*status),
            Self::Unreachable(..) | Self::Body(..) => None,
        }
    }
}

/// A client of the leading master, and through it of the agents.
#[derive(Debug)]
pub(crate) struct Master {
    http: reqwest::Client,
    leader: Mutex<String>,
    credentials: Option<(String, String)>,
}

/// A framework that is not completed.
#[derive(Clone, Debug)]
pub(crate) struct Framework {
    pub(crate) id: String,
    pub(crate) name: String,
}

/// An agent that the master counts as active.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) hostname: String,
    /// `host:port` of its HTTP API.
    pub(crate) endpoint: String,
    pub(crate) free: Resources,
}

/// The available resources of an agent for a role.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) cpus: f64,
    /// In megabytes.
    pub(crate) mem: f64,
    pub(crate) ports: u32,
}

/// A task as the master shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) agent: String,
    /// The ports among its resources.
    pub(crate) ports: Vec<u16>,
    /// Addresses in the newest status that contains any.
    pub(crate) addresses: BTreeSet<String>,
    /// The message of the last status.
    pub(crate) message: String,
}

impl Task {
    /// Whether the task is starting, running, or being killed.
    pub(crate) fn is_active(&self) -> bool {
        is_active(&self.state)
    }

    /// The end of the task, for errors.
    pub(crate) fn end(&self) -> String {
        format!("{} ended in {}: {}", self.id, self.state, self.message)
    }
}

/// Whether a task in this state is starting, running, or being killed.
fn is_active(state: &str) -> bool {
    matches!(
        state,
        "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING" | "TASK_KILLING" | "TASK_UNREACHABLE"
    )
}

impl Master {
    /// `address` is the `host:port` of any master. A master that does not lead redirects to the
    /// leading one, which is used from then on. If the given master leads, it is used at the given
    /// address, because its own name for itself may be unknown on this machine.
    pub(crate) fn new(address: &str, credentials: Option<(String, String)>) -> anyhow::Result<Self> {
        let http = transom_tests::http_builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(TIMEOUT / 2)
            .timeout(TIMEOUT)
            .build()?;
        Ok(Self {
            http,
            leader: Mutex::new(address.to_owned()),
            credentials,
        })
    }

    /// `host:port` of the master in use.
    pub(crate) fn address(&self) -> String {
        self.leader
            .lock()
            .map(|leader| leader.clone())
            .unwrap_or_default()
    }

    fn follow(&self, leader: String) {
        if let Ok(mut address) = self.leader.lock() {
            *address = leader;
        }
    }

    /// The version of the master, which needs no credentials.
    pub(crate) async fn version(&self) -> Result<String, Error> {
        let document = self.get("/version").await?;
        text(&document, "/version", "/version")
    }

    /// A document of the master.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Error> {
        self.ask(Method::GET, path, None).await
    }

    /// Sends a reading call of the operator API; returns the part of the answer that has the call's
    /// name.
    pub(crate) async fn call(&self, kind: &str) -> Result<Value, Error> {
        let body = json!({"type": kind}).to_string();
        let answer = self
            .ask(Method::POST, "/api/v1", Some(("application/json", body)))
            .await?;
        Ok(answer[kind.to_ascii_lowercase()].clone())
    }

    /// Tears down a framework; the cluster kills its tasks.
    pub(crate) async fn tear_down(&self, framework: &str) -> Result<(), Error> {
        let body = format!("frameworkId={framework}");
        let form = "application/x-www-form-urlencoded";
        self.send(Method::POST, "/teardown", Some((form, body))).await?;
        Ok(())
    }

    /// The frameworks whose names begin with `prefix` and that are not completed.
    pub(crate) async fn frameworks(&self, prefix: &str) -> Result<Vec<Framework>, Error> {
        let document = self.call("GET_FRAMEWORKS").await?;
        let frameworks = list(&document["frameworks"]).filter_map(|framework| {
            let info = &framework["framework_info"];
            Some(Framework {
                id: info["id"]["value"].as_str()?.to_owned(),
                name: info["name"].as_str()?.to_owned(),
            })
        });
        Ok(frameworks
            .filter(|framework| framework.name.starts_with(prefix))
            .collect())
    }

    /// Every task of a framework that the master remembers, ended ones included, by `GET_TASKS`.
    pub(crate) async fn tasks(&self, framework: &str) -> Result<Vec<Task>, Error> {
        let document = self.call("GET_TASKS").await?;
        let lists = ["tasks", "unreachable_tasks", "completed_tasks"];
        let tasks = lists.iter().flat_map(|name| list(&document[*name]));
        Ok(tasks
            .filter(|task| task["framework_id"]["value"] == framework)
            .map(task)
            .collect())
    }

    /// The ids of a framework's active tasks, by the state document.
    pub(crate) async fn active_tasks_by_state(&self, framework: &str) -> Result<BTreeSet<String>, Error> {
        let document = self.get("/state").await?;
        let found = list(&document["frameworks"]).find(|one| one["id"] == framework);
        let tasks = found
            .into_iter()
            .flat_map(|one| list(&one["tasks"]).chain(list(&one["unreachable_tasks"])));
        Ok(tasks
            .filter(|task| is_active(&string(&task["state"])))
            .map(|task| string(&task["id"]))
            .collect())
    }

    /// The active agents and their available resources for `role`.
    pub(crate) async fn agents(&self, role: &str) -> Result<Vec<Agent>, Error> {
        let document = self.get("/slaves").await?;
        let agents = list(&document["slaves"]).filter(|agent| {
            agent["active"] == true && agent["deactivated"] != true && agent["drain_info"].is_null()
        });
        Ok(agents
            .map(|agent| Agent {
                id: string(&agent["id"]),
                hostname: string(&agent["hostname"]),
                endpoint: endpoint(agent),
                free: free(agent, role),
            })
            .collect())
    }

    /// A document of an agent.
    pub(crate) async fn agent_get(&self, endpoint: &str, path: &str) -> Result<Value, Error> {
        let url = format!("http://{endpoint}{path}");
        let answer = self.request(Method::GET, &url, None).await?;
        let answer = checked(url.clone(), answer).await?;
        json_body(url, answer).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Result<Value, Error> {
        let answer = self.send(method, path, body).await?;
        json_body(format!("http://{}{path}", self.address()), answer).await
    }

    /// Sends a request to the leader, following redirects to another one.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<reqwest::Response, Error> {
        for _ in 0..REDIRECTS {
            let url = format!("http://{}{path}", self.address());
            let answer = self.request(method.clone(), &url, body.clone()).await?;
            match location(&answer) {
                Some(leader) => self.follow(leader),
                None => return checked(url, answer).await,
            }
        }
        let what = format!("more than {REDIRECTS} redirects: the masters do not agree on a leader");
        Err(Error::Body(format!("http://{}{path}", self.address()), what))
    }

    async fn request(
        &self,
        method: Method,
        url: &str,
        body: Option<(&str, String)>,
    ) -> Result<reqwest::Response, Error> {
        let mut request = self.http.request(method, url);
        if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password));
        }
        if let Some((kind, body)) = body {
            request = request
                .header("Content-Type", kind)
                .header("Accept", "application/json")
                .body(body);
        }
        request
            .send()
            .await
            .map_err(|error| Error::Unreachable(url.to_owned(), error))
    }
}

async fn checked(url: String, answer: reqwest::Response) -> Result<reqwest::Response, Error> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let body = answer.text().await.unwrap_or_default();
    Err(Error::Status(url, status, body))
}

async fn json_body(url: String, answer: reqwest::Response) -> Result<Value, Error> {
    let body = answer
        .bytes()
        .await
        .map_err(|error| Error::Unreachable(url.clone(), error))?;
    serde_json::from_slice(&body).map_err(|error| {
        let begin: String = String::from_utf8_lossy(&body).chars().take(80).collect();
        Error::Body(url, format!("expected JSON ({error}), got {begin:?}"))
    })
}

/// `host:port` of a redirect's target. Masters send `//host:port/master/path`.
fn location(answer: &reqwest::Response) -> Option<String> {
    if !answer.status().is_redirection() {
        return None;
    }
    let location = answer.headers().get(LOCATION)?.to_str().ok()?;
    authority_of(location)
}

fn authority_of(location: &str) -> Option<String> {
    let (_, rest) = location.split_once("//")?;
    let authority = rest.split('/').next()?;
    (!authority.is_empty()).then(|| authority.to_owned())
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn text(document: &Value, pointer: &str, what: &str) -> Result<String, Error> {
    let found = document.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| {
        Error::Body(
            what.to_owned(),
            format!("expected a text at {pointer}, got {document}"),
        )
    })
}

/// A task of `GET_TASKS`.
fn task(document: &Value) -> Task {
    let ports = list(&document["resources"])
        .filter(|resource| resource["name"] == "ports")
        .flat_map(|resource| list(&resource["ranges"]["range"]))
        .filter_map(|range| {
            let bound = |name: &str| range[name].as_u64().and_then(|port| u16::try_from(port).ok());
            Some(bound("begin")?..=bound("end")?)
        })
        .flatten();
    let statuses = document["statuses"].as_array().map_or(&[][..], Vec::as_slice);
    let addresses = statuses.iter().rev().map(|status| {
        let networks = list(&status["container_status"]["network_infos"]);
        let addresses = networks.flat_map(|network| list(&network["ip_addresses"]));
        addresses
            .map(|address| string(&address["ip_address"]))
            .collect::<BTreeSet<_>>()
    });
    Task {
        id: string(&document["task_id"]["value"]),
        state: string(&document["state"]),
        agent: string(&document["agent_id"]["value"]),
        ports: ports.collect(),
        addresses: addresses
            .into_iter()
            .find(|found| !found.is_empty())
            .unwrap_or_default(),
        message: statuses
            .last()
            .map(|status| string(&status["message"]))
            .unwrap_or_default(),
    }
}

/// `host:port` of an agent's HTTP API: its pid is `slave(1)@10.0.0.1:5051`.
fn endpoint(agent: &Value) -> String {
    let pid = agent["pid"].as_str().unwrap_or_default();
    match pid.split_once('@') {
        Some((_, endpoint)) => endpoint.to_owned(),
        None => format!("{}:{}", string(&agent["hostname"]), agent["port"]),
    }
}

/// The resources of an agent that are unreserved or reserved for the role, without the used ones.
fn free(agent: &Value, role: &str) -> Resources {
    let unreserved = resources(&agent["unreserved_resources"]);
    let reserved = resources(&agent["reserved_resources"][role]);
    let used = resources(&agent["used_resources"]);
    Resources {
        cpus: (unreserved.cpus + reserved.cpus - used.cpus).max(0.0),
        mem: (unreserved.mem + reserved.mem - used.mem).max(0.0),
        ports: (unreserved.ports + reserved.ports).saturating_sub(used.ports),
    }
}

fn resources(document: &Value) -> Resources {
    Resources {
        cpus: document["cpus"].as_f64().unwrap_or(0.0),
        mem: document["mem"].as_f64().unwrap_or(0.0),
        ports: document["ports"].as_str().map_or(0, count_ports),
    }
}

/// How many ports `[31000-31009, 31020-31020]` has.
fn count_ports(ranges: &str) -> u32 {
    let ranges = ranges.trim_matches(['[', ']']).split(',');
    let counts = ranges.filter_map(|range| {
        let (begin, end) = range.trim().split_once('-')?;
        let (begin, end) = (begin.parse::<u32>().ok()?, end.parse::<u32>().ok()?);
        Some((end + 1).saturating_sub(begin))
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_of_a_recorded_master_is_read() {
        let recorded = include_str!("../../fixtures/cluster/1-main/03-1fw-1task-v1-GET_TASKS.json");
        let document: Value = serde_json::from_str(recorded).unwrap();
        let read = task(&document["get_tasks"]["tasks"][0]);
        assert_eq!(
            (read.id.as_str(), read.state.as_str()),
            ("task-1", "TASK_RUNNING")
        );
        assert_eq!(read.ports, [31000]);
        assert_eq!(read.addresses, BTreeSet::from(["127.0.0.1".to_owned()]));
        assert!(read.is_active() && read.agent.ends_with("-S0"));
    }

    #[test]
    fn free_resources_of_a_recorded_agent_exclude_used_ones() {
        let recorded = include_str!("../../fixtures/cluster/1-main/03-1fw-1task_slaves.json");
        let document: Value = serde_json::from_str(recorded).unwrap();
        let agent = &document["slaves"][0];
        assert_eq!(endpoint(agent), "127.0.0.1:5051");
        let expected = Resources {
            cpus: 3.8,
            mem: 4032.0,
            ports: 1000,
        };
        assert_eq!(free(agent, "*"), expected);
        let reserved = json!({"unreserved_resources": {"cpus": 1.0}, "reserved_resources": {"a": {"cpus": 2.0, "ports": "[1-2, 5-5]"}}});
        let with_reserved = Resources {
            cpus: 3.0,
            mem: 0.0,
            ports: 3,
        };
        assert_eq!(free(&reserved, "a"), with_reserved);
        let without = Resources {
            cpus: 1.0,
            ..Resources::default()
        };
        assert_eq!(free(&reserved, "b"), without);
    }

    #[test]
    fn leader_is_read_from_a_redirect_without_scheme() {
        assert_eq!(
            authority_of("//localhost:5050").as_deref(),
            Some("localhost:5050")
        );
        assert_eq!(authority_of("//h:5060/master/api/v1").as_deref(), Some("h:5060"));
        assert_eq!(authority_of("http://h:1/x").as_deref(), Some("h:1"));
        assert_eq!(authority_of("/relative"), None);
    }
}
