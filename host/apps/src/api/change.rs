//! Requests that change definitions: their parameters, and the response that names the deployment.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use schemars::JsonSchema;
use serde::Serialize;
use transom_common::trace::TraceContext;
use transom_web::{ApiError, Json};

use super::Api;
use super::query::Query;
use crate::core::command::{Command, Edit, Options, Origin, StartedDeployment};
use crate::deploy::{Amount, Canary, Deadline};
use crate::settings::OnDeadline;
use crate::time::Moment;

type HandlerResult = Result<Response, ApiError>;

/// The deployment that a request has started.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeploymentResult<'a> {
    /// The version of the changed definitions.
    pub(super) version: Moment,
    pub(super) deployment_id: &'a str,
}

/// A deployment by its id.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeploymentReference<'a> {
    pub(super) id: &'a str,
}

/// Sends a change to the core.
pub(super) async fn write(
    api: &Api,
    edit: Edit,
    options: Options,
    origin: Origin,
) -> Result<StartedDeployment, ApiError> {
    let command = |reply| Command::Write {
        edit,
        options,
        origin,
        trace: TraceContext::current(),
        reply,
    };
    Ok(api.ask(command).await?)
}

/// The parameters of every change: `force`, `deadline` and `onDeadline`, `canary` and
/// `canarySeconds`.
pub(super) fn options(query: &Query, force: bool) -> Result<Options, ApiError> {
    let on_deadline = match query.get("onDeadline") {
        None | Some("rollback") => OnDeadline::Rollback,
        Some("fail") => OnDeadline::Fail,
        Some(other) => {
            let text = format!("onDeadline={other} is not one of rollback, fail");
            return Err(ApiError::bad_request(text));
        }
    };
    let seconds = query.get("deadline").map(|text| {
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        seconds.ok_or_else(|| {
            ApiError::bad_request(format!(
                "deadline={text} is not valid: expected a whole number of seconds of at least 1"
            ))
        })
    });
    let seconds = seconds.transpose()?;
    if seconds.is_none() && query.get("onDeadline").is_some() {
        return Err(ApiError::bad_request("onDeadline needs a deadline"));
    }
    Ok(Options {
        force: query.flag("force", force),
        deadline: seconds.map(|seconds| Deadline { seconds, on_deadline }),
        canary: canary(query)?,
        dry_run: false,
    })
}

/// The parameters of a restart that begins with some instances: `canary` and `canarySeconds`.
fn canary(query: &Query) -> Result<Option<Canary>, ApiError> {
    let amount = query.get("canary").map(|text| {
        let wrong = || {
            ApiError::bad_request(format!(
                "canary={text} is not valid: expected a number of instances of at least 1, or a percentage \
                 such as 10%"
            ))
        };
        Amount::parse(text).ok_or_else(wrong)
    });
    let amount = amount.transpose()?;
    let seconds = query.get("canarySeconds").map(|text| {
        let wrong = || {
            ApiError::bad_request(format!(
                "canarySeconds={text} is not valid: expected a whole number of seconds"
            ))
        };
        text.parse::<u32>().map_err(|_| wrong())
    });
    let seconds = seconds.transpose()?;
    if seconds.is_some() && amount.is_none() {
        return Err(ApiError::bad_request("canarySeconds needs canary"));
    }
    Ok(amount.map(|amount| Canary {
        amount,
        seconds,
        continued: false,
    }))
}

pub(super) fn location(path: &str) -> Result<(HeaderName, HeaderValue), ApiError> {
    let value = HeaderValue::from_str(path).map_err(|cause| ApiError::internal(&cause))?;
    Ok((header::LOCATION, value))
}

/// The response to every request that starts a deployment.
pub(super) fn deployment_response(started: &StartedDeployment) -> HandlerResult {
    let body = DeploymentResult {
        version: started.version,
        deployment_id: &started.deployment,
    };
    Ok(([deployment_header(started)?], Json(body)).into_response())
}

pub(super) fn deployment_header(started: &StartedDeployment) -> Result<(HeaderName, HeaderValue), ApiError> {
    let value = HeaderValue::from_str(&started.deployment).map_err(|cause| ApiError::internal(&cause))?;
    Ok((HeaderName::from_static(super::DEPLOYMENT), value))
}
