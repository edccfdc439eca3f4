//! Self-tests of world `event-filter`: a query, some events, and their decisions.
//!
//! ```toml
//! [[self-test]]
//! event-types = ["app_terminated_event"]   # also `filter`
//! events = [{ kind = "app_terminated_event", subject = "/a", body = { appId = "/a" } }]
//! expect = ["pass"]                        # or "drop", or { replace = { … } }; `refused = true` in place of `expect`
//! ```
//!
//! Also: `principal`, `extensions` (pairs), and an event's `sequence`. A `body` that is a text is
//! passed unchanged; in a table, `eventType` and `timestamp` are added if they are missing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CaseAgents, CaseAnswer, PreparedCase, Testable, ask, case_answer};
use crate::{
    runtime::engine::{
        Instance,
        worlds::events::{Call, Filter},
    },
    worlds::events::{Decision, Event, Query, SharedQuery},
};

/// One query.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Case {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    event_types: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<GivenEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Vec<Expected>>,
    #[serde(rename = "refused", default, skip_serializing_if = "std::ops::Not::not")]
    rejected: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GivenEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(default)]
    body: Body,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Body {
    Members(Map<String, Value>),
    /// Passed unchanged.
    Text(String),
}

impl Default for Body {
    fn default() -> Self {
        Body::Members(Map::new())
    }
}

/// The maximum size in bytes of the replaced events of one call that are compared as JSON documents. A
/// document may take a hundred times the memory of its text. Further ones are compared as texts.
const MAX_TREE_BYTES: usize = 256 << 10;

/// Members that are added if they are missing.
const COMMON_MEMBERS: [&str; 2] = ["eventType", "timestamp"];

impl Body {
    /// Converts a recorded body. It becomes a table if it has the common members, so that none
    /// would be added.
    fn of(text: &str) -> Body {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(members) if COMMON_MEMBERS.iter().all(|name| members.contains_key(*name)) => {
                Body::Members(members)
            }
            _ => Body::Text(text.to_owned()),
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Expected {
    Pass,
    Drop,
    Replace(Value),
}

/// A query, and events to decide. Instances keep the query open until this is dropped.
pub(crate) struct Question {
    view: Arc<SharedQuery>,
    events: Arc<[Event]>,
}

/// Numbers the views, which have to be unique within an instance.
static NEXT_VIEW_ID: AtomicU64 = AtomicU64::new(0);

impl Testable for Filter {
    type Case = Case;
    type Question = Question;
    /// The error is the text with which the component rejected the query.
    type Output = Result<Vec<Decision>, String>;

    fn prepare_case(case: Case, _: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let expected = match case.expect {
            _ if case.rejected => Some(case_answer("refused", true)),
            // A case without events expects that the query is accepted.
            None if case.events.is_empty() => Some(case_answer("expect", [(); 0])),
            None => None,
            Some(decisions) => Some(case_answer("expect", decisions)),
        };
        let query = Query {
            event_types: case.event_types,
            expression: case.filter,
            principal: case.principal,
            extensions: case.extensions,
        };
        let id = NEXT_VIEW_ID.fetch_add(1, Relaxed);
        let question = Question {
            view: Arc::new(SharedQuery { id, query }),
            events: case.events.into_iter().zip(1..).map(event).collect(),
        };
        Ok(PreparedCase { question, expected })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        question: &Question,
    ) -> Result<Self::Output, String> {
        let (view, events) = (Arc::clone(&question.view), Arc::clone(&question.events));
        ask(instance, shared, |reply| Call::Decide { view, events, reply }).await
    }

    fn to_answer(_question: &Question, found: Self::Output) -> CaseAnswer {
        match found {
            Ok(decisions) => case_answer("expect", comparable(decisions)),
            Err(_) => case_answer("refused", true),
        }
    }
}

fn event((it, sequence): (GivenEvent, u64)) -> Event {
    let body = match it.body {
        Body::Text(text) => text,
        Body::Members(mut members) => {
            let [kind, timestamp] = COMMON_MEMBERS;
            members.entry(kind).or_insert_with(|| it.kind.clone().into());
            members
                .entry(timestamp)
                .or_insert_with(|| "2000-01-01T00:00:00.000Z".into());
            Value::Object(members).to_string()
        }
    };
    Event {
        sequence: it.sequence.unwrap_or(sequence),
        kind: it.kind,
        subject: it.subject,
        body,
    }
}

/// Converts the decisions of one call, so that they can be compared with others.
fn comparable(decisions: impl IntoIterator<Item = Decision>) -> Vec<Expected> {
    let mut rest = MAX_TREE_BYTES;
    let convert = |decision| match decision {
        Decision::Pass => Expected::Pass,
        Decision::Drop => Expected::Drop,
        Decision::Replace(json) => match rest.checked_sub(json.len()) {
            Some(less) => {
                rest = less;
                // The engine lets only JSON objects through.
                Expected::Replace(serde_json::from_str(&json).unwrap_or_default())
            }
            None => Expected::Replace(Value::String(json)),
        },
    };
    decisions.into_iter().map(convert).collect()
}

/// Converts a recorded call to a case. Without events it is the opening of the query.
pub(super) fn recorded(query: &Query, events: &[Event], decisions: Option<Result<&[Decision], ()>>) -> Case {
    let events = events.iter().map(|it| GivenEvent {
        sequence: Some(it.sequence),
        kind: it.kind.clone(),
        subject: it.subject.clone(),
        body: Body::of(&it.body),
    });
    Case {
        event_types: query.event_types.clone(),
        filter: query.expression.clone(),
        principal: query.principal.clone(),
        extensions: query.extensions.clone(),
        events: events.collect(),
        expect: match decisions {
            Some(Ok(decisions)) => Some(comparable(decisions.iter().cloned())),
            Some(Err(())) | None => None,
        },
        rejected: matches!(decisions, Some(Err(()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_events_become_documents_up_to_a_limit() {
        let replaced = |blanks: usize| Decision::Replace(format!("{}{{}}", " ".repeat(blanks)));
        let half = MAX_TREE_BYTES / 2;
        let answers = comparable([replaced(half), replaced(half), replaced(0), Decision::Drop]);
        let is_document: Vec<Option<bool>> = answers
            .iter()
            .map(|it| match it {
                Expected::Replace(value) => Some(value.is_object()),
                Expected::Pass | Expected::Drop => None,
            })
            .collect();
        assert_eq!(is_document, [Some(true), Some(false), Some(true), None]);
    }
}
