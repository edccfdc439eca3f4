//! Cases of world `event-filter`: a query, some events, and their decisions.
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

#![allow(missing_docs, reason = "the page describes the keys")]

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Answer, answer};

/// One query.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<GivenEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Vec<Expected>>,
    #[serde(rename = "refused", default, skip_serializing_if = "std::ops::Not::not")]
    pub rejected: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GivenEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default)]
    pub body: Body,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Body {
    Members(Map<String, Value>),
    /// Passed unchanged.
    Text(String),
}

impl Default for Body {
    fn default() -> Self {
        Body::Members(Map::new())
    }
}

/// Members that are added if they are missing.
const COMMON_MEMBERS: [&str; 2] = ["eventType", "timestamp"];

impl Body {
    /// Converts a recorded body. It becomes a table if it has the common members, so that none
    /// would be added.
    pub fn of(text: &str) -> Body {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(members) if COMMON_MEMBERS.iter().all(|name| members.contains_key(*name)) => {
                Body::Members(members)
            }
            _ => Body::Text(text.to_owned()),
        }
    }

    /// Returns the text of the event's body, with the members that are missing.
    pub fn into_text(self, kind: &str) -> String {
        match self {
            Body::Text(text) => text,
            Body::Members(mut members) => {
                let [kind_name, timestamp] = COMMON_MEMBERS;
                members.entry(kind_name).or_insert_with(|| kind.into());
                members
                    .entry(timestamp)
                    .or_insert_with(|| "2000-01-01T00:00:00.000Z".into());
                Value::Object(members).to_string()
            }
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    Pass,
    Drop,
    Replace(Value),
}

impl Case {
    /// Takes the expected answer out of the case. `None` if it has no expectation.
    pub fn take_expected(&mut self) -> Option<Answer> {
        match self.expect.take() {
            _ if self.rejected => Some(answer("refused", true)),
            // A case without events expects that the query is accepted.
            None if self.events.is_empty() => Some(answer("expect", [(); 0])),
            expected => expected.map(|decisions| answer("expect", decisions)),
        }
    }
}
