//! `/v1/cluster`: the agents of the cluster, and the output of tasks in their sandboxes.
//!
//! The port queries the master when a client requests the agents, at most once in two seconds for all
//! clients together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;
use transom_cluster::Client;
use transom_cluster::agent::{Agents, sandbox};
use transom_cluster::operator::Agent;
use transom_cluster::v1::{Attribute, Resource};
use transom_common::{HostPort, error_chain};
use transom_web::{ApiError, Owner, Shares};

/// How long an answer of the master is cached.
const LIST_CACHE_TTL: Duration = Duration::from_secs(2);
/// Default and maximum bytes of one piece of output.
const DEFAULT_LENGTH: u64 = 64 << 10;
const MAX_LENGTH: u64 = 1 << 20;
/// Pieces that are read at the same time, of which each user has its [`Shares`]; further ones are rejected.
const MAX_READS: usize = 32;
/// Characters of an id in a query.
const MAX_ID_LENGTH: usize = 512;
/// Response header: the offset of the next piece of output.
const NEXT_OFFSET: HeaderName = HeaderName::from_static("transom-next-offset");

/// The clients for masters and agents, and the cached list of agents. Cheap to clone.
#[derive(Clone)]
struct Cluster {
    client: Client,
    agents: Agents,
    cached: Arc<Mutex<Option<CachedAgents>>>,
    reads: Shares,
}

/// The last answer about the agents.
#[derive(Clone)]
struct CachedAgents {
    fetched_at: Instant,
    document: Bytes,
    addresses: Arc<BTreeMap<String, HostPort>>,
}

pub(super) fn routes(client: Client) -> Router {
    Router::new()
        .route("/v1/cluster/agents", get(agents))
        .route("/v1/cluster/log", get(log))
        .with_state(Cluster {
            agents: client.agents(),
            client,
            cached: Arc::default(),
            reads: Shares::new("admin", "logs", MAX_READS),
        })
}

/// The document of `/v1/cluster/agents`.
#[derive(Serialize)]
struct Document {
    agents: Vec<AgentView>,
}

/// One agent.
#[derive(Serialize)]
struct AgentView {
    id: String,
    host: String,
    /// `active`, `disconnected`, `deactivated`, `draining` or `drained`.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    attributes: BTreeMap<String, String>,
    total: BTreeMap<String, f64>,
    used: BTreeMap<String, f64>,
    offered: BTreeMap<String, f64>,
    /// Reserved resources by role; absent without a reservation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reserved: BTreeMap<String, BTreeMap<String, f64>>,
}

impl From<&Agent> for AgentView {
    fn from(agent: &Agent) -> Self {
        let info = &agent.agent_info;
        let state = match &agent.drain_info {
            Some(drain) => drain.state.to_ascii_lowercase(),
            None if agent.deactivated == Some(true) => "deactivated".to_owned(),
            None if agent.active == Some(false) => "disconnected".to_owned(),
            None => "active".to_owned(),
        };
        let attributes = info.attributes.iter();
        Self {
            id: info.id.as_ref().map(ToString::to_string).unwrap_or_default(),
            host: info.hostname.clone(),
            state,
            version: agent.version.clone(),
            attributes: attributes
                .map(|attribute| (attribute.name.clone(), text(attribute)))
                .collect(),
            total: amounts(&agent.total_resources),
            used: amounts(&agent.allocated_resources),
            offered: amounts(&agent.offered_resources),
            reserved: reserved(&agent.total_resources),
        }
    }
}

fn text(attribute: &Attribute) -> String {
    if let Some(text) = &attribute.text {
        return text.value.clone();
    }
    if let Some(scalar) = &attribute.scalar {
        return scalar.value.to_string();
    }
    if let Some(set) = &attribute.set {
        return format!("{{{}}}", set.item.join(", "));
    }
    let ranges = attribute.ranges.iter().flat_map(|ranges| &ranges.range);
    let ranges: Vec<String> = ranges
        .map(|range| format!("{}-{}", range.begin, range.end))
        .collect();
    format!("[{}]", ranges.join(", "))
}

/// The sums of resources by name. A range, such as one of ports, counts as the number of its members.
fn amounts(resources: &[Resource]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for resource in resources {
        let ranges = resource.ranges.iter().flat_map(|ranges| &ranges.range);
        let count: u64 = ranges
            .map(|range| range.end.saturating_sub(range.begin).saturating_add(1))
            .sum();
        let amount = resource
            .scalar
            .as_ref()
            .map_or(count as f64, |scalar| scalar.value);
        *sums.entry(resource.name.clone()).or_default() += amount;
    }
    sums
}

/// The sums of reserved resources, by the role for which they are reserved.
fn reserved(resources: &[Resource]) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut roles: BTreeMap<String, Vec<Resource>> = BTreeMap::new();
    for resource in resources {
        let role = resource.reservations.last().and_then(|it| it.role.clone());
        if let Some(role) = role.or_else(|| resource.role.clone()).filter(|role| role != "*") {
            roles.entry(role).or_default().push(resource.clone());
        }
    }
    let sums = roles
        .into_iter()
        .map(|(role, resources)| (role, amounts(&resources)));
    sums.collect()
}

impl Cluster {
    /// The agents, as the master listed them at most [`LIST_CACHE_TTL`] ago. Requests that arrive during a
    /// query of the master wait for the same answer.
    async fn cached_agents(&self) -> Result<CachedAgents, ApiError> {
        let mut cached = self.cached.lock().await;
        if let Some(agents) = cached
            .as_ref()
            .filter(|agents| agents.fetched_at.elapsed() < LIST_CACHE_TTL)
        {
            return Ok(agents.clone());
        }
        let answer = self.client.get_agents().await;
        let answer = answer.map_err(|error| {
            ApiError::unavailable(format!(
                "the master does not list its agents: {}",
                error_chain(&error)
            ))
        })?;
        let document = Document {
            agents: answer.agents.iter().map(AgentView::from).collect(),
        };
        let addresses = answer.agents.into_iter().filter_map(|agent| {
            let info = agent.agent_info;
            let port = info.port.unwrap_or(5051);
            Some((info.id?.to_string(), HostPort::new(info.hostname, port)))
        });
        let agents = CachedAgents {
            fetched_at: Instant::now(),
            addresses: Arc::new(addresses.collect()),
            document: serde_json::to_vec(&document)
                .map_err(|error| ApiError::internal(&error))?
                .into(),
        };
        *cached = Some(agents.clone());
        Ok(agents)
    }
}

async fn agents(State(cluster): State<Cluster>) -> Result<Response, ApiError> {
    let agents = cluster.cached_agents().await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], agents.document).into_response())
}

/// The query parameters that select the output of a task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Output {
    /// The id of the agent.
    agent: String,
    /// The id of the framework.
    framework: String,
    /// The id of the task.
    task: String,
    /// The id of the executor, if the task is one of a group, such as a pod's container.
    executor: Option<String>,
    /// `stdout` or `stderr`.
    stream: Stream,
    /// Where the piece begins; without it, the end of the output.
    offset: Option<u64>,
    #[serde(default = "default_length")]
    length: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stream {
    Stdout,
    Stderr,
}

fn default_length() -> u64 {
    DEFAULT_LENGTH
}

/// Whether an id can be the name of a single directory. Others could lead out of the sandbox.
fn is_name(id: &str) -> bool {
    let is_allowed = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    !id.is_empty() && id.len() <= MAX_ID_LENGTH && id != "." && id != ".." && id.chars().all(is_allowed)
}

async fn log(
    State(cluster): State<Cluster>,
    owner: Owner,
    query: Result<Query<Output>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(output) = query.map_err(|error| {
        let error = error.body_text();
        ApiError::bad_request(format!(
            "expected ?agent=ID&framework=ID&task=ID&stream=stdout|stderr, and optionally executor, offset and length: {error}"
        ))
    })?;
    if !(1..=MAX_LENGTH).contains(&output.length) {
        let text = format!("`length` is {}; expected 1 to {MAX_LENGTH}", output.length);
        return Err(ApiError::bad_request(text));
    }
    let executor = output.executor.as_ref();
    if ![&output.framework, &output.task]
        .into_iter()
        .chain(executor)
        .all(|id| is_name(id))
    {
        return Err(ApiError::bad_request(
            "expected the ids of a framework, a task and an executor, which have no slashes",
        ));
    }
    let _share = cluster.reads.take(owner, 1).ok_or_else(|| {
        ApiError::unavailable("too many logs are being read, in total or of this user; try again later")
    })?;
    let agents = cluster.cached_agents().await?;
    let agent = agents.addresses.get(&output.agent).ok_or_else(|| {
        ApiError::not_found("the master lists no agent with this id, so the task's output cannot be read")
    })?;
    let file = match output.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    // The executor of a task that is launched alone has the id of the task. The sandbox of a task
    // group's executor has links to the sandboxes of its tasks.
    let executor_id = executor.unwrap_or(&output.task).as_str();
    let sandbox = sandbox(&output.framework.as_str().into(), &executor_id.into());
    let path = match executor {
        None => format!("{sandbox}/{file}"),
        Some(_) => format!("{sandbox}/tasks/{}/{file}", output.task),
    };
    let offset = if let Some(offset) = output.offset {
        Ok(offset)
    } else {
        let size = cluster.agents.size(agent, &path).await;
        size.map(|size| size.saturating_sub(output.length))
    };
    let read = match offset {
        Ok(offset) => {
            let read = cluster
                .agents
                .read_bytes(agent, &path, offset, output.length)
                .await;
            read.map(|read| (offset, read.data))
        }
        Err(error) => Err(error),
    };
    match read {
        Ok((offset, data)) => {
            let next = offset + data.len() as u64;
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
                (NEXT_OFFSET, next.to_string()),
            ];
            Ok((headers, data).into_response())
        }
        Err(transom_cluster::Error::Rejected { status: 404, .. }) => Err(ApiError::not_found(
            "the agent has no such output: the task has not started, its sandbox was removed, or it is part of a pod and \
             the request has no `executor`",
        )),
        Err(error) => {
            let text = format!("the agent does not answer: {}", error_chain(&error));
            Err(ApiError::new(StatusCode::BAD_GATEWAY, text))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn agent_is_shown_with_sums_and_plain_attributes() {
        let scalar =
            |name: &str, value: f64| json!({"name": name, "type": "SCALAR", "scalar": {"value": value}});
        let agent: Agent = serde_json::from_value(json!({
            "agent_info": {
                "hostname": "a.example",
                "port": 5051,
                "id": {"value": "S1"},
                "attributes": [
                    {"name": "rack", "type": "TEXT", "text": {"value": "<b>1"}},
                    {"name": "level", "type": "SCALAR", "scalar": {"value": 2.5}},
                    {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 3}]}},
                ],
            },
            "active": true,
            "total_resources": [
                scalar("cpus", 1.5), scalar("mem", 100.0),
                {
                    "name": "cpus", "type": "SCALAR", "scalar": {"value": 2.5},
                    "reservations": [{"type": "STATIC", "role": "ops"}, {"type": "DYNAMIC", "role": "ops/web"}],
                },
                {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31009}]}},
            ],
            "allocated_resources": [scalar("cpus", 0.5)],
            "drain_info": {"state": "DRAINING"},
        }))
        .unwrap();
        assert_eq!(
            json!(AgentView::from(&agent)),
            json!({
                "id": "S1", "host": "a.example", "state": "draining",
                "attributes": {"rack": "<b>1", "level": "2.5", "ports": "[1-3]"},
                "total": {"cpus": 4.0, "mem": 100.0, "ports": 10.0},
                "used": {"cpus": 0.5},
                "offered": {},
                "reserved": {"ops/web": {"cpus": 2.5}},
            })
        );
    }

    #[tokio::test]
    async fn read_only_user_leaves_reads_of_logs_for_the_full_one() {
        let client = Client::new(transom_cluster::Config::default()).unwrap();
        // The cached answer, which lists no agents, does not expire during the test.
        let answer = CachedAgents {
            fetched_at: Instant::now() + Duration::from_hours(1),
            document: Bytes::new(),
            addresses: Arc::default(),
        };
        let cluster = Cluster {
            agents: client.agents(),
            client,
            cached: Arc::new(Mutex::new(Some(answer))),
            reads: Shares::new("admin", "logs", MAX_READS),
        };
        let status = async |owner| {
            let uri = "http://admin/log?agent=a&framework=f&task=t&stream=stdout";
            let query = Query::try_from_uri(&uri.parse().unwrap());
            let result = log(State(cluster.clone()), owner, query).await;
            result.into_response().status()
        };
        let mut held = Vec::new();
        while let Some(share) = cluster.reads.take(Owner::Reader, 1) {
            held.push(share);
        }
        assert_eq!(held.len(), MAX_READS / 2);
        assert_eq!(status(Owner::Reader).await, StatusCode::SERVICE_UNAVAILABLE);
        // Its agent is unknown.
        assert_eq!(status(Owner::Full).await, StatusCode::NOT_FOUND);
        held.pop();
        assert_eq!(status(Owner::Reader).await, StatusCode::NOT_FOUND);
    }

    #[test]
    fn id_that_leads_out_of_a_directory_is_not_a_name() {
        for (id, expected) in [
            ("web.instance-1.app.1", true),
            ("..", false),
            (".", false),
            ("", false),
            ("a/b", false),
            ("a\0", false),
            ("a\u{1b}[2J", false),
        ] {
            assert_eq!(is_name(id), expected, "{id:?}");
        }
        assert!(!is_name(&"a".repeat(MAX_ID_LENGTH + 1)));
    }
}
