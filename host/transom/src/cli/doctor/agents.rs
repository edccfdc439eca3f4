//! The agents: whether they accept connections. Checks that run on agents, logs, and commands in tasks
//! need these connections.

use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use transom_cluster::operator::{Agent, GetAgents};
use transom_cluster::state::pid_address;

use super::Finding;

const CHECK: &str = "agents";
/// Timeout of one connection.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of agents that are tried.
const MAX_AGENTS: usize = 64;
/// The maximum number of concurrent connections.
const MAX_CONCURRENT: usize = 32;
/// Slower connections are a warning.
const SLOW_CONNECTION: Duration = Duration::from_millis(500);
/// The maximum number of agents that a message names.
const MAX_NAMED: usize = 5;

pub(super) async fn check(listed: &GetAgents) -> Finding {
    let total = listed.agents.len() + listed.recovered_agents.len();
    if total == 0 {
        return Finding::error(
            CHECK,
            "no agent is registered with the master",
            "Start agents, or check to which master they connect: nothing can run without them.",
        );
    }
    let results: Vec<_> = futures::stream::iter(listed.agents.iter().take(MAX_AGENTS))
        .map(connection_time)
        .buffer_unordered(MAX_CONCURRENT)
        .collect()
        .await;
    let mut problems: Vec<String> = results
        .iter()
        .filter_map(|(host, result)| result.as_ref().err().map(|error| format!("{host}: {error}")))
        .collect();
    let recovered = listed.recovered_agents.iter();
    problems.extend(recovered.map(|agent| format!("{}: not seen since the master started", agent.hostname)));
    let inactive = listed.agents.iter().filter(|agent| agent.active == Some(false));
    let inactive =
        inactive.map(|agent| format!("{}: disconnected from the master", agent.agent_info.hostname));
    problems.extend(inactive);
    problems.sort();
    let reachable = results.iter().filter(|(_, result)| result.is_ok()).count();
    let slowest = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().ok())
        .max();
    let slowest = slowest.copied().unwrap_or_default();
    let summary = format!(
        "{reachable} of {} accept connections, the slowest within {} ms",
        if results.len() == total {
            format!("{total} agents")
        } else {
            format!("{} agents tried ({total} known)", results.len())
        },
        slowest.as_millis()
    );
    if !problems.is_empty() {
        let omitted = problems.len().saturating_sub(MAX_NAMED);
        problems.truncate(MAX_NAMED);
        let omitted = if omitted > 0 {
            format!("; {omitted} more")
        } else {
            String::new()
        };
        let message = format!("{summary}; {}{omitted}", problems.join("; "));
        let advice = "Check that the agents run and that this machine reaches their ports: checks by agents, logs and \
                      commands in tasks need them.";
        return if reachable == 0 {
            Finding::error(CHECK, message, advice).unavailable()
        } else {
            Finding::warning(CHECK, message, advice)
        };
    }
    if slowest > SLOW_CONNECTION {
        return Finding::warning(
            CHECK,
            summary,
            "Check the network between this machine and the agents.",
        );
    }
    Finding::ok(CHECK, summary)
}

/// The agent's name, and the time to connect to its port.
async fn connection_time(agent: &Agent) -> (String, Result<Duration, String>) {
    let (host, port) = address(agent);
    let started = Instant::now();
    let connected = timeout(TIMEOUT, TcpStream::connect((host.as_str(), port))).await;
    let result = match connected {
        Ok(Ok(_)) => Ok(started.elapsed()),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!("{host}:{port}: no connection within {TIMEOUT:?}")),
    };
    (agent.agent_info.hostname.clone(), result)
}

/// Host and port of an agent's API.
pub(super) fn address(agent: &Agent) -> (String, u16) {
    let info = &agent.agent_info;
    match agent.pid.as_deref().and_then(pid_address) {
        Some((host, port)) => (host.to_owned(), port),
        None => (info.hostname.clone(), info.port.unwrap_or(5051)),
    }
}
