//! Cases of world `attribute-matcher`: agents, a task's constraints, and either the agents on
//! which the task may run or the instances to kill.
//!
//! ```toml
//! [[self-test]]
//! agents = [{ hostname = "a", attributes = { rack = "r1", cores = 8.0 } }, { hostname = "b", zone = "z1" }]
//! constraints = [["rack", "CLUSTER", "r1"], "gpu:true"]
//! placed = ["a"]                           # agents that already run an instance
//! instances = 3                            # wanted instances; by default one more than placed
//! expect = ["a"]                           # agents on which one more instance may run
//!
//! [[self-test]]
//! agents = [{ hostname = "a" }, { hostname = "b" }]
//! constraints = [["@hostname", "GROUP_BY"]]
//! placed = ["a", "b", "b"]                 # in the order in which the host would kill them
//! kill = 1
//! expect = ["b"]                           # agents whose instances are chosen
//! ```
//!
//! Agents may have an `id`, which then names them in place of the host name. Also: `run-spec`,
//! `home-region`, `ending` (agents of `placed` whose instance is being killed), `candidates`
//! (agents, or `{ agent = "a", capacity = 2 }`; by default all agents, for one instance each),
//! `place = 2` in place of `kill`, which expects the chosen agents in their order, and `validate =
//! true`, which expects the indices of the invalid constraints.
//!
//! Exact answers: `expect = { a = "fits", b = 0 }` names the constraint that rejects a candidate;
//! `expect = [2]` lists the killed instances as indices into `placed`.

#![allow(missing_docs, reason = "the page describes the keys")]

use std::{collections::BTreeMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use crate::forms::Pairs;

/// One question.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<GivenAgent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_spec: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<GivenConstraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ending: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<GivenCandidate>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub validate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expected>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum GivenConstraint {
    Expression(String),
    Field(Vec<String>),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum GivenCandidate {
    Agent(String),
    Detailed { agent: String, capacity: NonZeroU32 },
}

/// An expected answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Expected {
    /// Names of agents.
    Names(Vec<String>),
    /// Indices into the constraints, or into the placed instances.
    Indices(Vec<u32>),
    /// Verdicts by candidate.
    Verdicts(BTreeMap<String, GivenVerdict>),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum GivenVerdict {
    Fits(Fits),
    /// The index of the constraint.
    Rejected(u32),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fits {
    Fits,
}

/// The call of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseCall {
    Evaluate,
    Place(u32),
    Kill(u32),
    Validate,
}

impl Case {
    /// Returns the call of the case. The error names the mistake in it.
    pub fn call(&self) -> Result<CaseCall, String> {
        match (self.kill, self.place, self.validate) {
            (None, None, false) => Ok(CaseCall::Evaluate),
            (Some(count), None, false) => Ok(CaseCall::Kill(count.get())),
            (None, Some(count), false) => Ok(CaseCall::Place(count.get())),
            (None, None, true) => Ok(CaseCall::Validate),
            _ => Err("a case has only one of `kill`, `place` and `validate`".to_owned()),
        }
    }
}

/// An agent in the form of a case.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GivenAgent {
    /// The cluster's id. Needed if two agents have the same host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub attributes: Pairs<GivenValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<(String, String)>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum GivenValue {
    Text(String),
    Scalar(f64),
    Ranges(Vec<(u64, u64)>),
    Set(Vec<String>),
    /// An empty set needs this form, because an empty list would be read as ranges.
    EmptySet {
        set: [String; 0],
    },
}

impl GivenAgent {
    /// The agent's name in a case: its id if it has one, otherwise its host name.
    pub fn name(&self) -> &str {
        self.id.as_ref().unwrap_or(&self.hostname)
    }
}
