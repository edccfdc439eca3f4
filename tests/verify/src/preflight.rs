//! Preconditions of a run. Every error contains the problem and the remedy.

use anyhow::{Context, bail, ensure};
use reqwest::StatusCode;
use transom_testkit::redis;
use transom_tests::process;

use crate::master::{Agent, Error, Master, Resources};
use crate::options::Options;
use crate::stories::Name;

/// The oldest supported version of the master.
const MIN_VERSION: (u32, u32) = (1, 6);

/// The resources that stories need at the same time.
const NEEDED_RESOURCES: Resources = Resources {
    cpus: 1.0,
    mem: 1024.0,
    ports: 40,
};

/// Checks that this machine has the programs for these stories.
pub(crate) fn this_machine(stories: &[Name]) -> anyhow::Result<()> {
    process::check_built().map_err(anyhow::Error::msg)?;
    let needs_redis = stories.contains(&Name::Leader);
    ensure!(
        !needs_redis || redis::program().is_some(),
        "story `leader` starts a redis-server, which is not installed: install it (Debian: apt-get install redis-tools), or \
         name the other stories with --only"
    );
    Ok(())
}

/// Checks the master and its agents, after redirects to the leading master. Returns the master's
/// version.
pub(crate) async fn cluster(master: &Master, options: &Options) -> anyhow::Result<String> {
    let address = &options.master;
    let version = master.version().await.with_context(|| {
        format!("--master {address} does not answer like a Mesos master: expected host and port of a Mesos master, which listens on port 5050 by default")
    })?;
    ensure!(
        is_supported(&version),
        "the master {address} has version {version}: {}.{}.0 or later is needed",
        MIN_VERSION.0,
        MIN_VERSION.1
    );
    let agents = match master.agents(&options.role).await {
        Ok(agents) => agents,
        Err(error) => return Err(explain_status(error, options)),
    };
    if let Err(error) = master.call("GET_FRAMEWORKS").await {
        return Err(explain_status(error, options));
    }
    check_room(&agents, &options.role)?;
    check_reachable(master, &agents).await?;
    Ok(version)
}

fn is_supported(version: &str) -> bool {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor) >= MIN_VERSION,
        _ => false,
    }
}

/// The message for an error status of the master.
fn explain_status(error: Error, options: &Options) -> anyhow::Error {
    let hint = match (error.status(), &options.username) {
        (Some(StatusCode::UNAUTHORIZED), None) => {
            "the master requires credentials: set --username and --password".to_owned()
        }
        (Some(StatusCode::UNAUTHORIZED), Some(user)) => {
            format!("the master does not accept the credentials of user {user}")
        }
        (Some(StatusCode::FORBIDDEN), _) => {
            "the master does not allow this: the principal has to be allowed to view frameworks, tasks and agents, to register \
             frameworks, to run tasks and to tear frameworks down"
                .to_owned()
        }
        (Some(StatusCode::SERVICE_UNAVAILABLE), _) => {
            "no master leads, or the leader has not recovered yet: try again when /redirect of a master names the leader"
                .to_owned()
        }
        _ => "the request to the master failed".to_owned(),
    };
    anyhow::Error::from(error).context(hint)
}

fn check_room(agents: &[Agent], role: &str) -> anyhow::Result<()> {
    ensure!(
        !agents.is_empty(),
        "the master has no active agent: start one, or reactivate those that are deactivated"
    );
    let mut free = Resources::default();
    for agent in agents {
        free.cpus += agent.free.cpus;
        free.mem += agent.free.mem;
        free.ports += agent.free.ports;
    }
    let enough = free.cpus >= NEEDED_RESOURCES.cpus
        && free.mem >= NEEDED_RESOURCES.mem
        && free.ports >= NEEDED_RESOURCES.ports;
    ensure!(
        enough,
        "the {} active agents have too little left for role {role}: {:.1} CPUs, {:.0} MB and {} ports; needed are {:.1}, {:.0} and {}",
        agents.len(),
        free.cpus,
        free.mem,
        free.ports,
        NEEDED_RESOURCES.cpus,
        NEEDED_RESOURCES.mem,
        NEEDED_RESOURCES.ports
    );
    Ok(())
}

/// Checks that agents are reachable, because stories read files from them and the daemon probes
/// tasks on them.
async fn check_reachable(master: &Master, agents: &[Agent]) -> anyhow::Result<()> {
    let with_room = agents.iter().filter(|agent| agent.free.cpus > 0.0).take(10);
    for agent in with_room {
        match master.agent_get(&agent.endpoint, "/version").await {
            Ok(_) => {}
            Err(error @ Error::Unreachable(..)) => {
                let error = anyhow::Error::from(error);
                return Err(error.context(format!(
                    "agent {} cannot be reached from this machine: run this where agents and the ports of their tasks can be \
                     reached",
                    agent.hostname
                )));
            }
            Err(error) => bail!(
                "agent {} at {} does not answer as an agent does: {error}",
                agent.hostname,
                agent.endpoint
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_1_6_are_too_old() {
        for (version, supported) in [
            ("1.11.0", true),
            ("1.6.0", true),
            ("2.0.0", true),
            ("1.12.0-rc1", true),
            ("1.5.3", false),
            ("0.28.2", false),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(is_supported(version), supported, "{version}");
        }
    }

    #[test]
    fn error_about_resources_names_available_and_required_amounts() {
        assert!(
            check_room(&[], "*")
                .unwrap_err()
                .to_string()
                .contains("no active agent")
        );
        let agent = |free| Agent {
            id: "S0".to_owned(),
            hostname: "h".to_owned(),
            endpoint: "h:5051".to_owned(),
            free,
        };
        let half = Resources {
            cpus: NEEDED_RESOURCES.cpus / 2.0,
            mem: NEEDED_RESOURCES.mem / 2.0,
            ports: NEEDED_RESOURCES.ports / 2,
        };
        assert!(check_room(&[agent(half), agent(half)], "*").is_ok());
        let error = check_room(&[agent(half)], "web").unwrap_err().to_string();
        assert!(
            error.contains("0.5 CPUs, 512 MB and 20 ports; needed are 1.0, 1024 and 40"),
            "{error}"
        );
        assert!(error.contains("role web"), "{error}");
    }
}
