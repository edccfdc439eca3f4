//! `/v2/deployments`: running deployments, always in upstream's form.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::Api;
use super::apps::deployed;
use super::query::Query;
use crate::core::command::{Change, Command, Origin, Refusal};
use crate::deploy::Deployment;

/// `GET /v2/deployments`
pub(super) async fn list(State(api): State<Api>) -> Response {
    let shown: Vec<Value> = api
        .snapshot()
        .deployments
        .iter()
        .map(|deployment| shown(deployment))
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
    let snapshot = api.snapshot();
    let running = snapshot.deployments.iter().find(|running| running.id == id);
    let app = running
        .ok_or_else(|| Refusal::NoDeployment(id.clone()))?
        .app
        .clone();
    let change = Change::Revert(id);
    let written = api
        .ask(|reply| Command::Write {
            app,
            change,
            force: true,
            origin,
            reply,
        })
        .await?;
    deployed(&written)
}

fn shown(deployment: &Deployment) -> Value {
    let current: Vec<Value> = deployment
        .step()
        .into_iter()
        .flat_map(|step| &step.actions)
        .map(|action| json!({"action": action.action, "app": action.app, "readinessCheckResults": []}))
        .collect();
    json!({
        "id": deployment.id,
        "version": deployment.version,
        "affectedApps": [deployment.app],
        "affectedPods": [],
        "steps": deployment.steps,
        "currentActions": current,
        "currentStep": (deployment.current + 1).min(deployment.steps.len()),
        "totalSteps": deployment.steps.len(),
    })
}
