//! Self-tests of world `event-filter`: a query, some events, and what becomes of each.
//!
//! ```toml
//! [[self-test]]
//! event-types = ["app_terminated_event"]   # also `filter`
//! events = [{ kind = "app_terminated_event", subject = "/a", body = { appId = "/a" } }]
//! expect = ["pass"]                        # or "drop", or { replace = { … } }; `refused = true` in place of `expect`
//! ```

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::{ask, expect};
use crate::{
    engine::{
        Live,
        worlds::events::{Filter, Job, Opened},
    },
    types::events::{Decision, Event, Query},
};

/// One query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Test {
    #[serde(default)]
    event_types: Vec<String>,
    filter: Option<String>,
    #[serde(default)]
    events: Vec<GivenEvent>,
    #[serde(default)]
    expect: Vec<Expected>,
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

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Expected {
    Pass,
    Drop,
    Replace(Value),
}

pub(super) async fn run(live: &mut Live<Filter>, test: Test) -> Result<(), String> {
    let query = Query {
        event_types: test.event_types,
        expression: test.filter,
        principal: None,
        extra: Vec::new(),
    };
    // Freed with the instance: no other view has this number there.
    let view = Arc::new(Opened { id: 0, query });
    let opened = ask(live, |reply| Job::Open {
        view: Arc::clone(&view),
        reply,
    })
    .await?;
    if let Err(text) = opened {
        let unexpected = format!("it refuses the query: {text}");
        return if test.refused { Ok(()) } else { Err(unexpected) };
    }
    if test.refused {
        return Err("it takes the query, which it was expected to refuse".to_owned());
    }
    let events: Arc<[Event]> = test.events.into_iter().zip(1..).map(event).collect();
    let decided = ask(live, |reply| Job::Decide {
        view: Arc::clone(&view),
        events,
        reply,
    })
    .await?;
    let found: Vec<Expected> = decided?.into_iter().map(decision).collect();
    // The next test's view is another one.
    drop(view);
    let _ = <Filter as crate::engine::World>::tidy(live, &()).await;
    expect(&found, &test.expect)
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
