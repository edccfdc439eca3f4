//! The networks of task groups. If an executor requests its own network, a small container that
//! only sleeps (the holder) owns that network, and the group's containers join it. The holder
//! exists as long as any of these containers does.

use super::{
    arguments,
    limits::Limits,
    runtime::{CALL_TIMEOUT, Runtime},
    spec::{Containerizer, Image, Spec},
    task::{self, container_name},
    trial_image,
};
use crate::state::{Launch, TaskGroup};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

/// The task groups that have their own network.
#[derive(Debug)]
pub(super) struct GroupNetworks {
    networks: Mutex<HashMap<String, GroupNetwork>>,
    /// Serializes starting and removing holders, so that the two never overlap.
    holder_lock: tokio::sync::Mutex<()>,
    tracker: TaskTracker,
}

#[derive(Debug, Default)]
struct GroupNetwork {
    /// Number of containers that use the network.
    users: usize,
    /// The address of the network, once its holder has started.
    address: Arc<OnceCell<Option<String>>>,
}

/// One container's use of its group's network. When the last one is dropped, the holder is removed.
#[derive(Debug)]
pub(crate) struct GroupMembership {
    groups: Arc<GroupNetworks>,
    runtime: Arc<Runtime>,
    container: String,
    /// The address of the network.
    pub(super) address: Option<String>,
}

impl GroupNetworks {
    pub(super) fn new(tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            networks: Mutex::default(),
            holder_lock: tokio::sync::Mutex::default(),
            tracker,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GroupNetwork>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the network of the task's group. The first container to join starts the holder.
    pub(super) async fn join(
        self: &Arc<Self>,
        runtime: &Arc<Runtime>,
        launch: &Launch,
        group: &TaskGroup,
        cluster: &str,
    ) -> Result<GroupMembership, String> {
        let address = {
            let mut networks = self.lock();
            let network = networks.entry(group.container.clone()).or_default();
            network.users += 1;
            Arc::clone(&network.address)
        };
        let mut membership = GroupMembership {
            groups: Arc::clone(self),
            runtime: Arc::clone(runtime),
            container: group.container.clone(),
            address: None,
        };
        let start_once = || async {
            let _holder_lock = self.holder_lock.lock().await;
            start_holder(runtime, launch, group, cluster).await
        };
        membership.address = address.get_or_try_init(start_once).await?.clone();
        Ok(membership)
    }
}

impl Drop for GroupMembership {
    fn drop(&mut self) {
        let mut networks = self.groups.lock();
        let Some(network) = networks.get_mut(&self.container) else {
            return;
        };
        network.users -= 1;
        if network.users > 0 {
            return;
        }
        networks.remove(&self.container);
        drop(networks);
        let (groups, runtime) = (Arc::clone(&self.groups), Arc::clone(&self.runtime));
        let container = self.container.clone();
        self.groups.tracker.spawn(async move {
            let _holder_lock = groups.holder_lock.lock().await;
            if groups.lock().contains_key(&container) {
                // Another task of the group has joined meanwhile.
                return;
            }
            if let Err(why) = runtime.remove(&[&container_name(&container)]).await {
                tracing::warn!(%container, why, "cannot remove the network of a task group");
            }
        });
    }
}

/// Starts the holder of a group's network and returns its address. A running holder is reused.
async fn start_holder(
    runtime: &Runtime,
    launch: &Launch,
    group: &TaskGroup,
    cluster: &str,
) -> Result<Option<String>, String> {
    let name = container_name(&group.container);
    if let Some(inspection) = runtime
        .inspect(&name)
        .await
        .filter(|inspection| inspection.running)
    {
        return Ok(inspection.ip);
    }
    let spec = holder_spec(launch, group, cluster)?;
    let mut arguments = arguments::run(&spec, trial_image::NAME, &runtime.options);
    let run = arguments.iter().position(|argument| argument == "run");
    arguments.insert(run.map_or(0, |at| at + 1), "--detach".to_owned());
    super::runtime::call(runtime.kind, &arguments, None, CALL_TIMEOUT).await?;
    let inspection = runtime.inspect(&name).await;
    Ok(inspection
        .ok_or("the container that holds the network of the task group ended immediately")?
        .ip)
}

/// The specification of the holder of a group's network.
fn holder_spec(launch: &Launch, group: &TaskGroup, cluster: &str) -> Result<Spec, String> {
    let attachment = task::of_executor(&group.info, launch.agent_addr.ip())?
        .ok_or("the executor of the task group has no container network")?;
    Ok(Spec {
        containerizer: Containerizer::Mesos,
        name: container_name(&group.container),
        labels: task::labels(launch, cluster),
        image: Image::default(),
        network: attachment.network,
        published: attachment.published,
        network_info: None,
        hostname: crate::wire::json::text(&group.info, &["container", "hostname"]).map(str::to_owned),
        mounts: Vec::new(),
        volume_driver: None,
        directories: Vec::new(),
        environment: Vec::new(),
        limits: Limits::default(),
        user: None,
        workdir: None,
        privileged: false,
        parameters: Vec::new(),
        shm_size_mb: None,
        entrypoint: Some(trial_image::WAIT.to_owned()),
        arguments: Vec::new(),
    })
}
