//! `/v2/deployments`: running deployments, always in upstream's form.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::Api;
use super::apps::{deployed, write};
use super::query::Query;
use super::task::readiness_results;
use crate::core::command::{Command, Edit, Options, Origin};
use crate::core::snapshot::Snapshot;
use crate::deploy::Deployment;
use crate::ids::AppId;

/// `GET /v2/deployments`; with `embed=deadline` each also has Transom's own `deadline`.
pub(super) async fn list(State(api): State<Api>, query: Query) -> Response {
    let deadline = query.embeds("deadline");
    let snapshot = api.snapshot();
    let shown: Vec<Value> = snapshot
        .deployments
        .values()
        .map(|deployment| shown(deployment, &snapshot, deadline))
        .collect();
    Json(shown).into_response()
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
    deployed(&write(&api, Edit::Revert(id), options, origin).await?)
}

fn shown(deployment: &Deployment, snapshot: &Snapshot, deadline: bool) -> Value {
    let readiness = |app: &AppId| {
        snapshot
            .apps
            .get(app)
            .map_or_else(Vec::new, |view| readiness_results(view))
    };
    let current: Vec<Value> = deployment
        .step()
        .into_iter()
        .flat_map(|step| &step.actions)
        .map(|action| json!({"action": action.action, "app": action.app, "readinessCheckResults": readiness(&action.app)}))
        .collect();
    let mut shown = json!({
        "id": deployment.id,
        "version": deployment.version,
        "affectedApps": deployment.apps().collect::<Vec<_>>(),
        "affectedPods": [],
        "steps": deployment.steps,
        "currentActions": current,
        "currentStep": (deployment.current + 1).min(deployment.steps.len()),
        "totalSteps": deployment.steps.len(),
    });
    if let (Some(due), true) = (deployment.due(), deadline) {
        shown["deadline"] = json!({"at": due, "onDeadline": deployment.deadline.map(|one| one.on_deadline)});
    }
    shown
}
