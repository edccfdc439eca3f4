//! `/v2/deployments`: running deployments, always in upstream's form.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use transom_web::ApiError;

use super::change::{deployment_response, write};
use super::pieces::{self, Elements};
use super::query::Query;
use super::task::{ReadinessCheckResult, readiness_results};
use super::{Api, append};
use crate::core::command::{Command, Edit, Options, Origin};
use crate::core::snapshot::Snapshot;
use crate::deploy::plan::Action;
use crate::deploy::{Deployment, Step};
use crate::ids::SpecId;
use crate::settings::OnDeadline;
use crate::time::Moment;

/// The steps that a change of a group would have.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeploymentSteps {
    pub(super) steps: Vec<Step>,
}

// Its lists are written apart from the other members, element by element.
/// A running deployment.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = pieces::require_lists)]
pub(super) struct DeploymentInfo<'a> {
    id: &'a str,
    version: Moment,
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    affected_apps: Option<Vec<SpecId>>,
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    affected_pods: Option<Vec<SpecId>>,
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Step>>,
    /// The actions of the current step.
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    current_actions: Option<Vec<CurrentAction<'a>>>,
    /// Counted from 1.
    current_step: u32,
    total_steps: u32,
    /// The deadline. Only with `embed=deadline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<DeadlineInfo>,
    /// How its restarts begin. Only with `embed=canary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<CanaryInfo>,
}

/// An action of the current step.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CurrentAction<'a> {
    #[serde(flatten)]
    action: &'a Action,
    readiness_check_results: Vec<ReadinessCheckResult<'a>>,
}

/// The time at which a deployment fails if it is not done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeadlineInfo {
    at: Moment,
    on_deadline: OnDeadline,
}

/// A restart that begins with some of the instances.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CanaryInfo {
    /// How many instances come first: a number, or a percentage such as `10%`.
    instances: String,
    /// How many seconds these must be healthy before the restart continues; null: it waits for a
    /// request.
    seconds: Option<u32>,
    state: CanaryState,
    /// Since when the restart waits with healthy new instances.
    held_since: Option<Moment>,
}

/// How far a restart with a canary is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CanaryState {
    /// The first instances are being replaced.
    Starting,
    /// They are healthy, and the others wait.
    Held,
    /// The others are being replaced.
    Continued,
}

/// `GET /v2/deployments`; `embed=deadline` and `embed=canary` add Transom's own members `deadline`
/// and `canary` to each deployment.
pub(super) async fn list(State(api): State<Api>, query: Query) -> Response {
    let (deadline, canary) = (query.embeds("deadline"), query.embeds("canary"));
    pieces::response("[", "]", documents(api.snapshot(), deadline, canary))
}

/// The documents of all deployments of the snapshot, each a [`DeploymentInfo`].
pub(super) fn documents(snapshot: Arc<Snapshot>, deadline: bool, canary: bool) -> Elements {
    let mut deployments = snapshot.deployments.clone().into_iter();
    Box::new(move |document, pieces| {
        let Some((_, deployment)) = deployments.next() else {
            return false;
        };
        let affected = |pods: bool| pieces::each(affected(&deployment, &snapshot, pods).into_iter());
        let lists = [
            (",\"affectedApps\":[", affected(false)),
            (",\"affectedPods\":[", affected(true)),
            (",\"steps\":[", steps(Arc::clone(&deployment))),
            (
                ",\"currentActions\":[",
                current_actions(&deployment, Arc::clone(&snapshot)),
            ),
        ];
        let info = deployment_info(&deployment, deadline, canary);
        pieces.object(document, &deployment.id, &info, lists);
        true
    })
}

/// The documents of the steps, each a [`Step`].
fn steps(deployment: Arc<Deployment>) -> Elements {
    let mut steps = 0..deployment.steps.len();
    Box::new(move |_, pieces| {
        let next = steps.next();
        if let Some(step) = next {
            let actions = actions(Arc::clone(&deployment), step);
            pieces.list("{\"actions\":[", pieces::each(actions), "]}");
        }
        next.is_some()
    })
}

fn current_actions(deployment: &Arc<Deployment>, snapshot: Arc<Snapshot>) -> Elements {
    let mut actions = actions(Arc::clone(deployment), deployment.current);
    Box::new(move |document, _| {
        actions.any(|action| {
            let view = snapshot.specs.get(&action.id);
            let current = CurrentAction {
                action: &action,
                readiness_check_results: view.map_or_else(Vec::new, |view| readiness_results(view)),
            };
            append(document, &action.id, &current)
        })
    })
}

/// Copies of the actions of a step, one after the other.
fn actions(deployment: Arc<Deployment>, step: usize) -> impl Iterator<Item = Action> + Send + 'static {
    let action = move |index| deployment.steps.get(step)?.actions.get(index).cloned();
    (0..).map_while(action)
}

/// `DELETE /v2/deployments/{id}`: starts a deployment that restores the previous definition; with
/// `force` the deployment only stops.
pub(super) async fn delete(
    State(api): State<Api>,
    Path(id): Path<String>,
    query: Query,
    origin: Origin,
) -> Result<Response, ApiError> {
    if query.flag("force", false) {
        api.ask(|reply| Command::Cancel {
            deployment: id,
            reply,
        })
        .await?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let options = Options {
        force: true,
        ..Options::default()
    };
    deployment_response(&write(&api, Edit::Revert(id), options, origin).await?)
}

/// `POST /v2/deployments/{id}/continue`: continues a restart that its canary holds.
pub(super) async fn continue_canary(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    api.ask(|reply| Command::Continue {
        deployment: id,
        reply,
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The document without its lists.
fn deployment_info(deployment: &Deployment, deadline: bool, canary: bool) -> DeploymentInfo<'_> {
    let due = deployment.due().zip(deployment.deadline).filter(|_| deadline);
    let canary_settings = deployment.canary.filter(|_| canary);
    DeploymentInfo {
        id: &deployment.id,
        version: deployment.version,
        affected_apps: None,
        affected_pods: None,
        steps: None,
        current_actions: None,
        current_step: (deployment.current + 1).min(deployment.steps.len()) as u32,
        total_steps: deployment.steps.len() as u32,
        deadline: due.map(|(at, deadline)| DeadlineInfo {
            at,
            on_deadline: deadline.on_deadline,
        }),
        canary: canary_settings.map(|canary_settings| CanaryInfo {
            instances: canary_settings.amount.to_string(),
            seconds: canary_settings.seconds,
            state: match deployment.held_since {
                _ if canary_settings.continued => CanaryState::Continued,
                Some(_) => CanaryState::Held,
                None => CanaryState::Starting,
            },
            held_since: deployment.held_since,
        }),
    }
}

/// The ids of the apps, or of the pods, that a deployment changes.
fn affected(deployment: &Deployment, snapshot: &Snapshot, pods: bool) -> Vec<SpecId> {
    let is_pod = |id: &SpecId| {
        let view = snapshot.specs.get(id).or_else(|| snapshot.deleted.get(id));
        view.is_some_and(|view| view.record.spec.is_pod())
    };
    let affected = deployment.specs().filter(|id| is_pod(id) == pods);
    affected.cloned().collect()
}
