//! Explains to operators where a pending datastore, server or agent may run. See [`Explain`].

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use transom_cluster::TaskId;
use transom_framework::{Explain, Leader, PlacementExplanation, explain_pending};
use transom_plugin_host::printable;
use transom_web::ApiError;

use crate::api::paths;
use crate::config::Config;
use crate::core::term::Handles;
use crate::kind::Kind;
use crate::view::{View, Views};

/// Explains the placements of pending members.
#[derive(Clone, Debug)]
pub struct Explainer {
    pub(crate) config: Arc<Config>,
    pub(crate) views: Arc<Views>,
    pub(crate) leader: Leader<Handles>,
}

#[async_trait]
impl Explain for Explainer {
    /// Explains which agents may run a member, which must be pending. The id is kind and number:
    /// `server/0`.
    async fn explain(&self, id: &str) -> Result<PlacementExplanation, ApiError> {
        let (kind, number) = member(id).ok_or_else(|| {
            ApiError::bad_request(format!(
                "{:?} is not a valid member of a Kubernetes cluster; expected a kind and a number, for example server/0 \
                 or agent/2",
                printable(id)
            ))
        })?;
        let handles = self.leader.handles_for_operator(self.config.name())?;
        let view = self.views.get();
        let member = view.tasks.of(kind).iter().find(|task| task.number == number);
        let Some(task) = member else {
            return Err(self.absent(&view, kind, number));
        };
        let name = format!("{kind}/{number}");
        let explained = explain_pending(&name, &*handles.scheduler, &TaskId::from(task.id.as_str())).await?;
        explained.ok_or_else(|| self.not_pending(&self.views.get(), kind, number))
    }

    fn probe_rejection(&self, task: &str) -> Option<String> {
        let view = self.views.get();
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| view.tasks.of(*kind).iter().any(|known| known.id == task))?;
        let name = self.config.name();
        Some(if kind == Kind::Datastore && self.config.settings.containers {
            format!(
                "the task is a datastore of the framework {name:?}, whose health check the cluster's agent makes, not a \
                 plugin, so there is no transcript of it here"
            )
        } else {
            format!("the task is of the kind {kind} of the framework {name:?}, which has no check")
        })
    }
}

impl Explainer {
    /// The error for a member without a task.
    fn absent(&self, view: &View, kind: Kind, number: u32) -> ApiError {
        if number < *view.wanted.of(kind) {
            return self.not_pending(view, kind, number);
        }
        ApiError::not_found(format!(
            "the framework {:?} has no {kind}/{number}; `GET {}/api/fw/v0/explain` of the kubernetes port lists its tasks",
            self.config.name(),
            self.config.settings.instance.path
        ))
    }

    /// The error for a member that runs, or that does not wait for an agent.
    fn not_pending(&self, view: &View, kind: Kind, number: u32) -> ApiError {
        let task = view.tasks.of(kind).iter().find(|task| task.number == number);
        let launched = task.and_then(|task| Some((task.state.as_ref()?, task.host.as_ref()?)));
        let text = if let Some((state, host)) = launched {
            format!(
                "{kind}/{number} is not pending, its state is {state} on {host}, and only members that wait for an \
                 agent are explained"
            )
        } else {
            let reasons = view.waiting.iter().filter(|waiting| waiting.kind == kind);
            let reasons: Vec<&str> = reasons.map(|waiting| waiting.reason.as_str()).collect();
            let reasons = if reasons.is_empty() {
                format!(
                    "`GET {}/api/fw/v0/explain` says why it waits",
                    self.config.settings.instance.path
                )
            } else {
                reasons.join("; ")
            };
            format!(
                "{kind}/{number} is not requested from the scheduler yet, so no placement was attempted: \
                 {reasons}"
            )
        };
        ApiError::new(StatusCode::CONFLICT, text)
    }
}

/// Kind and number of a member.
fn member(id: &str) -> Option<(Kind, u32)> {
    let (kind, number) = id.split_once('/')?;
    Some((paths::kind(kind)?, number.parse().ok()?))
}
