//! `/v2/queue`: instances that are not launched yet, and the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use transom_scheduler::{PendingSnapshot, PendingSpec, Reason, ReasonKind, ReasonWords, Reasons};
use transom_web::{ApiError, json_list, json_list_after};

use super::query::Query;
use super::rejections::{Rejection, rejections};
use super::unused_offers::UnusedOffer;
use super::{Api, append};
use crate::core::command::Command;
use crate::core::places::Places;
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::ids::SpecId;
use crate::model::{App, Pod, Spec};
use crate::time::Moment;

/// The launch queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Queue<'a> {
    queue: Vec<QueueItem<'a>>,
    /// Transom's words for each reason, by its name. Only with `embed=reasons`.
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<BTreeMap<&'static str, &'static ReasonWords>>,
}

/// An app or pod with instances that are not launched yet.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueItem<'a> {
    #[serde(flatten)]
    spec: QueueSpec<'a>,
    /// How many instances are waiting.
    count: u32,
    role: &'a str,
    delay: QueueDelay,
    /// Since when the first of them is waiting.
    since: Moment,
    processed_offers_summary: ProcessedOffersSummary,
    /// Offers of the last round that were not used, at most ten. Only with
    /// `embed=lastUnusedOffers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_unused_offers: Option<Vec<UnusedOffer<'a>>>,
    /// Only with `embed=reasons`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<PendingReasons<'a>>,
}

/// The definition.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum QueueSpec<'a> {
    App(&'a App),
    Pod(Box<Pod>),
}

/// The delay after failures.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueDelay {
    time_left_seconds: i64,
    /// Whether it is over.
    overdue: bool,
}

/// The offers that were matched, and why they were not used.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessedOffersSummary {
    processed_offers_count: u64,
    unused_offers_count: u64,
    /// When an offer was last not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_unused_offer_at: Option<Moment>,
    /// When an instance was last launched in an offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_offer_at: Option<Moment>,
    /// Of the last round of matching.
    reject_summary_last_offers: Vec<DeclinedOfferStep>,
    /// Of all rounds since the first of the waiting instances was requested.
    reject_summary_launch_attempt: Vec<DeclinedOfferStep>,
}

/// One reason for not using an offer. The reasons are tested in the order of the list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DeclinedOfferStep {
    reason: &'static str,
    /// Offers that were declined for this reason.
    declined: u64,
    /// Offers that no earlier reason declined.
    processed: u64,
}

/// The scheduler's own reasons why instances are not launched. An offer that fails for several
/// reasons is counted for each of them.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PendingReasons<'a> {
    /// How often each reason occurred in the last round.
    #[schemars(with = "BTreeMap<String, u32>")]
    last: &'a BTreeMap<Reason, u32>,
    /// Offers matched in the last round.
    last_offers: u32,
    /// How many agents each constraint rejected in the last round, by its index.
    #[schemars(with = "BTreeMap<String, u32>")]
    last_constraints: &'a BTreeMap<u32, u32>,
    /// Details of the last round.
    message: Option<&'a str>,
    /// The fixed ports and the values of constraints that the last offers lacked.
    rejections: Vec<Rejection>,
    /// How often each reason occurred in all rounds.
    #[schemars(with = "BTreeMap<String, u64>")]
    total: &'a BTreeMap<Reason, u64>,
    total_offers: u64,
    /// Offers in which none of these instances was launched.
    total_refused_offers: u64,
    rounds: u64,
}

/// The embedded parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Embed {
    reasons: bool,
    offers: bool,
}

impl Embed {
    pub(super) fn of(query: &Query) -> Self {
        Self {
            reasons: query.embeds("reasons"),
            offers: query.embeds("lastUnusedOffers"),
        }
    }
}

/// `GET /v2/queue`; with `embed=lastUnusedOffers` each entry contains the last offers that were not
/// used for it. With `embed=reasons` each entry also contains Transom's own `reasons`: those of the
/// last round and those of the matcher; `words` describes each reason.
pub(super) async fn list(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let pending = api.lead()?.scheduler.pending();
    Ok(response(api.snapshot(), pending, Embed::of(&query)))
}

/// A [`Queue`] of these tasks, written while it is sent.
pub(super) fn response(snapshot: Arc<Snapshot>, pending: Arc<PendingSnapshot>, embed: Embed) -> Response {
    let ids = pending
        .specs()
        .filter_map(|waiting| SpecId::parse(waiting.run_spec).ok());
    let mut ids = ids.collect::<BTreeSet<SpecId>>().into_iter();
    let now = Moment::now();
    let next = move |list: &mut Vec<u8>| {
        ids.any(|id| {
            let (view, waiting) = (snapshot.specs.get(&id), pending.spec(&id.to_string()));
            let Some((view, waiting)) = view.zip(waiting) else {
                return false;
            };
            let reasons = waiting.reasons();
            append(
                list,
                &id,
                &queue_item(view, &waiting, &reasons, now, embed, &snapshot.places),
            )
        })
    };
    if embed.reasons {
        let words: BTreeMap<_, _> = Reason::ALL
            .iter()
            .map(|reason| (reason.as_str(), reason.words()))
            .collect();
        json_list_after(("words", &json!(words)), "queue", next)
    } else {
        json_list("queue", next)
    }
}

/// `DELETE /v2/queue/{id}/delay`: launches the waiting instances without the delay after failures.
pub(super) async fn reset_delay(
    State(api): State<Api>,
    Path(path): Path<String>,
) -> Result<StatusCode, ApiError> {
    let id = path.strip_suffix("/delay").and_then(|id| SpecId::parse(id).ok());
    let id = id.ok_or_else(|| ApiError::not_found(format!("Not found: /v2/queue/{path}")))?;
    api.ask(|reply| Command::ResetDelay { id, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn queue_item<'a>(
    view: &'a SpecView,
    waiting: &PendingSpec<'_>,
    reasons: &'a Reasons,
    now: Moment,
    embed: Embed,
    places: &Places,
) -> QueueItem<'a> {
    let delay_until = waiting.not_before().map(Moment::from);
    let millis_left = delay_until.map(|until| until.millis_since(now));
    let millis_left = millis_left.filter(|millis_left| *millis_left > 0);
    QueueItem {
        spec: match &view.record.spec {
            Spec::App(app) => QueueSpec::App(app),
            Spec::Pod(pod) => QueueSpec::Pod(Box::new(pod.without_version_info())),
        },
        count: waiting.tasks() as u32,
        role: view.record.spec.role(),
        delay: QueueDelay {
            time_left_seconds: millis_left.map_or(0, |millis_left| (millis_left + 999) / 1000),
            overdue: millis_left.is_none(),
        },
        since: waiting.since().into(),
        processed_offers_summary: summary(reasons),
        last_unused_offers: embed.offers.then(|| {
            let offers = reasons.unused_offers.iter();
            offers.map(|offer| UnusedOffer::new(offer)).collect()
        }),
        reasons: embed
            .reasons
            .then(|| PendingReasons::of(&view.record.spec, reasons, places)),
    }
}

impl<'a> PendingReasons<'a> {
    fn of(spec: &Spec, reasons: &'a Reasons, places: &Places) -> Self {
        Self {
            last: &reasons.last,
            last_offers: reasons.last_offers,
            last_constraints: &reasons.last_constraints,
            message: reasons.message.as_deref(),
            rejections: rejections(spec, reasons, places),
            total: &reasons.total,
            total_offers: reasons.total_offers,
            total_refused_offers: reasons.total_refused_offers,
            rounds: reasons.rounds,
        }
    }
}

fn summary(reasons: &Reasons) -> ProcessedOffersSummary {
    let last = |reason: Reason| u64::from(reasons.last.get(&reason).copied().unwrap_or(0));
    let total = |reason: Reason| reasons.total.get(&reason).copied().unwrap_or(0);
    ProcessedOffersSummary {
        processed_offers_count: reasons.total_offers,
        unused_offers_count: reasons.total_refused_offers,
        last_unused_offer_at: reasons.last_unused_at.map(Moment::from),
        last_used_offer_at: reasons.last_used_at.map(Moment::from),
        reject_summary_last_offers: declined_steps(u64::from(reasons.last_offers), last),
        reject_summary_launch_attempt: declined_steps(reasons.total_offers, total),
    }
}

/// Each step processes the offers that passed the step before.
fn declined_steps(offers: u64, declined: impl Fn(Reason) -> u64) -> Vec<DeclinedOfferStep> {
    let mut processed = offers;
    let reasons = Reason::ALL
        .iter()
        .filter(|reason| reason.words().kind == ReasonKind::Offer);
    reasons
        .map(|reason| {
            let step = DeclinedOfferStep {
                reason: reason.as_str(),
                declined: declined(*reason).min(processed),
                processed,
            };
            processed -= step.declined;
            step
        })
        .collect()
}
