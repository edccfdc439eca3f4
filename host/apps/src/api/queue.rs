//! `/v2/queue`: instances that are not launched yet, and the reasons.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use transom_scheduler::{PendingTask, Reason, Reasons};
use transom_web::{ApiError, Json};

use super::Api;
use super::query::Query;
use crate::core::command::Command;
use crate::core::snapshot::AppView;
use crate::ids::AppId;
use crate::time::Moment;

/// The reasons that upstream's clients know, in upstream's order, with the scheduler's names.
const FUNNEL: [(&str, Option<Reason>); 10] = [
    ("UnfulfilledRole", Some(Reason::UnfulfilledRole)),
    ("UnfulfilledConstraint", Some(Reason::UnfulfilledConstraint)),
    ("NoCorrespondingReservationFound", None),
    ("AgentMaintenance", None),
    ("InsufficientCpus", Some(Reason::InsufficientCpus)),
    ("InsufficientMemory", Some(Reason::InsufficientMemory)),
    ("InsufficientDisk", Some(Reason::InsufficientDisk)),
    ("InsufficientGpus", Some(Reason::InsufficientGpus)),
    ("InsufficientPorts", Some(Reason::InsufficientPorts)),
    ("DeclinedScarceResources", None),
];

/// `GET /v2/queue`; with `embed=reasons` each entry also has Transom's own `reasons`: those of the
/// last round and of the matcher.
pub(super) async fn list(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let embed_reasons = query.embeds("reasons");
    let snapshot = api.snapshot();
    let waiting = api.lead()?.scheduler.pending();
    let mut by_app: BTreeMap<AppId, Vec<&PendingTask>> = BTreeMap::new();
    for one in &waiting {
        if let Ok(id) = AppId::parse(&one.run_spec) {
            by_app.entry(id).or_default().push(one);
        }
    }
    let now = Moment::now();
    let queue: Vec<Value> = by_app
        .iter()
        .filter_map(|(id, waiting)| Some(shown(snapshot.apps.get(id)?, waiting, now, embed_reasons)))
        .collect();
    Ok(Json(json!({"queue": queue})).into_response())
}

/// `DELETE /v2/queue/{id}/delay`: waiting instances are launched without the delay after failures.
pub(super) async fn reset_delay(
    State(api): State<Api>,
    Path(path): Path<String>,
) -> Result<StatusCode, ApiError> {
    let app = path.strip_suffix("/delay").and_then(|id| AppId::parse(id).ok());
    let app = app.ok_or_else(|| ApiError::not_found(format!("Not found: /v2/queue/{path}")))?;
    api.ask(|reply| Command::ResetDelay { app, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(view: &AppView, waiting: &[&PendingTask], now: Moment, embed_reasons: bool) -> Value {
    let since = waiting.iter().map(|one| one.since).min().map(Moment::from);
    let left = waiting
        .iter()
        .filter_map(|one| one.not_before)
        .max()
        .map(|until| Moment::from(until).millis_since(now));
    let left = left.filter(|left| *left > 0);
    let mut shown = json!({
        "app": view.app,
        "count": waiting.len(),
        "role": view.app.role,
        "delay": {"timeLeftSeconds": left.map_or(0, |left| (left + 999) / 1000), "overdue": left.is_none()},
        "since": since.unwrap_or(now),
        "processedOffersSummary": waiting.first().map_or(Value::Null, |one| summary(&one.reasons)),
    });
    if let Some(one) = waiting.first().filter(|_| embed_reasons) {
        shown["reasons"] = json!(*one.reasons);
    }
    shown
}

fn summary(reasons: &Reasons) -> Value {
    let last = |reason: Reason| u64::from(reasons.last.get(&reason).copied().unwrap_or(0));
    let total = |reason: Reason| reasons.total.get(&reason).copied().unwrap_or(0);
    json!({
        "processedOffersCount": reasons.total_offers,
        "unusedOffersCount": reasons.total_refused_offers,
        "rejectSummaryLastOffers": funnel(u64::from(reasons.last_offers), last),
        "rejectSummaryLaunchAttempt": funnel(reasons.total_offers, total),
    })
}

/// Each step processes the offers that passed the step before.
fn funnel(offers: u64, declined: impl Fn(Reason) -> u64) -> Vec<Value> {
    let mut processed = offers;
    FUNNEL
        .iter()
        .map(|(name, reason)| {
            let declined = reason.map_or(0, &declined).min(processed);
            let step = json!({"reason": name, "declined": declined, "processed": processed});
            processed -= declined;
            step
        })
        .collect()
}
