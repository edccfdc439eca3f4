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
const SIDE_BY_SIDE: usize = 32;
/// Slower connections are a warning.
const SLOW: Duration = Duration::from_millis(500);
/// The maximum number of agents that a message names.
const MAX_NAMED: usize = 5;

pub(super) async fn check(listed: &GetAgents) -> Finding {
    let known = listed.agents.len() + listed.recovered_agents.len();
    if known == 0 {
        return Finding::error(
            CHECK,
            "no agent is registered with the master",
            "Start agents, or check to which master they connect: nothing can run without them.",
        );
    }
    let tried: Vec<_> = futures::stream::iter(listed.agents.iter().take(MAX_AGENTS))
        .map(connect)
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    let mut bad: Vec<String> = tried
        .iter()
        .filter_map(|(host, result)| result.as_ref().err().map(|why| format!("{host}: {why}")))
        .collect();
    let gone = listed.recovered_agents.iter();
    bad.extend(gone.map(|agent| format!("{}: not seen since the master started", agent.hostname)));
    let inactive = listed.agents.iter().filter(|agent| agent.active == Some(false));
    let inactive =
        inactive.map(|agent| format!("{}: disconnected from the master", agent.agent_info.hostname));
    bad.extend(inactive);
    bad.sort();
    let good = tried.iter().filter(|(_, result)| result.is_ok()).count();
    let slowest = tried.iter().filter_map(|(_, result)| result.as_ref().ok()).max();
    let slowest = slowest.copied().unwrap_or_default();
    let summary = format!(
        "{good} of {} accept connections, the slowest within {} ms",
        if tried.len() == known {
            format!("{known} agents")
        } else {
            format!("{} agents tried ({known} known)", tried.len())
        },
        slowest.as_millis()
    );
    if !bad.is_empty() {
        let more = bad.len().saturating_sub(MAX_NAMED);
        bad.truncate(MAX_NAMED);
        let more = if more > 0 {
            format!("; {more} more")
        } else {
            String::new()
        };
        let message = format!("{summary}; {}{more}", bad.join("; "));
        let advice = "Check that the agents run and that this machine reaches their ports: checks by agents, logs and \
                      commands in tasks need them.";
        return if good == 0 {
            Finding::error(CHECK, message, advice).unavailable()
        } else {
            Finding::warning(CHECK, message, advice)
        };
    }
    if slowest > SLOW {
        return Finding::warning(
            CHECK,
            summary,
            "Check the network between this machine and the agents.",
        );
    }
    Finding::ok(CHECK, summary)
}

/// The agent's name, and the time to connect to its port.
async fn connect(agent: &Agent) -> (String, Result<Duration, String>) {
    let info = &agent.agent_info;
    let from_pid = agent.pid.as_deref().and_then(pid_address);
    let (host, port) = match from_pid {
        Some((host, port)) => (host.to_owned(), port),
        None => (info.hostname.clone(), info.port.unwrap_or(5051)),
    };
    let began = Instant::now();
    let connected = timeout(TIMEOUT, TcpStream::connect((host.as_str(), port))).await;
    let result = match connected {
        Ok(Ok(_)) => Ok(began.elapsed()),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!("{host}:{port}: no connection within {TIMEOUT:?}")),
    };
    (info.hostname.clone(), result)
}
