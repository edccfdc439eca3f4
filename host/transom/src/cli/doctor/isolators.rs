//! The isolators of the agents: whether the agents have those that the enabled services need. An agent
//! without one fails tasks that need it, or starts them without what they asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize;
use transom_cluster::operator::{Agent, GetAgents};
use transom_config::{Feature, Settings};

use super::Finding;
use super::agents::address;

const CHECK: &str = "isolators";
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of agents that are asked.
const MAX_AGENTS: usize = 64;
/// The maximum number of concurrent requests.
const MAX_CONCURRENT: usize = 16;
/// The maximum number of agents that a message names.
const MAX_NAMED: usize = 5;

/// An isolator and the feature that needs it.
type Need = (&'static str, &'static str);

/// The answer of an agent to GET /flags.
#[derive(Deserialize)]
struct Answer {
    flags: BTreeMap<String, String>,
}

pub(super) async fn check(settings: &Settings, listed: &GetAgents, http: &Http<'_>) -> Finding {
    let needs = needs(settings);
    if needs.is_empty() {
        return Finding::ok(CHECK, "the enabled services need none in particular");
    }
    let requests: Vec<_> = listed
        .agents
        .iter()
        .take(MAX_AGENTS)
        .map(|agent| http.named_flags(agent))
        .collect();
    let answers: Vec<_> = futures::stream::iter(requests)
        .buffer_unordered(MAX_CONCURRENT)
        .collect()
        .await;
    let known: Vec<_> = answers
        .into_iter()
        .filter_map(|(host, flags)| Some((host, isolators(&flags?))))
        .collect();
    finding(&needs, &known)
}

/// The isolators that the settings ask for.
fn needs(settings: &Settings) -> Vec<Need> {
    let mut needs = Vec::new();
    if let Some(apps) = &settings.apps {
        needs.push(("volume/sandbox_path", "pods whose containers share volumes"));
        for feature in &apps.enable_features {
            match feature {
                Feature::ExternalVolumes => {
                    needs.push(("docker/volume", "external volumes in Mesos containers"));
                }
                Feature::GpuResources => needs.push(("gpu/nvidia", "GPUs")),
                Feature::Secrets => needs.push(("volume/secret", "secrets as files")),
                Feature::TaskKilling => {}
            }
        }
    }
    needs
}

/// The names in the flag `isolation`.
fn isolators(flags: &BTreeMap<String, String>) -> BTreeSet<String> {
    let isolation = flags.get("isolation").map_or("", String::as_str);
    isolation.split(',').map(|name| name.trim().to_owned()).collect()
}

fn finding(needs: &[Need], agents: &[(String, BTreeSet<String>)]) -> Finding {
    if agents.is_empty() {
        return Finding::skipped(CHECK, "no agent shows its flags (GET /flags) to this daemon");
    }
    let missing = needs.iter().filter_map(|(isolator, feature)| {
        let mut without: Vec<&str> = agents
            .iter()
            .filter(|(_, has)| !has.contains(*isolator))
            .map(|(host, _)| host.as_str())
            .collect();
        without.sort_unstable();
        let total = without.len();
        without.truncate(MAX_NAMED);
        let more = if total > MAX_NAMED { ", …" } else { "" };
        (total > 0).then(|| {
            format!(
                "{total} of {} agents lack `{isolator}`, which {feature} need: {}{more}",
                agents.len(),
                without.join(", ")
            )
        })
    });
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        let names: Vec<_> = needs.iter().map(|(isolator, _)| *isolator).collect();
        return Finding::ok(
            CHECK,
            format!("{} agents have {}", agents.len(), names.join(", ")),
        );
    }
    Finding::warning(
        CHECK,
        missing.join("; "),
        "If you use these features, add the isolators to the agents' flag `--isolation` and restart the agents; \
         docs/concepts.md lists the isolators of each feature.",
    )
}

/// The client for agents.
pub(super) struct Http<'a> {
    pub(super) scheme: &'a str,
    pub(super) client: reqwest::Client,
    pub(super) settings: &'a Settings,
}

impl Http<'_> {
    async fn named_flags(&self, agent: &Agent) -> (String, Option<BTreeMap<String, String>>) {
        (agent.agent_info.hostname.clone(), self.flags(agent).await)
    }

    async fn flags(&self, agent: &Agent) -> Option<BTreeMap<String, String>> {
        let (host, port) = address(agent);
        let url = format!(
            "{}://{}/flags",
            self.scheme,
            transom_common::HostPort::new(&host, port)
        );
        let mut request = self.client.get(url).timeout(TIMEOUT);
        let cluster = &self.settings.cluster;
        if let (Some(username), Some(password)) = (&cluster.username, &cluster.password) {
            request = request.basic_auth(username, Some(password.reveal()));
        }
        let answer = request.send().await.ok()?.error_for_status().ok()?;
        let answer: Answer = answer.json().await.ok()?;
        Some(answer.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn agent(name: &str, isolation: &str) -> (String, BTreeSet<String>) {
        let flags = BTreeMap::from([("isolation".to_owned(), isolation.to_owned())]);
        (name.to_owned(), isolators(&flags))
    }

    #[test]
    fn missing_isolators_are_named_with_their_feature_and_agents() {
        let settings: Settings =
            toml::from_str("[apps]\nenable_features = [\"gpu_resources\", \"task_killing\"]\n")
                .expect("settings");
        let needs = needs(&settings);
        let names: Vec<_> = needs.iter().map(|(isolator, _)| *isolator).collect();
        assert_eq!(names, ["volume/sandbox_path", "gpu/nvidia"]);
        let complete = agent("a1", "posix/cpu, volume/sandbox_path,gpu/nvidia");
        let usual = agent("a2", "posix/cpu,posix/mem");
        let found = finding(&needs, std::slice::from_ref(&complete));
        assert_eq!(found.state, State::Ok, "{found:?}");
        let found = finding(&needs, &[complete, usual]);
        assert_eq!(found.state, State::Warning);
        for expected in [
            "1 of 2 agents lack `volume/sandbox_path`, which pods whose containers share volumes need: a2",
            "1 of 2 agents lack `gpu/nvidia`, which GPUs need: a2",
        ] {
            assert!(found.message.contains(expected), "{found:?}");
        }
        assert_eq!(finding(&needs, &[]).state, State::Skipped);
        assert!(super::needs(&Settings::default()).is_empty());
    }
}
