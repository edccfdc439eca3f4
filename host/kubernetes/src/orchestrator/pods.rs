//! Pods as the API describes them, and their evaluation for autoscaling.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::quantity::{self, Resources};

/// The pods as input of autoscaling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    /// The pods that wait for a node.
    pub(crate) waiting: Vec<WaitingPod>,
    /// The load of each node that has one, by the node's name.
    pub(crate) loads: BTreeMap<String, NodeLoad>,
}

/// A pod without a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingPod {
    pub(crate) uid: String,
    /// `namespace/name`
    pub(crate) name: String,
    pub(crate) requests: Resources,
    /// Whether the orchestrator's scheduler found no node; otherwise it has not tried the pod yet.
    pub(crate) unschedulable: bool,
}

/// The load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeLoad {
    /// Whether it runs a pod that would have to move if the node ended.
    pub(crate) busy: bool,
    /// The requests of the pods that belong to the node: those of daemon sets and mirror pods.
    pub(crate) own: Resources,
}

/// The fields of a `Pod` that are read.
#[derive(Deserialize)]
pub(super) struct PodObject {
    pub(super) metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    kind: String,
    controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    overhead: Option<Amounts>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    resources: Option<ContainerResources>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
struct ContainerResources {
    requests: Option<Amounts>,
}

/// Amounts of resources in Kubernetes' notation.
#[derive(Deserialize)]
pub(super) struct Amounts {
    cpu: Option<String>,
    memory: Option<String>,
    pods: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
    reason: Option<String>,
}

impl Amounts {
    /// Parses the amounts. A missing amount is 0.
    ///
    /// # Errors
    /// A message with the first text that is no amount.
    fn parse(&self) -> Result<Resources, String> {
        let read = |text: &Option<String>, parse: fn(&str) -> Option<u64>| match text {
            None => Ok(0),
            Some(text) => parse(text).ok_or_else(|| format!("{text:?} is not a valid quantity")),
        };
        Ok(Resources {
            cpu_millis: read(&self.cpu, quantity::cpu_millis)?,
            memory: read(&self.memory, quantity::count)?,
            pods: read(&self.pods, quantity::count)?,
        })
    }

    /// A node's allocatable resources; `None` if the API does not report all of them.
    pub(super) fn allocatable(&self) -> Option<Resources> {
        let known = self.cpu.is_some() && self.memory.is_some() && self.pods.is_some();
        known.then(|| self.parse().ok()).flatten()
    }
}

impl Container {
    fn requests(&self) -> Result<Resources, String> {
        let requests = self.resources.as_ref().and_then(|it| it.requests.as_ref());
        requests.map_or(Ok(Resources::default()), Amounts::parse)
    }
}

impl PodObject {
    /// Whether the pod is bound to its node, so that a drain does not evict it: a daemon set would
    /// start it again on the node, and a kubelet runs a mirror pod independently of the API.
    pub(super) fn belongs_to_node(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        let mut of_daemon_set =
            owners.filter(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
        let annotations = self.metadata.annotations.as_ref();
        let mirror = annotations.is_some_and(|all| all.contains_key("kubernetes.io/config.mirror"));
        of_daemon_set.next().is_some() || mirror
    }

    /// Whether all its containers have ended and will not be started again.
    pub(super) fn is_finished(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// The requests as Kubernetes' scheduler computes them: containers run concurrently, init
    /// containers before them and one after the other, except sidecars (`restartPolicy: Always`),
    /// which continue to run.
    fn requests(&self) -> Result<Resources, String> {
        let Some(spec) = &self.spec else {
            return Ok(Resources::default());
        };
        let (mut beside, mut start) = (Resources::default(), Resources::default());
        for container in spec.init_containers.iter().flatten() {
            let own = container.requests()?;
            start = start.max(beside.plus(own));
            if container.restart_policy.as_deref() == Some("Always") {
                beside = beside.plus(own);
            }
        }
        let mut all = beside;
        for container in spec.containers.iter().flatten() {
            all = all.plus(container.requests()?);
        }
        let overhead = spec
            .overhead
            .as_ref()
            .map_or(Ok(Resources::default()), Amounts::parse)?;
        Ok(Resources {
            pods: 1,
            ..all.max(start).plus(overhead)
        })
    }
}

impl Pods {
    /// Adds a pod without a node.
    ///
    /// # Errors
    /// A message with a resource request that is no amount.
    pub(super) fn add_waiting(&mut self, pod: &PodObject) -> Result<(), String> {
        let conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let mut rejected = conditions.filter(|it| it.r#type == "PodScheduled" && it.status == "False");
        let reason = rejected.next().and_then(|rejected| rejected.reason.as_deref());
        // A pod with scheduling gates does not wait for a node yet.
        if pod.metadata.deletion_timestamp.is_some() || reason == Some("SchedulingGated") {
            return Ok(());
        }
        let Metadata {
            namespace, name, uid, ..
        } = &pod.metadata;
        let name = format!("{namespace}/{name}");
        let requests = pod.requests().map_err(|why| format!("pod {name}: {why}"))?;
        self.waiting.push(WaitingPod {
            uid: uid.clone(),
            name,
            requests,
            unschedulable: reason == Some("Unschedulable"),
        });
        Ok(())
    }

    /// Adds a pod to the load of its node.
    ///
    /// # Errors
    /// A message with a resource request that is no amount.
    pub(super) fn add_placed(&mut self, pod: &PodObject) -> Result<(), String> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let Some(node) = node.filter(|_| !pod.is_finished()) else {
            return Ok(());
        };
        let load = self.loads.entry(node.clone()).or_default();
        if pod.belongs_to_node() {
            let requests = pod.requests();
            let requests = requests.map_err(|why| format!("pod {}: {why}", pod.metadata.name))?;
            load.own = load.own.plus(requests);
        } else {
            load.busy = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "every caller has just made them")]
    fn pod(metadata: Value, spec: Value, status: Value) -> PodObject {
        let mut object =
            json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec, "status": status});
        if let (Value::Object(all), Value::Object(more)) = (&mut object["metadata"], metadata) {
            all.extend(more);
        }
        serde_json::from_value(object).unwrap()
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = container(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn requests_are_those_that_the_scheduler_counts() {
        for (spec, cpu_millis, memory) in [
            (json!({}), 0, 0),
            (
                json!({"containers": [{}, {"resources": {"limits": {"cpu": "1"}}}]}),
                0,
                0,
            ),
            (
                json!({"containers": [container("100m", "1k"), container("0.2", "2k")]}),
                300,
                3000,
            ),
            (
                json!({"containers": [container("100m", "5k")], "initContainers": [container("1", "1k"), container("2", "2k")]}),
                2000,
                5000,
            ),
            (
                json!({"containers": [container("100m", "5k")], "initContainers": [sidecar("50m", "1k"), container("1", "1k")]}),
                1050,
                6000,
            ),
            (
                json!({"containers": [container("100m", "5k")], "overhead": {"cpu": "10m", "memory": "1k"}}),
                110,
                6000,
            ),
        ] {
            let expected = Resources {
                cpu_millis,
                memory,
                pods: 1,
            };
            assert_eq!(
                pod(json!({}), spec.clone(), json!({})).requests(),
                Ok(expected),
                "{spec}"
            );
        }
        let wrong = pod(
            json!({}),
            json!({"containers": [container("much", "1")]}),
            json!({}),
        );
        let error = Pods::default().add_waiting(&wrong).unwrap_err();
        assert_eq!(error, "pod d/p: \"much\" is not a valid quantity");
    }

    #[test]
    fn pending_pods_are_unschedulable_if_the_scheduler_reports_it() {
        let condition = |status: &str, reason: Value| {
            json!({"phase": "Pending", "conditions": [
                {"type": "Ready", "status": "False", "reason": "Unschedulable"},
                {"type": "PodScheduled", "status": status, "reason": reason},
            ]})
        };
        for (metadata, status, expected) in [
            (json!({}), condition("False", json!("Unschedulable")), Some(true)),
            (
                json!({}),
                condition("False", json!("SchedulerError")),
                Some(false),
            ),
            (json!({}), condition("True", json!("Unschedulable")), Some(false)),
            (json!({}), json!({"phase": "Pending"}), Some(false)),
            (json!({}), condition("False", json!("SchedulingGated")), None),
            (
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                condition("False", json!("Unschedulable")),
                None,
            ),
        ] {
            let mut pods = Pods::default();
            pods.add_waiting(&pod(metadata, json!({}), status.clone()))
                .unwrap();
            let found = pods.waiting.first().map(|pod| pod.unschedulable);
            assert_eq!(found, expected, "{status}");
        }
    }

    #[test]
    fn pods_that_belong_to_their_node_do_not_keep_it_busy() {
        let owner = |kind: &str, controller: bool| json!({"ownerReferences": [{"kind": kind, "controller": controller}]});
        let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
        for (metadata, phase, busy, cpu_millis) in [
            (json!({}), "Running", true, 0),
            (json!({}), "Pending", true, 0),
            (json!({}), "Succeeded", false, 0),
            (json!({}), "Failed", false, 0),
            (owner("ReplicaSet", true), "Running", true, 0),
            (owner("DaemonSet", false), "Running", true, 0),
            (owner("DaemonSet", true), "Running", false, 100),
            (mirror, "Running", false, 100),
        ] {
            let spec = json!({"nodeName": "n", "containers": [container("100m", "1k")]});
            let mut pods = Pods::default();
            let placed = pod(metadata.clone(), spec, json!({"phase": phase}));
            pods.add_placed(&placed).unwrap();
            let load = pods.loads.get("n").copied().unwrap_or_default();
            assert_eq!(
                (load.busy, load.own.cpu_millis),
                (busy, cpu_millis),
                "{metadata} {phase}"
            );
        }
    }
}
