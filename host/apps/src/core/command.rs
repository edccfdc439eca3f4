//! Requests from the API to the core, and their replies.

use std::collections::BTreeSet;
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_common::trace::TraceContext;
use transom_framework::ActorError;
use transom_scheduler::RunSpec;
use transom_store::typed;

use crate::deploy::{Canary, Deadline, Step};
use crate::ids::{GroupId, SpecId};
use crate::instance::Instance;
use crate::model::pod::PodInput;
use crate::model::{AppUpdate, GroupUpdate, Invalid, Spec};
use crate::probes::Probe;
use crate::time::Moment;

/// The client behind a request, as `api_post_event` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) client: String,
    pub(crate) uri: String,
}

impl Origin {
    /// The path as the client sent it.
    pub(crate) fn path(&self) -> &str {
        self.uri.split('?').next().unwrap_or_default()
    }
}

/// A change of definitions.
#[derive(Debug)]
pub(crate) enum Edit {
    App {
        id: SpecId,
        edit: AppEdit,
    },
    /// Updates of several apps; `partial` keeps fields that an update does not name, `create`
    /// creates missing apps.
    Apps {
        updates: Vec<AppUpdate>,
        partial: bool,
        create: bool,
    },
    Pod {
        id: SpecId,
        edit: PodEdit,
    },
    Group {
        id: GroupId,
        edit: GroupEdit,
    },
    /// Reverts what a running deployment changed.
    Revert(String),
}

impl Edit {
    /// The number of apps, pods and groups that the request defines. The change has at least as many
    /// records.
    pub(super) fn definitions(&self) -> usize {
        match self {
            Self::Apps { updates, .. } => updates.len(),
            Self::Group {
                edit: GroupEdit::Create(update) | GroupEdit::Update(update),
                ..
            } => update.definitions(),
            _ => 1,
        }
    }
}

/// A change of one app.
#[derive(Debug)]
pub(crate) enum AppEdit {
    /// A new app; rejected if the app exists.
    Create(Box<AppUpdate>),
    /// An update; `partial` keeps fields that it does not name, `create` creates a missing app,
    /// `restart` replaces all instances.
    Update {
        update: Box<AppUpdate>,
        partial: bool,
        create: bool,
        restart: bool,
    },
    Delete,
    Restart,
}

/// A change of one pod.
#[derive(Debug)]
pub(crate) enum PodEdit {
    /// A new pod; rejected if there is an app or pod with this id.
    Create(Box<PodInput>),
    /// Another definition; rejected if the pod does not exist.
    Replace(Box<PodInput>),
    Delete,
}

/// A change of a group.
#[derive(Debug)]
pub(crate) enum GroupEdit {
    /// A new group; rejected if the group exists.
    Create(Box<GroupUpdate>),
    /// Creates or updates the group.
    Update(Box<GroupUpdate>),
    /// Multiplies the number of instances of all apps below the group.
    Scale(f64),
    /// Restores the definitions of that version.
    Rollback(Moment),
    /// Deletes the group with everything below it.
    Delete,
}

/// Selects tasks of an app.
#[derive(Clone, Debug)]
pub(crate) enum TaskSelection {
    All,
    OnHost(String),
    One(String),
    /// The instances of a pod with these ids.
    OfPod(BTreeSet<String>),
}

impl TaskSelection {
    pub(crate) fn is_of_pod(&self) -> bool {
        matches!(self, Self::OfPod(_))
    }

    /// The rejection of a request for an app or pod that does not exist.
    pub(crate) fn missing(&self, id: &SpecId) -> Rejection {
        if self.is_of_pod() {
            Rejection::NoPod(id.clone())
        } else {
            Rejection::NoApp(id.clone())
        }
    }
}

/// A stored change whose deployment has started.
#[derive(Clone, Debug)]
pub(crate) struct StartedDeployment {
    pub(crate) deployment: String,
    pub(crate) version: Moment,
    /// The definition after a change of one app or pod; the last one if the app or pod was deleted.
    pub(crate) spec: Option<Spec>,
    /// Whether the app, pod or group is new.
    pub(crate) created: bool,
}

/// Why a request is rejected.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("App '{0}' does not exist")]
    NoApp(SpecId),
    #[error("App '{0}' does not exist in version {1}")]
    NoVersion(SpecId, Moment),
    #[error("Pod '{0}' does not exist")]
    NoPod(SpecId),
    #[error("Pod '{0}' does not exist in version {1}")]
    NoPodVersion(SpecId, Moment),
    #[error("Group '{0}' does not exist")]
    NoGroup(GroupId),
    #[error("Group '{0}' does not exist in version {1}")]
    NoGroupVersion(GroupId, Moment),
    #[error("Application {0} not found in tasks queue.")]
    NotWaiting(SpecId),
    #[error("Task '{0}' does not exist")]
    NoTask(String),
    #[error(
        "Task '{0}' does not run, so it cannot be probed. `transom apps show` has the state of its app's tasks."
    )]
    NotRunning(String),
    #[error("DeploymentPlan {0} does not exist")]
    NoDeployment(String),
    #[error("deployment {0} has no canary that waits to be continued")]
    NoCanary(String),
    #[error("An app with id [{0}] already exists.")]
    AppExists(SpecId),
    #[error("A pod with id [{0}] already exists.")]
    PodExists(SpecId),
    #[error("Group {0} is already created. Use PUT to change this group.")]
    GroupExists(GroupId),
    #[error("An app with the path {0} already exists.")]
    AppHasPath(GroupId),
    /// Contains the ids of the deployments. The text contains a placeholder instead, which clients
    /// have always received.
    #[error(
        "App is locked by one or more deployments. Override with the option '?force=true'. \
         View details at '/v2/deployments/<DEPLOYMENT_ID>'."
    )]
    Locked(Vec<String>),
    #[error(
        "Max number ({0}) of running deployments is achieved. Wait for existing deployments to complete or cancel one \
         using force=true parameter."
    )]
    TooManyDeployments(usize),
    #[error("at most {0} apps may exist (`apps.max_apps`); delete apps first")]
    TooManyApps(usize),
    #[error(
        "the definitions of all apps, pods and groups would need {needed} bytes of memory, and the maximum is {max} \
         (`apps.max_definitions_bytes`); delete apps or make definitions smaller first"
    )]
    TooManyDefinitionBytes { needed: u64, max: u64 },
    #[error(
        "the past and deleted definitions that instances still run need {needed} bytes of memory, and the maximum is {max} \
         (`apps.max_definitions_bytes`); wait until deployments have replaced their instances"
    )]
    TooManyPastBytes { needed: u64, max: u64 },
    #[error("the definition is not valid")]
    Invalid(Invalid),
    /// A required component could not be called.
    #[error("{0}")]
    Plugin(transom_plugin_host::CallError),
    /// The store did not confirm the change, or the core stopped or timed out.
    #[error("{0}")]
    Actor(ActorError),
}

impl From<ActorError> for Rejection {
    fn from(error: ActorError) -> Self {
        Self::Actor(error)
    }
}

impl From<typed::Error> for Rejection {
    fn from(error: typed::Error) -> Self {
        Self::Actor(error.into())
    }
}

/// The channel of a reply.
pub(crate) type Reply<T> = transom_framework::Reply<T, Rejection>;

/// One request to the core.
#[derive(Debug)]
pub(crate) enum Command {
    Write {
        edit: Edit,
        options: Options,
        origin: Origin,
        trace: TraceContext,
        reply: Reply<StartedDeployment>,
    },
    /// Plans a change without carrying it out.
    Plan { edit: Edit, reply: Reply<Vec<Step>> },
    /// Kills the tasks of an app or pod. With `scale` the number of its instances is reduced; with
    /// `wipe` new instances replace the killed ones.
    Kill {
        id: SpecId,
        selection: TaskSelection,
        options: KillOptions,
        reply: Reply<KillResult>,
    },
    /// Kills the tasks with these ids, which may belong to several apps; unknown ids are skipped.
    /// Options are those of `Kill`, with one deployment for all apps.
    KillTasks {
        tasks: Vec<String>,
        options: KillOptions,
        reply: Reply<KillResult>,
    },
    /// Launches the waiting instances of an app or pod without the delay after failures.
    ResetDelay { id: SpecId, reply: Reply<()> },
    /// Continues the restarts of a deployment that its canary holds.
    Continue { deployment: String, reply: Reply<()> },
    /// Stops a deployment in its current step.
    Cancel { deployment: String, reply: Reply<()> },
    /// The run spec of new tasks of an app or pod.
    RunSpec { id: SpecId, reply: Reply<Arc<RunSpec>> },
    /// The probes of a task, or of all tasks of a pod's instance, and whether this daemon makes them.
    Probes {
        task: TaskId,
        reply: Reply<Vec<(Probe, bool)>>,
    },
}

/// How a change is carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Cancels the deployments that lock its apps.
    pub(crate) force: bool,
    /// `None`: the configured default.
    pub(crate) deadline: Option<Deadline>,
    /// How its restarts begin, if not with all instances.
    pub(crate) canary: Option<Canary>,
    /// Whether only the plan is wanted, so that no deployment starts.
    pub(crate) dry_run: bool,
}

/// How tasks are killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillOptions {
    /// Reduces the number of the app's instances.
    pub(crate) scale: bool,
    /// Replaces the killed instances by new ones.
    pub(crate) wipe: bool,
    /// The options of the change that scales.
    pub(crate) change: Options,
}

/// The result of [`Command::Kill`] and [`Command::KillTasks`].
#[derive(Clone, Debug)]
pub(crate) struct KillResult {
    pub(crate) specs: Vec<KilledTasks>,
    /// The deployment, if apps were scaled.
    pub(crate) deployment: Option<StartedDeployment>,
}

/// Killed instances of one app or pod.
#[derive(Clone, Debug)]
pub(crate) struct KilledTasks {
    pub(crate) spec: Spec,
    /// The instances before they were killed.
    pub(crate) instances: Vec<Arc<Instance>>,
}
