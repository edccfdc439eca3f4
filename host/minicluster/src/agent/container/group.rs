//! The networks of task groups. If an executor requests its own network, a small container that
//! only sleeps (the holder) owns that network, and the group's containers join it. The holder
//! exists as long as any of these containers does.

use super::{
    arguments,
    limits::Limits,
    runtime::{CALL, Runtime},
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
pub(super) struct Groups {
    held: Mutex<HashMap<String, Held>>,
    /// Serializes starting and removing holders, so that the two never overlap.
    order: tokio::sync::Mutex<()>,
    tracker: TaskTracker,
}

#[derive(Debug, Default)]
struct Held {
    /// Number of containers that use the network.
    users: usize,
    /// The address of the network, once its holder has started.
    address: Arc<OnceCell<Option<String>>>,
}

/// One container's use of its group's network. When the last one is dropped, the holder is removed.
#[derive(Debug)]
pub(crate) struct Group {
    groups: Arc<Groups>,
    runtime: Arc<Runtime>,
    container: String,
    /// The address of the network.
    pub(super) address: Option<String>,
}

impl Groups {
    pub(super) fn new(tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            order: tokio::sync::Mutex::default(),
            tracker,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the network of the task's group. The first container to join starts the holder.
    pub(super) async fn join(
        self: &Arc<Self>,
        runtime: &Arc<Runtime>,
        launch: &Launch,
        group: &TaskGroup,
        cluster: &str,
    ) -> Result<Group, String> {
        let address = {
            let mut groups = self.lock();
            let held = groups.entry(group.container.clone()).or_default();
            held.users += 1;
            Arc::clone(&held.address)
        };
        let mut joined = Group {
            groups: Arc::clone(self),
            runtime: Arc::clone(runtime),
            container: group.container.clone(),
            address: None,
        };
        let begin = || async {
            let _order = self.order.lock().await;
            start(runtime, launch, group, cluster).await
        };
        joined.address = address.get_or_try_init(begin).await?.clone();
        Ok(joined)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut groups = self.groups.lock();
        let Some(held) = groups.get_mut(&self.container) else {
            return;
        };
        held.users -= 1;
        if held.users > 0 {
            return;
        }
        groups.remove(&self.container);
        drop(groups);
        let (all, runtime) = (Arc::clone(&self.groups), Arc::clone(&self.runtime));
        let container = self.container.clone();
        self.groups.tracker.spawn(async move {
            let _order = all.order.lock().await;
            if all.lock().contains_key(&container) {
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
async fn start(
    runtime: &Runtime,
    launch: &Launch,
    group: &TaskGroup,
    cluster: &str,
) -> Result<Option<String>, String> {
    let name = container_name(&group.container);
    if let Some(seen) = runtime.inspect(&name).await.filter(|seen| seen.running) {
        return Ok(seen.ip);
    }
    let spec = holder(launch, group, cluster)?;
    let mut arguments = arguments::run(&spec, trial_image::NAME, &runtime.options);
    let run = arguments.iter().position(|argument| argument == "run");
    arguments.insert(run.map_or(0, |at| at + 1), "--detach".to_owned());
    super::runtime::call(runtime.kind, &arguments, None, CALL).await?;
    let seen = runtime.inspect(&name).await;
    Ok(seen.ok_or("the network of the task group ended immediately")?.ip)
}

/// The specification of the holder of a group's network.
fn holder(launch: &Launch, group: &TaskGroup, cluster: &str) -> Result<Spec, String> {
    let attachment = task::of_executor(&group.info, launch.agent_addr.ip())?
        .ok_or("the task group has no network of its own")?;
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
