//! The HTTP calls of the client: requests, answers of limited size, and lists in pages.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use transom_common::HostPort;

use super::drain::{self, Pod};
use super::node::{DRAINING, NodeObject};
use super::object_name::is_object_name;
use super::pods::PodObject;
use super::{Drained, Node, Observation, Orchestrator, OrchestratorError, Pods};

/// The maximum size of one answer: a page of nodes with long lists of images.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The number of objects that are requested per page.
const PAGE_SIZE: usize = 200;
/// The maximum number of pages. A server may return fewer objects per page than requested.
const MAX_PAGES: usize = 100;
/// The maximum number of nodes: what Kubernetes supports in one cluster.
const MAX_NODES: usize = 5000;
/// The maximum number of pods of a node, a multiple of what a kubelet runs.
const MAX_PODS: usize = 5000;
/// No further page of pods without a node is read after this many. More pods would not change a
/// decision.
const MAX_WAITING_PODS: usize = 5000;
/// The list of all pods.
const PODS: &str = "/api/v1/pods";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// A client of one server of the orchestrator. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct KubeOrchestrator {
    client: Client,
    address: HostPort,
    timeout: Duration,
    /// Whether the last eviction that the API accepted was of the version before `policy/v1`.
    pub(super) evicts_in_beta: Arc<AtomicBool>,
}

/// Omits the client, which contains keys.
impl std::fmt::Debug for KubeOrchestrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeOrchestrator")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    r#continue: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

impl KubeOrchestrator {
    pub(super) fn new(client: Client, address: HostPort, timeout: Duration) -> Self {
        Self {
            client,
            address,
            timeout,
            evicts_in_beta: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Sends a request. An answer whose status is not a success is an error.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
    ) -> Result<Bytes, OrchestratorError> {
        let request_line = format!("{method} {}", path.split('?').next().unwrap_or_default());
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, JSON);
        let mut bytes = Bytes::new();
        if let Some((kind, document)) = body {
            request = request.header(http::header::CONTENT_TYPE, kind);
            bytes = Bytes::from(document.to_string());
        }
        let invalid_answer = |why: String| OrchestratorError::Nonsense {
            request: request_line.clone(),
            why: super::client_config::bounded(&why),
        };
        let request = request
            .body(Body::from(bytes.to_vec()))
            .map_err(|error| invalid_answer(error.to_string()))?;
        let exchange = async {
            let answer = self.client.send(request).await;
            let answer = answer.map_err(|error| OrchestratorError::of_transport(&self.address, &error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(|error| {
                    if error.is::<http_body_util::LengthLimitError>() {
                        invalid_answer(format!("it exceeds {MAX_ANSWER_BYTES} bytes"))
                    } else {
                        OrchestratorError::of_transport(&self.address, error.as_ref())
                    }
                })?;
            let body = body.to_bytes();
            if head.status.is_success() {
                Ok(body)
            } else {
                Err(OrchestratorError::of_status(head.status, &body))
            }
        };
        timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs_f64();
            Err(self.timed_out(&format!("no answer to {request_line} within {seconds} s")))
        })
    }

    pub(super) fn timed_out(&self, what: &str) -> OrchestratorError {
        OrchestratorError::Unreachable {
            address: self.address.clone(),
            why: format!("timeout: {what}"),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, OrchestratorError> {
        let bytes = self.send(Method::GET, path, None).await?;
        serde_json::from_slice(&bytes).map_err(|error| invalid_answer(path, &error.to_string()))
    }

    /// Reads all objects of a list. More than `max_objects` objects are an error.
    async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: Option<&str>,
        max_objects: usize,
    ) -> Result<Vec<T>, OrchestratorError> {
        let mut items = Vec::new();
        self.pages(path, selector, |page| {
            items.extend(page);
            if items.len() > max_objects {
                return Err(format!("more than {max_objects} objects"));
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(items)
    }

    /// Calls `handle_page` with each page of a list, until `handle_page` breaks or returns an error.
    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        selector: Option<&str>,
        mut handle_page: impl FnMut(Vec<T>) -> Result<ControlFlow<()>, String>,
    ) -> Result<(), OrchestratorError> {
        let mut after = String::new();
        for _ in 0..MAX_PAGES {
            let page: List<T> = self.get(&page_path(path, selector, &after)).await?;
            let taken =
                handle_page(page.items.unwrap_or_default()).map_err(|why| invalid_answer(path, &why))?;
            after = page.metadata.r#continue.unwrap_or_default();
            if after.is_empty() || taken.is_break() {
                return Ok(());
            }
        }
        Err(invalid_answer(path, &format!("more than {MAX_PAGES} pages")))
    }

    /// Cordons or uncordons a node, and sets the annotation that shows whether it is being drained.
    pub(super) async fn set_cordoned(
        &self,
        node: &str,
        cordoned: bool,
        draining: bool,
    ) -> Result<(), OrchestratorError> {
        if !is_object_name(node) {
            return Ok(());
        }
        // `null` removes a field, as `kubectl uncordon` does.
        let change = json!({
            "metadata": {"annotations": {DRAINING: draining.then_some("true")}},
            "spec": {"unschedulable": cordoned.then_some(true)},
        });
        let path = format!("/api/v1/nodes/{node}");
        ignore_missing(
            self.send(Method::PATCH, &path, Some((MERGE_PATCH, &change)))
                .await,
        )
    }

    /// The pods of a node that a drain evicts.
    pub(super) async fn pods_to_evict(&self, node: &str) -> Result<Vec<Pod>, OrchestratorError> {
        if !is_object_name(node) {
            return Ok(Vec::new());
        }
        let selector = format!("spec.nodeName={node}");
        let pods: Vec<PodObject> = self.list(PODS, Some(&selector), MAX_PODS).await?;
        Ok(pods.into_iter().filter_map(drain::pod_to_evict).collect())
    }
}

/// The path of the page after a continue token; with an empty token, of the first page.
fn page_path(path: &str, selector: Option<&str>, after: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &PAGE_SIZE.to_string());
    if let Some(selector) = selector {
        query.append_pair("fieldSelector", selector);
    }
    if !after.is_empty() {
        query.append_pair("continue", after);
    }
    format!("{path}?{}", query.finish())
}

fn invalid_answer(path: &str, why: &str) -> OrchestratorError {
    OrchestratorError::Nonsense {
        request: format!("GET {}", path.split('?').next().unwrap_or_default()),
        why: super::client_config::bounded(why),
    }
}

/// Ignores the error of a missing object.
fn ignore_missing(result: Result<Bytes, OrchestratorError>) -> Result<(), OrchestratorError> {
    match result {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND.as_u16()) => Ok(()),
        result => result.map(drop),
    }
}

#[async_trait]
impl Orchestrator for KubeOrchestrator {
    async fn observe(&self) -> Result<Observation, OrchestratorError> {
        self.send(Method::GET, "/readyz", None).await?;
        let version: Version = self.get("/version").await?;
        let nodes: Vec<NodeObject> = self.list("/api/v1/nodes", None, MAX_NODES).await?;
        // A change between two pages may repeat a node.
        let mut seen = HashSet::new();
        let mut nodes: Vec<Node> = nodes.into_iter().map(Node::from).collect();
        nodes.retain(|node| seen.insert(node.name.clone()));
        Ok(Observation {
            version: super::client_config::bounded(&version.git_version),
            nodes,
        })
    }

    async fn pods(&self) -> Result<Pods, OrchestratorError> {
        let mut pods = Pods::default();
        // Placed pods are listed first. A pod that gets its node between the two lists is then in
        // neither of them, and its node may appear idle once. In the opposite order the pod would be in
        // both lists, and could add an agent without need.
        self.pages(PODS, Some("spec.nodeName!="), |page: Vec<PodObject>| {
            page.iter().try_for_each(|pod| pods.add_placed(pod))?;
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        let waiting = "spec.nodeName=,status.phase=Pending";
        self.pages(PODS, Some(waiting), |page: Vec<PodObject>| {
            page.iter().try_for_each(|pod| pods.add_waiting(pod))?;
            Ok(if pods.waiting.len() < MAX_WAITING_PODS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })
        .await?;
        Ok(pods)
    }

    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), OrchestratorError> {
        self.set_cordoned(node, cordoned, false).await
    }

    async fn drain(&self, node: &str, deadline: Instant) -> Result<Drained, OrchestratorError> {
        drain::drain(self, node, deadline).await
    }

    async fn remove_node(&self, node: &str) -> Result<(), OrchestratorError> {
        if !is_object_name(node) {
            return Ok(());
        }
        ignore_missing(
            self.send(Method::DELETE, &format!("/api/v1/nodes/{node}"), None)
                .await,
        )
    }
}
