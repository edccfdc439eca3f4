//! Cases of world `bootstrap-handler`: a container's script, and the prepared one.
//!
//! ```toml
//! [[self-test]]
//! role = "agent"                           # or "server", "datastore"
//! script = "#!/bin/sh\nexec run"
//! environment = { A = "1" }                # also `arguments` and `attributes`
//! expect = { script = "…" }                # also `environment`, `arguments`; `refused = true` in place of it
//! ```
//!
//! Also: `framework`, `task`, `number`, `host`, `image`, `ports` (pairs), `source`, `extensions`
//! (pairs). A script that is not UTF-8 is `{ hex = "…" }`. Names and values are given as pairs if
//! their order matters. `refused = { retry = true }` expects a rejection with this value of `retry`.

#![allow(missing_docs, reason = "the page describes the keys")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Answer, answer,
    forms::{Bytes, Pairs},
};

/// One container.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub role: GivenRole,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(default)]
    pub number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<(u16, u16)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<(String, String)>,
    pub script: Bytes,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub environment: Pairs<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub attributes: Pairs<String>,
    #[serde(default, skip_serializing_if = "Expected::is_empty")]
    pub expect: Expected,
    #[serde(rename = "refused", default, skip_serializing_if = "Rejected::is_none")]
    pub rejected: Rejected,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GivenRole {
    Server,
    Agent,
    Datastore,
}

/// The expected result. Omitted keys are not compared.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<String>>,
}

impl Expected {
    pub fn is_empty(&self) -> bool {
        self.script.is_none() && self.environment.is_none() && self.arguments.is_none()
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Rejected {
    Any(bool),
    Exactly { retry: bool },
}

impl Default for Rejected {
    fn default() -> Self {
        Rejected::Any(false)
    }
}

impl Rejected {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde needs")]
    fn is_none(&self) -> bool {
        matches!(self, Rejected::Any(false))
    }
}

impl Case {
    /// The expected answer.
    pub fn expected(&self) -> Answer {
        if self.rejected.is_none() {
            answer("expect", &self.expect)
        } else {
            answer("refused", self.rejected)
        }
    }
}

/// Reduces an answer to the members that are expected.
pub fn reduce(mut found: Answer, expected: &Answer) -> Answer {
    if let Some(found) = found.get_mut("expect").and_then(|it| it.as_object_mut())
        && let Some(expected) = expected.get("expect").and_then(|it| it.as_object())
    {
        found.retain(|key, _| expected.contains_key(key));
    }
    found
}
