//! The containers of one cluster: finds the runtime once, prepares launches, and removes containers
//! that remain.

use super::{
    arguments,
    find::find_runtime,
    group::GroupNetworks,
    pull,
    running::Container,
    runtime::{CALL_TIMEOUT, Runtime},
    spec::{Containerizer, Network, Spec},
    task,
};
use crate::{
    agent::process,
    config::{Config, Images},
    error::{Error, Result},
    state::Launch,
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    process::Command,
    sync::{OnceCell, OwnedSemaphorePermit, Semaphore},
};
use tokio_util::task::TaskTracker;

/// Maximum containers that start concurrently, and maximum concurrent pulls.
const MAX_CONCURRENT_LAUNCHES: usize = 4;
const MAX_CONCURRENT_PULLS: usize = 2;
/// The file in the work directory that names the runtime for as long as containers may remain.
const MARKER_FILE: &str = "containers";

/// Starts the containers of a cluster.
#[derive(Debug)]
pub(crate) struct Launcher {
    images: Images,
    work_dir: PathBuf,
    /// The value of the label that all containers of the cluster carry: its work directory, which
    /// is the same after a restart.
    cluster: String,
    search_result: OnceCell<std::result::Result<Arc<Runtime>, String>>,
    launches: Arc<Semaphore>,
    pulls: Semaphore,
    groups: Arc<GroupNetworks>,
    tracker: TaskTracker,
}

/// Why a container does not start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContainerError {
    /// The agent reports this failure.
    Launch(String),
    /// Docker's executor reports this failure.
    Options(String),
}

/// A container that is ready to start.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) container: Container,
    /// The command that runs it in the foreground.
    pub(crate) command: Command,
}

impl Launcher {
    /// A launcher that has not searched for a runtime yet. Its background work is tracked.
    pub(crate) fn new(config: &Config, tracker: TaskTracker) -> Self {
        Self {
            images: config.images,
            work_dir: config.work_dir.clone(),
            cluster: config.work_dir.display().to_string(),
            search_result: OnceCell::new(),
            launches: Arc::new(Semaphore::new(MAX_CONCURRENT_LAUNCHES)),
            pulls: Semaphore::new(MAX_CONCURRENT_PULLS),
            groups: GroupNetworks::new(tracker.clone()),
            tracker,
        }
    }

    /// To be called before the first task: removes the containers of an earlier run, and finds the
    /// runtime if the setting names one. If that runtime does not work, the cluster does not start.
    pub(crate) async fn start(&self) -> Result<()> {
        let marker = self.work_dir.join(MARKER_FILE);
        let earlier = tokio::fs::read_to_string(&marker).await.ok();
        match self.images {
            Images::Podman | Images::Docker => {
                let result = self.runtime().await;
                result.map_err(|why| Error::Images {
                    images: self.images.to_string(),
                    why,
                })?;
            }
            Images::Auto if earlier.is_some() => {
                // The outcome is logged, and each task with an image reports a failure.
                let _ = self.runtime().await;
            }
            Images::Auto | Images::Process | Images::None => {}
        }
        let current = self.search_result.get().and_then(|result| result.as_ref().ok());
        let earlier = earlier.and_then(|name| name.trim().parse::<Images>().ok());
        let other_runtime = earlier
            .filter(|images| current.is_none_or(|runtime| runtime.kind.program() != images.to_string()));
        if let Some(images) = other_runtime {
            match find_runtime(images).await {
                Ok(runtime) => self.sweep(&runtime).await,
                Err(why) => tracing::error!(why, "cannot remove the containers of an earlier run"),
            }
        }
        Ok(())
    }

    /// The runtime. The first call searches for it.
    pub(crate) async fn runtime(&self) -> std::result::Result<Arc<Runtime>, String> {
        let result = self.search_result.get_or_init(|| async {
            let result = find_runtime(self.images).await;
            match &result {
                Ok(runtime) => {
                    tracing::info!("containers run through {}", runtime.describe());
                    if !runtime.options.supports_limits {
                        tracing::warn!("limits on memory and CPUs of containers are not available");
                    }
                    if let Some(why) = &runtime.bridge_error {
                        tracing::warn!(why, "bridge networks of containers are not available");
                    }
                    self.sweep(runtime).await;
                }
                Err(why) => tracing::warn!("container images are not available: {why}"),
            }
            result.map(Arc::new)
        });
        result.await.clone()
    }

    /// Removes all containers of this cluster.
    async fn sweep(&self, runtime: &Runtime) {
        match runtime.remove_all(&self.cluster).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed remaining containers of this cluster"),
            Err(why) => tracing::error!(why, "cannot remove remaining containers of this cluster"),
        }
    }

    /// Prepares the container of a task: its image, directories and network.
    pub(crate) async fn prepare(&self, launch: &Launch) -> std::result::Result<Prepared, ContainerError> {
        let runtime = self
            .runtime()
            .await
            .map_err(|why| ContainerError::Launch(format!("container images are not available: {why}")))?;
        let user =
            process::user_to_switch_to(&launch.user).map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        let user = user.or(nix::unistd::geteuid().is_root().then_some((0, 0)));
        let mut spec = task::spec(launch, &self.cluster, user).map_err(|why| options_error(launch, why))?;
        let name = pull::ensure_image(
            &runtime,
            &spec.image,
            &launch.directory,
            &self.work_dir,
            &self.pulls,
        )
        .await
        .map_err(ContainerError::Launch)?;
        let image = runtime.inspect_image(&name).await.unwrap_or_default();
        if spec.containerizer == Containerizer::Mesos && image.workdir.is_none() {
            spec.workdir = Some(super::spec::SANDBOX_PATH.to_owned());
        }
        for directory in &spec.directories {
            create_directory(directory, &launch.user).await.map_err(|error| {
                ContainerError::Launch(format!("cannot create '{}': {error}", directory.display()))
            })?;
        }
        // Before the first container starts: if this process is killed, the next run finds the marker.
        self.write_marker(&runtime).await.map_err(|error| {
            ContainerError::Launch(format!("cannot write to '{}': {error}", self.work_dir.display()))
        })?;
        let group = match (&spec.network, &launch.group) {
            (Network::Container(_), Some(group)) => {
                let joined = self.groups.join(&runtime, launch, group, &self.cluster).await;
                Some(joined.map_err(ContainerError::Launch)?)
            }
            _ => None,
        };
        let permit = self.acquire_permit().await?;
        let arguments = arguments::run(&spec, &name, &runtime.options);
        let command = runtime.command(&arguments);
        let signal = image
            .stop_signal
            .filter(|_| spec.containerizer == Containerizer::Docker);
        let container = Container::new(runtime, spec, signal, group, permit, self.tracker.clone());
        Ok(Prepared { container, command })
    }

    async fn acquire_permit(&self) -> std::result::Result<OwnedSemaphorePermit, ContainerError> {
        let permit = Arc::clone(&self.launches).acquire_owned().await;
        permit.map_err(|error| ContainerError::Launch(error.to_string()))
    }

    async fn write_marker(&self, runtime: &Runtime) -> io::Result<()> {
        tokio::fs::write(self.work_dir.join(MARKER_FILE), runtime.kind.program()).await
    }

    /// To be called after the last task: removes the remaining containers.
    pub(crate) async fn finish(&self) {
        let Some(Ok(runtime)) = self.search_result.get() else {
            return;
        };
        let sweep = async {
            self.sweep(runtime).await;
            tokio::fs::remove_file(self.work_dir.join(MARKER_FILE)).await
        };
        match tokio::time::timeout(2 * CALL_TIMEOUT, sweep).await {
            Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove the marker file of containers");
            }
            Ok(_) => {}
            Err(_) => tracing::error!("containers remain: the container runtime timed out"),
        }
    }
}

/// Classifies an error in the task's options. Docker's executor reports such errors itself, so the
/// task starts first.
fn options_error(launch: &Launch, why: String) -> ContainerError {
    if launch.info["container"]["type"] == "DOCKER" {
        ContainerError::Options(why)
    } else {
        ContainerError::Launch(why)
    }
}

/// Creates a missing directory for a user.
async fn create_directory(directory: &Path, user: &str) -> io::Result<()> {
    if tokio::fs::try_exists(directory).await? {
        return Ok(());
    }
    tokio::fs::create_dir_all(directory).await?;
    match process::user_to_switch_to(user) {
        Some(user) => std::os::unix::fs::chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        None => Ok(()),
    }
}

impl Spec {
    /// The memory limit in megabytes.
    pub(super) fn memory_mb(&self) -> Option<u64> {
        self.limits.memory.map(|bytes| bytes >> 20)
    }
}
