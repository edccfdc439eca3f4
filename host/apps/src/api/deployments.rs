//! `/v2/deployments`: running deployments, always in upstream's form.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::Api;
use super::apps::deployed;
use super::query::Query;
use super::task::readiness_results;
use crate::core::command::{Change, Command, Origin, Refusal};
use crate::core::snapshot::Snapshot;
use crate::deploy::Deployment;
use crate::ids::AppId;

/// `GET /v2/deployments`
pub(super) async fn list(State(api): State<Api>) -> Response {
    let snapshot = api.snapshot();
    let shown: Vec<Value> = snapshot
        .deployments
        .iter()
        .map(|deployment| shown(deployment, &snapshot))
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

fn shown(deployment: &Deployment, snapshot: &Snapshot) -> Value {
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
