//! Explains which events pass the filters, and which filter drops or replaces the others.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::Value;
use transom_common::text::clip;

use super::{CanaryAnswer, CanaryVersion, PluginFailure, masked, masked_text};
use crate::{
    api::extension_points::ExtensionPoints,
    error::CallError,
    manifest::masks::Masks,
    runtime::{
        engine::{
            Reply,
            worlds::events::{Call, Filter},
        },
        pool::{InstanceHandle, Version},
        shadow::calls::query_key,
    },
    worlds::events::{Decision, Event, Query, SharedQuery},
};

/// Maximum number of examples of one outcome of one kind.
const MAX_EXAMPLES: usize = 2;
/// Maximum size in bytes of an example's document.
const MAX_BODY: usize = 512;
/// Number of events on which a filter may fail. Then no further events are decided.
const MAX_FAILED: usize = 8;

/// What the filters decide about past events for one query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterExplanation {
    /// The filters, in the order in which they are called.
    pub filters: Vec<String>,
    /// Number of events that were decided.
    pub events: u64,
    /// Events sent unchanged.
    pub passed: u64,
    /// Events sent with another document.
    pub replaced: u64,
    /// Events not sent, because a filter drops them.
    pub dropped: u64,
    /// Events not sent, because a filter fails on them.
    pub failed: u64,
    /// The same counts by kind of event.
    pub kinds: Vec<KindOutcomes>,
    /// A filter that did not answer. Later events were not decided, and no stream with this query
    /// continues.
    pub failure: Option<PluginFailure>,
    /// The decisions with the canaries, if the query is in the share of at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryAnswer<FilterExplanation>>,
}

/// Outcomes of the events of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindOutcomes {
    /// `status_update_event` and so on.
    pub kind: String,
    /// Number of events.
    pub events: u64,
    /// The outcomes, the most frequent one first.
    pub outcomes: Vec<OutcomeExamples>,
}

/// Events of one kind with the same outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeExamples {
    /// The outcome.
    pub outcome: EventOutcome,
    /// The filter that decided. `None` if the events passed all filters.
    pub plugin: Option<String>,
    /// Number of events.
    pub events: u64,
    /// Some of these events.
    pub examples: Vec<EventExample>,
}

/// The outcome for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventOutcome {
    /// Sent as it is.
    Passed,
    /// Sent as another document.
    Replaced,
    /// Not sent.
    Dropped,
    /// Not sent, because the filter fails on it.
    Failed,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventExample {
    /// Its number in the stream.
    pub sequence: u64,
    /// The app, pod or group that it is about.
    pub subject: Option<String>,
    /// The beginning of its document as JSON; secrets of the filters are masked.
    pub body: String,
    /// The beginning of the document that is sent instead, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// How the filter failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Runs the filters on past events, batch by batch.
pub struct FilterExplainer {
    serving: FilterChain,
    /// The same chain with the canaries that have the query in their share.
    canary: Option<(Vec<CanaryVersion>, FilterChain)>,
}

/// A chain of filters, and their decisions so far.
struct FilterChain {
    filters: Vec<DetachedFilter>,
    view: Arc<SharedQuery>,
    explanation: FilterExplanation,
    kinds: BTreeMap<String, OutcomeCounts>,
}

/// Events of one kind by their outcome and the index of the filter: their number, and examples.
type OutcomeCounts = BTreeMap<(EventOutcome, Option<usize>), (u64, Vec<EventExample>)>;

impl std::fmt::Debug for FilterExplainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterExplainer")
            .field("query", &self.serving.view.query)
            .finish_non_exhaustive()
    }
}

/// A filter that runs on a separate instance for explanations.
struct DetachedFilter {
    name: String,
    version: Version<Filter>,
    instance: InstanceHandle<Filter>,
}

/// The state of an event in the chain of filters.
struct EventState<'a> {
    event: &'a Event,
    /// The document that replaces the event's, and the index of the filter that replaced it last.
    replaced: Option<(usize, String)>,
    removal: Option<Removal>,
}

enum Removal {
    Dropped(usize),
    Failed(usize, String),
}

impl DetachedFilter {
    fn of(name: &str, version: &Version<Filter>) -> DetachedFilter {
        let version = version.detached_per_call();
        DetachedFilter {
            name: name.to_owned(),
            instance: version.least_loaded(),
            version,
        }
    }

    fn failure(&self, error: &CallError) -> PluginFailure {
        PluginFailure {
            message: masked_text(error.to_string(), &[&self.version.masks]),
            ..PluginFailure::from(error)
        }
    }

    async fn open(&mut self, view: &Arc<SharedQuery>) -> Result<Result<(), String>, CallError> {
        let view = Arc::clone(view);
        self.ask(|reply| Call::Open { view, reply }).await
    }

    async fn decide(
        &mut self,
        view: &Arc<SharedQuery>,
        events: Vec<Event>,
    ) -> Result<Result<Vec<Decision>, String>, CallError> {
        let (view, events) = (Arc::clone(view), events.into());
        self.ask(|reply| Call::Decide { view, events, reply }).await
    }

    async fn ask<T>(&mut self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T, CallError> {
        let answer = self.version.ask(&mut self.instance, call).await;
        if answer.is_err() {
            self.instance = self.version.least_loaded();
        }
        answer
    }
}

impl FilterExplainer {
    /// Opens the query in each filter. The error is the rejection of a serving filter.
    pub(crate) async fn open(
        extension_points: &ExtensionPoints,
        query: Query,
    ) -> Result<FilterExplainer, String> {
        let names = &extension_points.config.bindings.filters;
        let mut failure = None;
        let filters = extension_points.filters().unwrap_or_else(|error| {
            failure = Some(PluginFailure::from(&error));
            Vec::new()
        });
        let detached = filters
            .iter()
            .map(|(name, active)| DetachedFilter::of(name, active.primary()));
        let mut serving = FilterChain::new(names, detached.collect(), query.clone());
        serving.explanation.failure = failure;
        // A rejection ends the explanation before any event, as it ends a subscription.
        if let Some((filter, rejection)) = serving.open().await {
            return Err(format!("{filter}: {rejection}"));
        }
        let canaries = filters
            .iter()
            .map(|(_, active)| active.canary(|hash| query_key(&query, hash)));
        let canaries: Vec<_> = canaries.collect();
        let versions: Vec<CanaryVersion> = canaries
            .iter()
            .flatten()
            .map(|it| CanaryVersion::of(it))
            .collect();
        let mut explainer = FilterExplainer {
            serving,
            canary: None,
        };
        if !versions.is_empty() {
            let detached = filters.iter().zip(&canaries).map(|((name, active), canary)| {
                DetachedFilter::of(name, canary.map_or(active.primary(), |it| &it.version))
            });
            let mut chain = FilterChain::new(names, detached.collect(), query);
            if let Some((plugin, rejection)) = chain.open().await {
                chain.explanation.failure = Some(PluginFailure {
                    plugin: Some(plugin),
                    message: format!("the query is rejected: {rejection}"),
                });
            }
            explainer.canary = Some((versions, chain));
        }
        Ok(explainer)
    }

    /// Whether a filter did not answer, so that no further events are decided.
    pub fn has_failed(&self) -> bool {
        let canary = self.canary.as_ref();
        self.serving.has_failed() && canary.is_none_or(|(_, chain)| chain.has_failed())
    }

    /// Decides a batch of events that follow those decided before.
    pub async fn decide(&mut self, events: &[Event]) {
        self.serving.decide(events).await;
        if let Some((_, chain)) = &mut self.canary {
            chain.decide(events).await;
        }
    }

    /// Returns the explanation of all events.
    pub fn finish(self) -> FilterExplanation {
        let canary = self.canary.map(|(versions, chain)| CanaryAnswer {
            versions,
            answer: Box::new(chain.finish()),
        });
        FilterExplanation {
            canary,
            ..self.serving.finish()
        }
    }
}

impl FilterChain {
    fn new(names: &[String], filters: Vec<DetachedFilter>, query: Query) -> FilterChain {
        FilterChain {
            filters,
            // No other view exists in these instances.
            view: Arc::new(SharedQuery { id: 0, query }),
            explanation: FilterExplanation {
                filters: names.to_vec(),
                ..FilterExplanation::default()
            },
            kinds: BTreeMap::new(),
        }
    }

    /// Opens the query in each filter. Returns the name of the filter that rejects it, and the
    /// rejection.
    async fn open(&mut self) -> Option<(String, String)> {
        for filter in &mut self.filters {
            match filter.open(&self.view).await {
                Ok(Ok(())) => {}
                Ok(Err(rejection)) => return Some((filter.name.clone(), rejection)),
                Err(error) => {
                    self.explanation.failure = Some(filter.failure(&error));
                    break;
                }
            }
        }
        None
    }

    fn has_failed(&self) -> bool {
        self.explanation.failure.is_some()
    }

    async fn decide(&mut self, events: &[Event]) {
        if self.has_failed() {
            return;
        }
        let states = events.iter().map(|event| EventState {
            event,
            replaced: None,
            removal: None,
        });
        let mut states: Vec<EventState<'_>> = states.collect();
        for filter_index in 0..self.filters.len() {
            if let Err(failure) = self.ask(filter_index, &mut states).await {
                self.explanation.failure = Some(failure);
                return;
            }
        }
        for state in &states {
            self.count(state);
        }
    }

    fn finish(self) -> FilterExplanation {
        let mut explanation = self.explanation;
        let names = &explanation.filters;
        let kinds = self.kinds.into_iter().map(|(kind, outcomes)| {
            let outcomes = outcomes
                .into_iter()
                .map(|((outcome, filter), (events, examples))| OutcomeExamples {
                    outcome,
                    plugin: filter.and_then(|at| names.get(at).cloned()),
                    events,
                    examples,
                });
            let mut outcomes: Vec<OutcomeExamples> = outcomes.collect();
            outcomes.sort_by_key(|it| std::cmp::Reverse(it.events));
            KindOutcomes {
                kind,
                events: outcomes.iter().map(|it| it.events).sum(),
                outcomes,
            }
        });
        explanation.kinds = kinds.collect();
        explanation
    }

    /// Calls one filter with the events that are still in the chain. After a fault it calls the
    /// filter with one event at a time, as the event bus does.
    async fn ask(&mut self, filter_index: usize, states: &mut [EventState<'_>]) -> Result<(), PluginFailure> {
        let filter = &mut self.filters[filter_index];
        let remaining: Vec<usize> = (0..states.len())
            .filter(|index| states[*index].removal.is_none())
            .collect();
        if remaining.is_empty() {
            return Ok(());
        }
        let events = remaining
            .iter()
            .map(|index| states[*index].current_event())
            .collect();
        let error = match filter.decide(&self.view, events).await {
            Ok(Ok(decisions)) => {
                for (index, decision) in remaining.into_iter().zip(decisions) {
                    states[index].apply(filter_index, decision);
                }
                return Ok(());
            }
            Ok(Err(rejection)) => return Err(rejected(filter, &rejection)),
            Err(error) => error,
        };
        if !error.is_fault() {
            return Err(filter.failure(&error));
        }
        let mut failed = self.explanation.failed as usize;
        for index in remaining {
            match filter
                .decide(&self.view, vec![states[index].current_event()])
                .await
            {
                Ok(Ok(decisions)) => {
                    for decision in decisions {
                        states[index].apply(filter_index, decision);
                    }
                }
                Ok(Err(rejection)) => return Err(rejected(filter, &rejection)),
                Err(error) if error.is_fault() && failed < MAX_FAILED => {
                    failed += 1;
                    states[index].removal = Some(Removal::Failed(filter_index, error.to_string()));
                }
                Err(error) => return Err(filter.failure(&error)),
            }
        }
        Ok(())
    }

    fn count(&mut self, state: &EventState<'_>) {
        let counts = &mut self.explanation;
        let (outcome, filter, count) = match (&state.removal, &state.replaced) {
            (Some(Removal::Dropped(at)), _) => (EventOutcome::Dropped, Some(*at), &mut counts.dropped),
            (Some(Removal::Failed(at, _)), _) => (EventOutcome::Failed, Some(*at), &mut counts.failed),
            (None, Some((at, _))) => (EventOutcome::Replaced, Some(*at), &mut counts.replaced),
            (None, None) => (EventOutcome::Passed, None, &mut counts.passed),
        };
        *count += 1;
        counts.events += 1;
        let kind = self.kinds.entry(state.event.kind.clone()).or_default();
        let (events, examples) = kind.entry((outcome, filter)).or_default();
        *events += 1;
        if examples.len() < MAX_EXAMPLES {
            let masks: Vec<&Masks> = self.filters.iter().map(|it| &*it.version.masks).collect();
            examples.push(state.example(&masks));
        }
    }
}

fn rejected(filter: &DetachedFilter, rejection: &str) -> PluginFailure {
    PluginFailure {
        plugin: Some(filter.name.clone()),
        message: format!("the query is rejected: {rejection}"),
    }
}

impl EventState<'_> {
    /// Returns the event as the next filter receives it.
    fn current_event(&self) -> Event {
        let mut event = self.event.clone();
        if let Some((_, body)) = &self.replaced {
            event.body.clone_from(body);
        }
        event
    }

    fn apply(&mut self, filter_index: usize, decision: Decision) {
        match decision {
            Decision::Pass => {}
            Decision::Drop => self.removal = Some(Removal::Dropped(filter_index)),
            Decision::Replace(body) => self.replaced = Some((filter_index, body)),
        }
    }

    fn example(&self, masks: &[&Masks]) -> EventExample {
        let text = |body: &str| {
            let document: Value = serde_json::from_str(body).unwrap_or_default();
            clip(&masked(document, masks).to_string(), MAX_BODY)
        };
        let message = match &self.removal {
            Some(Removal::Failed(_, message)) => Some(masked_text(message.clone(), masks)),
            _ => None,
        };
        EventExample {
            sequence: self.event.sequence,
            subject: self.event.subject.clone(),
            body: text(&self.event.body),
            replacement: self.replaced.as_ref().map(|(_, body)| text(body)),
            message,
        }
    }
}
