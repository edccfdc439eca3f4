//! Whether the agents of a pod have the isolator that its volumes need. Without it, an agent runs the
//! containers without the volumes and reports no error, so the status of the pod says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use transom_cluster::agent::Agents;
use transom_common::{HostPort, text::printable};

use crate::core::spec_view::SpecView;
use crate::model::Pod;
use crate::model::pod::PodVolume;

/// The isolator for volumes in the sandbox of a pod.
const ISOLATOR: &str = "volume/sandbox_path";
/// The maximum number of agents that are asked for their flags, and how long.
const MAX_AGENTS: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer counts, or that there was none: clients poll the status of a pod.
const MAX_AGE: Duration = Duration::from_mins(1);

/// The isolators of agents.
pub(crate) struct Isolators {
    agents: Agents,
    /// When an agent was asked, and whether it lacks the isolator.
    known: Mutex<HashMap<HostPort, (Instant, bool)>>,
}

impl Isolators {
    pub(crate) fn new(agents: Agents) -> Self {
        Self {
            agents,
            known: Mutex::default(),
        }
    }

    /// The agents of a pod that lack the isolator, in words; `None`: the pod needs none, or no agent is
    /// known to lack it.
    pub(super) async fn missing(&self, view: &SpecView, pod: &Pod) -> Option<String> {
        let volumes = shared_volumes(pod);
        if volumes.is_empty() {
            return None;
        }
        let records = view.instances.values().filter_map(|instance| instance.record());
        let hosts: BTreeMap<String, HostPort> = records
            .filter_map(|record| Some((record.agent.hostname.clone(), record.agent.endpoint.clone()?)))
            .collect();
        let lookups: Vec<_> = hosts
            .into_iter()
            .take(MAX_AGENTS)
            .map(async |(host, endpoint)| self.is_missing(endpoint).await.then_some(host))
            .collect();
        let without = futures::future::join_all(lookups).await;
        let without: BTreeSet<String> = without.into_iter().flatten().collect();
        described(&without, &volumes)
    }

    /// Whether the agent is known to lack the isolator.
    async fn is_missing(&self, endpoint: HostPort) -> bool {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, is_missing)) = known().get(&endpoint).filter(|(at, _)| at.elapsed() < MAX_AGE) {
            return *is_missing;
        }
        let flags = tokio::time::timeout(TIMEOUT, self.agents.flags(&endpoint)).await;
        let is_missing = matches!(flags, Ok(Ok(flags)) if !has_isolator(&flags));
        let mut known = known();
        known.retain(|_, (at, _)| at.elapsed() < MAX_AGE);
        known.insert(endpoint, (Instant::now(), is_missing));
        is_missing
    }
}

/// The names of the volumes in the sandbox of the pod.
fn shared_volumes(pod: &Pod) -> Vec<&str> {
    let volumes = pod.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Ephemeral { name } => Some(name.as_str()),
        _ => None,
    });
    volumes.collect()
}

/// Whether an agent with these flags has the isolator. An agent that does not tell is not accused.
fn has_isolator(flags: &BTreeMap<String, String>) -> bool {
    flags
        .get("isolation")
        .is_none_or(|isolation| isolation.split(',').any(|name| name.trim() == ISOLATOR))
}

fn described(without: &BTreeSet<String>, volumes: &[&str]) -> Option<String> {
    let hosts: Vec<_> = without.iter().map(|host| printable(host)).collect();
    (!hosts.is_empty()).then(|| {
        format!(
            "no isolator `{ISOLATOR}` on the agents {}, so its containers run there without the volumes {}: add it to \
             `--isolation` of the agents",
            hosts.join(", "),
            volumes.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use transom_cluster::{Client, Config};
    use transom_scheduler::{AgentLocation, TaskRecord};

    use super::*;
    use crate::instance::Instance;
    use crate::model::Spec;
    use crate::testing;
    use crate::time::Moment;

    fn pod() -> Pod {
        testing::pod(&json!({
            "id": "/p", "volumes": [{"name": "v"}, {"name": "h", "host": "/x"}],
            "containers": [{
                "name": "c", "exec": {"command": {"shell": "x"}}, "resources": {"cpus": 0.1, "mem": 1},
                "volumeMounts": [{"name": "v", "mountPath": "v"}, {"name": "h", "mountPath": "h"}],
            }],
        }))
    }

    /// The address of an agent with this flag, which answers one request. A real agent without
    /// `--isolation` has `posix/cpu,posix/mem`.
    async fn agent(isolation: &str) -> HostPort {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let body = json!({"flags": {"isolation": isolation}}).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let length = connection.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /flags "));
            connection.write_all(answer.as_bytes()).await.unwrap();
        });
        HostPort::new("127.0.0.1", port)
    }

    #[tokio::test]
    async fn flags_of_the_agents_of_a_pod_decide() {
        let spec = Spec::Pod(Arc::new(pod()));
        let mut view = SpecView::of(spec.clone());
        for (host, isolation) in [
            ("h1", "posix/cpu,posix/mem"),
            ("h2", "posix/cpu,posix/mem,volume/sandbox_path"),
        ] {
            let mut instance = Instance::new(spec.id(), spec.version(), Moment::now());
            let endpoint = agent(isolation).await;
            instance.set_record(&Arc::new(TaskRecord {
                agent: Arc::new(AgentLocation {
                    hostname: host.to_owned(),
                    endpoint: Some(endpoint),
                    ..testing::agent()
                }),
                ..testing::record(instance.task())
            }));
            view.instances.insert(instance.id.clone(), Arc::new(instance));
        }
        let isolators = Isolators::new(Client::new(Config::default()).unwrap().agents());
        // The agents answer once.
        for _ in 0..2 {
            let text = isolators.missing(&view, &pod()).await.unwrap();
            assert!(text.contains("on the agents h1, so"), "{text}");
        }
    }

    #[test]
    fn agents_without_the_isolator_are_named_with_the_volumes() {
        let flags = |isolation: &str| BTreeMap::from([("isolation".to_owned(), isolation.to_owned())]);
        for (isolation, has) in [
            ("posix/cpu,posix/mem", false),
            ("posix/cpu, volume/sandbox_path", true),
            ("volume/sandbox_path_x", false),
        ] {
            assert_eq!(has_isolator(&flags(isolation)), has, "{isolation}");
        }
        assert!(has_isolator(&BTreeMap::new()), "an agent that does not tell");
        let pod = pod();
        let volumes = shared_volumes(&pod);
        assert_eq!(volumes, ["v"]);
        assert_eq!(described(&BTreeSet::new(), &volumes), None);
        assert_eq!(
            described(&BTreeSet::from(["h1".to_owned(), "h2".to_owned()]), &volumes).as_deref(),
            Some(
                "no isolator `volume/sandbox_path` on the agents h1, h2, so its containers run there without the \
                 volumes v: add it to `--isolation` of the agents"
            )
        );
    }
}
