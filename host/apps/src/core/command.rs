//! What the API asks of the core, and what it is answered.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use transom_plugins::probe::{Failure, Outcome};

use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::model::{App, AppUpdate, Invalid};
use crate::time::Moment;

/// Who asks, as `api_post_event` tells it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) client: String,
    pub(crate) uri: String,
}

/// A change of one app.
#[derive(Debug)]
pub(crate) enum Change {
    /// A new app; refused when there is one.
    Create(Box<AppUpdate>),
    /// A change; `partial` keeps what is not named, `create` makes the app when there is none.
    Update {
        update: Box<AppUpdate>,
        partial: bool,
        create: bool,
    },
    /// Back to the definition of that version.
    Rollback(Moment),
    Delete,
    Restart,
    /// Back to what a deployment began with; the definition may have gone with it.
    Revert(String),
}

/// Which tasks of an app are meant.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    All,
    OnHost(String),
    One(String),
}

/// A change that was stored and whose deployment has begun.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) deployment: String,
    pub(crate) version: Moment,
    pub(crate) app: Arc<App>,
    pub(crate) created: bool,
}

/// Why a request is not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    NoApp(AppId),
    NoVersion(AppId, Moment),
    NoTask(String),
    NoDeployment(String),
    Exists(AppId),
    Locked(Vec<String>),
    Invalid(Invalid),
    /// The store did not take it; nothing has changed.
    Store(Arc<transom_store::Error>),
    /// A component that has to be asked could not be.
    Plugin(transom_plugins::CallError),
    /// The job is stopping, or does not lead any more.
    Stopped,
    /// It took too long.
    TimedOut,
}

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
    /// Ends tasks; with `scale` the app gets fewer instances, with `wipe` a new instance takes the place.
    Kill {
        app: AppId,
        which: Which,
        scale: bool,
        wipe: bool,
        force: bool,
        reply: Reply<Killed>,
    },
    /// Ends the tasks of these ids, of whatever apps; ids of none are passed over. The rest is as with `Kill`, and all or
    /// none of the apps are scaled.
    KillGiven {
        tasks: Vec<String>,
        scale: bool,
        wipe: bool,
        force: bool,
        reply: Reply<Vec<Killed>>,
    },
    /// Ends a deployment where it stands.
    Cancel { deployment: String, reply: Reply<()> },
}

/// What became of a [`Command::Kill`], and of a [`Command::KillGiven`] for each app.
#[derive(Clone, Debug)]
pub(crate) struct Killed {
    pub(crate) app: Arc<App>,
    /// The instances as they were.
    pub(crate) instances: Vec<Instance>,
    /// The deployment, when the app was scaled.
    pub(crate) deployment: Option<Written>,
}

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Asks the core and waits for its answer, within `patience`.
pub(crate) async fn ask<T>(
    core: &mpsc::Sender<Command>,
    patience: std::time::Duration,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let asked = async {
        core.send(command(reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.map_err(|_| Refusal::Stopped)?
    };
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or(Err(Refusal::TimedOut))
}

/// What a check found, or why it could not tell.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) instance: InstanceId,
    pub(crate) incarnation: u32,
    pub(crate) look: Look,
}

/// How a look at a task ended.
#[derive(Debug)]
pub(crate) enum Look {
    Found(Outcome),
    /// The check could not tell, or could not be made.
    Failed(Failure),
    /// The plugin that could not be asked was replaced: why the version before it could not is no news of this one.
    Obsolete,
}
