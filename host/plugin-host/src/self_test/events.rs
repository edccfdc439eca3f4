//! Self-tests of world `event-filter`: a query, some events, and their decisions.
//!
//! ```toml
//! [[self-test]]
//! event-types = ["app_terminated_event"]   # also `filter`
//! events = [{ kind = "app_terminated_event", subject = "/a", body = { appId = "/a" } }]
//! expect = ["pass"]                        # or "drop", or { replace = { … } }; `refused = true` in place of `expect`
//! ```

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, PreparedCase, Testable, answer, ask};
use crate::{
    runtime::engine::{
        Instance,
        worlds::events::{Call, Filter, SharedQuery},
    },
    worlds::events::{Decision, Event, Query},
};

/// One query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Case {
    #[serde(default)]
    event_types: Vec<String>,
    filter: Option<String>,
    #[serde(default)]
    events: Vec<GivenEvent>,
    expect: Option<Vec<Expected>>,
    #[serde(default)]
    refused: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenEvent {
    kind: String,
    subject: Option<String>,
    #[serde(default)]
    body: serde_json::Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Expected {
    Pass,
    Drop,
    Replace(Value),
}

/// A query, and events to decide about. Instances keep the view until this is dropped.
pub(crate) struct Question {
    view: Arc<SharedQuery>,
    events: Arc<[Event]>,
}

/// Tells views apart that live in one instance.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Testable for Filter {
    type Case = Case;
    type Question = Question;
    /// Or the text with which it refused the query.
    type Found = Result<Vec<Decision>, String>;

    fn prepare_case(case: Case) -> Result<PreparedCase<Self>, String> {
        let expected = match case.expect {
            _ if case.refused => Some(answer("refused", true)),
            // A query that is taken.
            None if case.events.is_empty() => Some(answer("expect", [(); 0])),
            None => None,
            Some(decisions) => Some(answer("expect", decisions)),
        };
        let query = Query {
            event_types: case.event_types,
            expression: case.filter,
            principal: None,
            extensions: Vec::new(),
        };
        let id = NEXT.fetch_add(1, Relaxed);
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
    ) -> Result<Self::Found, String> {
        let (view, events) = (Arc::clone(&question.view), Arc::clone(&question.events));
        ask(instance, shared, |reply| Call::Decide { view, events, reply }).await
    }

    fn to_answer(_question: &Question, found: Self::Found) -> Answer {
        match found {
            Ok(decisions) => {
                let decisions: Vec<Expected> = decisions.into_iter().map(decision).collect();
                answer("expect", decisions)
            }
            Err(_) => answer("refused", true),
        }
    }
}

fn event((it, sequence): (GivenEvent, u64)) -> Event {
    let mut body = it.body;
    body.entry("eventType").or_insert_with(|| it.kind.clone().into());
    body.entry("timestamp")
        .or_insert_with(|| "2000-01-01T00:00:00.000Z".into());
    Event {
        sequence,
        kind: it.kind,
        subject: it.subject,
        body: Value::Object(body).to_string(),
    }
}

fn decision(it: Decision) -> Expected {
    match it {
        Decision::Pass => Expected::Pass,
        Decision::Drop => Expected::Drop,
        // The engine let only objects through.
        Decision::Replace(json) => Expected::Replace(serde_json::from_str(&json).unwrap_or_default()),
    }
}
