//! Drains a node with evictions.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};
use transom_common::Backoff;

use super::object_name::is_object_name;
use super::pods::PodObject;
use super::{Drained, KubeOrchestrator, OrchestratorError};

/// The delay between two rounds of evictions. It is reset by each round with an accepted eviction.
const EVICTION_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
/// The maximum number of concurrent evictions.
const MAX_CONCURRENT_EVICTIONS: usize = 8;
/// The API versions of `Eviction`. Control planes support the first one since 1.22, and the second one
/// until 1.24.
const EVICTION_VERSIONS: &[&str] = &["policy/v1", "policy/v1beta1"];

/// A pod that a drain evicts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pod {
    namespace: String,
    name: String,
    uid: String,
    /// Whether it is ending already.
    ending: bool,
}

/// The pod to evict; `None` if a drain leaves the pod on the node, because it belongs to the node or
/// has finished.
pub(super) fn pod_to_evict(object: PodObject) -> Option<Pod> {
    if object.belongs_to_node() || object.is_finished() {
        return None;
    }
    let metadata = object.metadata;
    Some(Pod {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        ending: metadata.deletion_timestamp.is_some(),
    })
}

/// The answer to an eviction.
enum EvictionAnswer {
    /// The pod ends.
    Accepted,
    /// The pod no longer exists.
    Gone,
    /// It is rejected now and may be accepted later, for example because of a disruption budget.
    Later(String),
}

/// The state of a drain, which is also its result at the deadline.
#[derive(Default)]
struct Progress {
    /// Whether the pods were listed at least once.
    listed: bool,
    /// The uids of evicted pods.
    evicted: HashSet<String>,
    /// The pods that remain on the node, with the reasons.
    remaining: BTreeMap<String, String>,
}

/// See [`Orchestrator::drain`](super::Orchestrator::drain).
pub(super) async fn drain(
    api: &KubeOrchestrator,
    node: &str,
    deadline: Instant,
) -> Result<Drained, OrchestratorError> {
    let mut progress = Progress::default();
    match timeout_at(deadline, wait_until_drained(api, node, &mut progress)).await {
        Ok(ended) => ended?,
        // The node's pods are not known, so the node must not be reported as drained.
        Err(_) if !progress.listed => return Err(api.timed_out("the drain's deadline passed first")),
        Err(_) => {}
    }
    let remaining = progress
        .remaining
        .into_iter()
        .map(|(pod, why)| format!("{pod}: {why}"));
    Ok(Drained {
        evicted: progress.evicted.len(),
        remaining: remaining.collect(),
    })
}

async fn wait_until_drained(
    api: &KubeOrchestrator,
    node: &str,
    progress: &mut Progress,
) -> Result<(), OrchestratorError> {
    api.set_cordoned(node, true, true).await?;
    let mut idle_rounds = 0;
    loop {
        let pods = api.pods_to_evict(node).await?;
        progress.listed = true;
        let known = std::mem::take(&mut progress.remaining);
        if pods.is_empty() {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for pod in pods {
            let name = format!("{}/{}", pod.namespace, pod.name);
            let ending = pod.ending || progress.evicted.contains(&pod.uid);
            let why = if ending {
                "it has not ended yet".to_owned()
            } else {
                known
                    .get(&name)
                    .cloned()
                    .unwrap_or_else(|| "it has not been evicted yet".to_owned())
            };
            progress.remaining.insert(name.clone(), why);
            if !ending {
                waiting.push((name, pod));
            }
        }
        let mut accepted = false;
        let mut evictions = futures::stream::iter(waiting)
            .map(async |(name, pod)| (evict(api, &pod).await, name, pod.uid))
            .buffer_unordered(MAX_CONCURRENT_EVICTIONS);
        while let Some((evicted, name, uid)) = evictions.next().await {
            match evicted? {
                EvictionAnswer::Accepted => {
                    accepted = true;
                    progress.evicted.insert(uid);
                    progress.remaining.insert(name, "it has not ended yet".to_owned());
                }
                EvictionAnswer::Gone => drop(progress.remaining.remove(&name)),
                EvictionAnswer::Later(why) => drop(progress.remaining.insert(name, why)),
            }
        }
        drop(evictions);
        idle_rounds = if accepted { 0 } else { idle_rounds + 1 };
        sleep(EVICTION_BACKOFF.jittered(idle_rounds)).await;
    }
}

/// Requests one eviction, in the version that the API last accepted, and in the other version if the
/// API does not support that one.
///
/// An API reports an unsupported version as 400 or 404, depending on its own version. 404 also means
/// that the pod does not exist, so the answers to both versions are needed to distinguish the cases.
async fn evict(api: &KubeOrchestrator, pod: &Pod) -> Result<EvictionAnswer, OrchestratorError> {
    if !is_object_name(&pod.name) || !is_object_name(&pod.namespace) {
        return Ok(EvictionAnswer::Later("its name is invalid".to_owned()));
    }
    let beta = api.evicts_in_beta.load(Ordering::Relaxed);
    let first = evict_in(api, pod, EVICTION_VERSIONS[usize::from(beta)]).await;
    let first = match parse_eviction_answer(first)? {
        Ok(evicted) => return Ok(evicted),
        Err(rejected) => rejected,
    };
    let second = evict_in(api, pod, EVICTION_VERSIONS[usize::from(!beta)]).await;
    if let Ok(evicted) = parse_eviction_answer(second)? {
        api.evicts_in_beta.store(!beta, Ordering::Relaxed);
        return Ok(evicted);
    }
    Ok(match first {
        OrchestratorError::Rejected { status: 404, .. } => EvictionAnswer::Gone,
        rejected => EvictionAnswer::Later(rejected.to_string()),
    })
}

async fn evict_in(api: &KubeOrchestrator, pod: &Pod, version: &str) -> Result<(), OrchestratorError> {
    let Pod {
        namespace, name, uid, ..
    } = pod;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    // In the meantime a stateful set may have started a pod of this name on another node.
    let options = json!({"preconditions": {"uid": uid}});
    let document = json!({
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": options,
    });
    let sent = api
        .send(Method::POST, &path, Some(("application/json", &document)))
        .await;
    sent.map(drop)
}

/// The result of an eviction. The inner error means that the API may not support the version. The
/// outer error ends the drain: the API does not answer, or rejects the credentials.
fn parse_eviction_answer(
    answer: Result<(), OrchestratorError>,
) -> Result<Result<EvictionAnswer, OrchestratorError>, OrchestratorError> {
    match answer {
        Ok(()) => Ok(Ok(EvictionAnswer::Accepted)),
        Err(OrchestratorError::Rejected { status: 409, .. }) => Ok(Ok(EvictionAnswer::Gone)),
        Err(
            rejected @ OrchestratorError::Rejected {
                status: 400 | 404, ..
            },
        ) => Ok(Err(rejected)),
        Err(OrchestratorError::Rejected { status: 429, message }) => Ok(Ok(EvictionAnswer::Later(message))),
        // For example, an API answers 500 if a pod has several disruption budgets.
        Err(rejected @ OrchestratorError::Rejected { .. }) => {
            Ok(Ok(EvictionAnswer::Later(rejected.to_string())))
        }
        Err(error) => Err(error),
    }
}
