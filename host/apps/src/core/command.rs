//! Requests from the API to the core, and their replies.

use std::sync::Arc;

use transom_framework::ActorError;
use transom_store::typed;

use crate::ids::AppId;
use crate::instance::Instance;
use crate::model::{App, AppUpdate, Invalid};
use crate::time::Moment;

/// The client behind a request, as `api_post_event` shows it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) client: String,
    pub(crate) uri: String,
}

/// A change of one app.
#[derive(Debug)]
pub(crate) enum Change {
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
    /// Back to the definition of that version.
    Rollback(Moment),
    Delete,
    Restart,
    /// Back to the definition before a deployment, even if the app's own history no longer has it.
    Revert(String),
}

/// Selects tasks of an app.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    All,
    OnHost(String),
    One(String),
}

/// A stored change whose deployment has started.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) deployment: String,
    pub(crate) version: Moment,
    pub(crate) app: Arc<App>,
    pub(crate) created: bool,
}

/// Why a request is rejected.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    NoApp(AppId),
    NoVersion(AppId, Moment),
    NoTask(String),
    NoDeployment(String),
    Exists(AppId),
    Locked(Vec<String>),
    Invalid(Invalid),
    /// A required component could not be called.
    Plugin(transom_plugin_host::CallError),
    /// The core did not carry it out.
    Actor(ActorError),
}

impl From<ActorError> for Refusal {
    fn from(error: ActorError) -> Self {
        Self::Actor(error)
    }
}

impl From<typed::Error> for Refusal {
    fn from(error: typed::Error) -> Self {
        Self::Actor(error.into())
    }
}

/// The channel of a reply.
pub(crate) type Reply<T> = transom_framework::Reply<T, Refusal>;

/// One request to the core.
#[derive(Debug)]
pub(crate) enum Command {
    Write {
        app: AppId,
        change: Change,
        force: bool,
        origin: Origin,
        reply: Reply<Written>,
    },
    /// Kills tasks; with `scale` the app gets fewer instances, with `wipe` a new instance takes the
    /// place.
    Kill {
        app: AppId,
        which: Which,
        scale: bool,
        wipe: bool,
        force: bool,
        reply: Reply<Killed>,
    },
    /// Kills the tasks with these ids, of any app; unknown ids are skipped. Otherwise as `Kill`,
    /// except that either all of the apps are scaled or none.
    KillGiven {
        tasks: Vec<String>,
        scale: bool,
        wipe: bool,
        force: bool,
        reply: Reply<Vec<Killed>>,
    },
    /// Stops a deployment in its current step.
    Cancel { deployment: String, reply: Reply<()> },
}

/// The result of [`Command::Kill`], and of [`Command::KillGiven`] for each app.
#[derive(Clone, Debug)]
pub(crate) struct Killed {
    pub(crate) app: Arc<App>,
    /// The instances before they were killed.
    pub(crate) instances: Vec<Instance>,
    /// The deployment, if the app was scaled.
    pub(crate) deployment: Option<Written>,
}
