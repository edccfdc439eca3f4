//! A node: it is registered once and then kept ready.

use std::time::Duration;

use anyhow::ensure;
use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::time::MissedTickBehavior;

use crate::api::Api;

/// The version of the control plane's programs.
pub(crate) const VERSION: &str = "v1.20.2";
/// Interval of renewals of status and lease.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);
/// The validity of the lease in seconds.
const LEASE_SECONDS: u32 = 10;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const JSON: &str = "application/json";

/// A node that runs nothing.
pub(crate) struct Node {
    name: String,
    labels: Map<String, Value>,
    registered: bool,
    /// An agent may switch to the API of another server.
    is_agent: bool,
    since: Timestamp,
}

impl Node {
    /// `id` is part of the name and makes it unique.
    pub(crate) fn new(role: &str, id: &str, labels: &[String]) -> Self {
        let split = labels.iter().filter_map(|label| label.split_once('='));
        let mut labels: Map<String, Value> = split
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        if role == "server" {
            labels.insert("node-role.kubernetes.io/control-plane".into(), "true".into());
        }
        Self {
            name: format!("{role}-{id}"),
            labels,
            registered: false,
            is_agent: role == "agent",
            since: Timestamp::now(),
        }
    }

    /// Registers the node, then keeps it ready. A deleted node is not registered again.
    pub(crate) async fn keep(&mut self, api: &mut Api) {
        let mut silent = false;
        let mut renewals = tokio::time::interval(RENEWAL_INTERVAL);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            renewals.tick().await;
            match self.renew(api).await {
                Ok(()) => silent = false,
                Err(error) => {
                    if !silent {
                        println!("node {}: {error:#}; retrying", self.name);
                    }
                    silent = true;
                    if self.is_agent {
                        api.switch_server();
                    }
                }
            }
        }
    }

    async fn renew(&mut self, api: &Api) -> anyhow::Result<()> {
        if !self.registered {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": self.name, "labels": self.labels},
            });
            let status = api.send(Method::POST, "/api/v1/nodes", JSON, &node).await?;
            ensure!(
                status.is_success() || status == StatusCode::CONFLICT,
                "registering: {status}"
            );
            self.registered = true;
            println!("node {} is registered", self.name);
        }
        let path = format!("/api/v1/nodes/{}/status", self.name);
        let status = json!({"status": self.status()});
        let answer = api
            .send(
                Method::PATCH,
                &path,
                "application/strategic-merge-patch+json",
                &status,
            )
            .await?;
        ensure!(answer.is_success(), "its status: {answer}");
        self.renew_lease(api).await
    }

    fn status(&self) -> Value {
        let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({
            "capacity": {"cpu": "1", "memory": "1Gi", "pods": "110"},
            "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it runs nothing",
                "lastHeartbeatTime": time(Timestamp::now()), "lastTransitionTime": time(self.since),
            }],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "none://0", "kubeletVersion": VERSION, "kubeProxyVersion": VERSION,
                "operatingSystem": "linux", "architecture": "amd64",
            },
        })
    }

    async fn renew_lease(&self, api: &Api) -> anyhow::Result<()> {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({
            "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
        });
        let path = format!("{LEASES}/{}", self.name);
        let renewal = json!({"spec": spec});
        let answer = api
            .send(Method::PATCH, &path, "application/merge-patch+json", &renewal)
            .await?;
        if answer != StatusCode::NOT_FOUND {
            ensure!(answer.is_success(), "its lease: {answer}");
            return Ok(());
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name}, "spec": spec,
        });
        let answer = api.send(Method::POST, LEASES, JSON, &lease).await?;
        ensure!(answer.is_success(), "making its lease: {answer}");
        Ok(())
    }
}
