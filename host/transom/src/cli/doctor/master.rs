//! The masters: whether one leads, its version, and whether it accepts the credentials. Its response is
//! also used to check the agents and the clock.

use std::time::Instant;

use transom_cluster::{Client, Error};
use transom_common::error_chain;
use transom_config::{Settings, parts};

use super::{Finding, agents, clock, isolators};

const CHECK: &str = "master";

pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let config = match parts::cluster::config(&settings.cluster) {
        Ok(config) => config,
        Err(error) => {
            return vec![Finding::error(
                CHECK,
                format!("{error:#}"),
                "Correct the section [cluster].",
            )];
        }
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let verify = config.tls.as_ref().is_none_or(|tls| tls.verify);
    let authorities = config.tls.as_ref().and_then(|tls| tls.authorities.clone());
    let client = match Client::new(config) {
        Ok(client) => client,
        Err(error) => {
            let text = error_chain(&error);
            return vec![Finding::error(CHECK, text, "Correct the section [cluster].")];
        }
    };
    let started = Instant::now();
    let answer = client.get_agents_of_leader().await;
    let elapsed = started.elapsed();
    let findings = match answer {
        Ok((leader, agents)) => {
            let mut findings = vec![Finding::ok(
                CHECK,
                format!(
                    "{leader} leads and accepts this daemon's requests ({} ms)",
                    elapsed.as_millis()
                ),
            )];
            findings.push(version(&client).await);
            findings.extend(visibility(&client).await);
            let url = format!("{scheme}://{leader}/version");
            let Some(client) = clock::http_client(scheme, verify, authorities.as_deref()) else {
                findings.push(agents::check(&agents).await);
                return findings;
            };
            let http = isolators::Http {
                scheme,
                client: client.clone(),
                settings,
            };
            let (connections, isolators, clock) = tokio::join!(
                agents::check(&agents),
                isolators::check(settings, &agents, &http),
                clock::check(&client, &url)
            );
            findings.extend([connections, isolators, clock]);
            findings
        }
        Err(error) => {
            let mut findings = vec![failure(&error)];
            // A master that does not lead answers this request too, and most masters need no
            // credentials for it.
            if let Ok(version) = client.version().await {
                findings.push(Finding::ok("version", format!("a master has version {version}")));
            }
            findings.push(Finding::skipped("agents", "no master lists them"));
            findings.push(Finding::skipped("isolators", "no master lists the agents"));
            findings.push(Finding::skipped("clock", "no master answers"));
            findings
        }
    };
    client.close().await;
    findings
}

async fn version(client: &Client) -> Finding {
    match client.supported_version().await {
        Ok(version) => Finding::ok("version", format!("the master has version {version}")),
        Err(error) => Finding::error(
            "version",
            error_chain(&error),
            "Upgrade the cluster manager; docs/concepts.md has the minimum version.",
        ),
    }
}

/// A finding if the master hides tasks from the principal.
async fn visibility(client: &Client) -> Option<Finding> {
    let state = client.state().await.ok()?;
    state.hides_tasks().then(|| {
        Finding::error(
            "credentials",
            "the agents' resources are used, but the master lists neither tasks nor executors",
            "The master's ACLs must allow the principal to view frameworks, tasks and executors (`view_frameworks`, \
             `view_tasks`, `view_executors`); without them discovery has no records of tasks.",
        )
    })
}

fn failure(error: &Error) -> Finding {
    let text = error_chain(error);
    match answered_error(error) {
        Error::Unauthorized { sent: true, keys, .. } => {
            Finding::error("credentials", text, format!("Correct {keys}."))
        }
        Error::Unauthorized { sent: false, keys, .. } => Finding::error(
            "credentials",
            text,
            format!("The master requires credentials: set {keys}."),
        ),
        Error::Rejected { status: 403, .. } => Finding::error(
            "credentials",
            text,
            "The master's ACLs must allow the principal to view agents (`view_agents`, GET_AGENTS).",
        ),
        Error::NotReady { .. } | Error::NoLeader { .. } => Finding::error(
            CHECK,
            text,
            "No master leads: check that a majority of the masters and ZooKeeper run; the masters' logs have the cause.",
        )
        .unavailable(),
        _ => Finding::error(
            CHECK,
            text,
            "Check `cluster.master`, that a master runs there, and that no firewall blocks it.",
        )
        .unavailable(),
    }
}

/// The error of the master that answered, if several were tried.
fn answered_error(error: &Error) -> &Error {
    match error {
        Error::NoMaster { source, .. } => source,
        error => error,
    }
}
