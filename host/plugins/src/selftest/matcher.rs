//! Self-tests of world `attribute-matcher`: some agents, a task's conditions, and which agents it may go to.
//!
//! ```toml
//! [[self-test]]
//! agents = [{ hostname = "a", attributes = { rack = "r1", cores = 8.0 } }, { hostname = "b", zone = "z1" }]
//! conditions = [["rack", "CLUSTER", "r1"], "gpu:true"]
//! placed = ["a"]                           # those that run an instance already
//! expect = ["a"]                           # those that one more instance may go to
//! ```

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use super::{ask, expect};
use crate::{
    engine::{
        Live,
        worlds::matcher::{Job, Matcher, Question},
    },
    fleet_copy::FleetCopy,
    types::matcher::{Agent, Attribute, AttributeValue, Candidate, Condition, Task, Verdict},
};

/// One question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Test {
    agents: Vec<GivenAgent>,
    #[serde(default)]
    conditions: Vec<GivenCondition>,
    #[serde(default)]
    placed: Vec<String>,
    expect: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenAgent {
    hostname: String,
    region: Option<String>,
    zone: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, GivenValue>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GivenValue {
    Text(String),
    Scalar(f64),
    Ranges(Vec<(u64, u64)>),
    Set(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GivenCondition {
    Expression(String),
    Constraint(Vec<String>),
}

pub(super) async fn run(live: &mut Live<Matcher>, test: Test) -> Result<(), String> {
    let names: Vec<String> = test.agents.iter().map(|it| it.hostname.clone()).collect();
    let handle = |name: &String| {
        let at = names.iter().position(|it| it == name);
        at.map(|at| at as u32 + 1)
            .ok_or_else(|| format!("no agent has the hostname {name:?}"))
    };
    let placed: Vec<u32> = test.placed.iter().map(handle).collect::<Result<_, _>>()?;
    for name in &test.expect {
        handle(name)?;
    }
    let fleet = FleetCopy::new(None);
    let agents = test.agents.into_iter().zip(1..).map(agent).collect();
    fleet.update(agents, Vec::new());
    let task = Task {
        run_spec: "/self-test".to_owned(),
        instances: placed.len() as u32 + 1,
        conditions: test
            .conditions
            .into_iter()
            .map(condition)
            .collect::<Result<_, _>>()?,
        placed,
        extra: Vec::new(),
    };
    let candidates: Vec<Candidate> = (1..=names.len() as u32)
        .map(|agent| Candidate { agent, room: 1 })
        .collect();
    let question = Question {
        fleet: Arc::new(fleet),
        task,
        candidates,
    };
    let verdicts = ask(live, |reply| Job::Judge { question, reply }).await?;
    let mut fit: Vec<String> = names
        .into_iter()
        .zip(verdicts)
        .filter(|(_, verdict)| *verdict == Verdict::Fits)
        .map(|(name, _)| name)
        .collect();
    let mut expected = test.expect;
    fit.sort();
    expected.sort();
    expect(&fit, &expected)
}

fn agent((it, handle): (GivenAgent, u32)) -> Agent {
    let attributes = it.attributes.into_iter().map(|(name, value)| Attribute {
        name,
        value: match value {
            GivenValue::Text(text) => AttributeValue::Text(text),
            GivenValue::Scalar(number) => AttributeValue::Scalar(number),
            GivenValue::Ranges(ranges) => AttributeValue::Ranges(ranges),
            GivenValue::Set(set) => AttributeValue::Set(set),
        },
    });
    Agent {
        handle,
        id: format!("self-test-{handle}"),
        hostname: it.hostname,
        region: it.region,
        zone: it.zone,
        attributes: attributes.collect(),
        extra: Vec::new(),
    }
}

fn condition(it: GivenCondition) -> Result<Condition, String> {
    match it {
        GivenCondition::Expression(text) => Ok(Condition::Expression(text)),
        GivenCondition::Constraint(parts) => match <[String; 3]>::try_from(parts) {
            Ok([field, operator, operand]) => Ok(Condition::Constraint {
                field,
                operator,
                operand: Some(operand),
            }),
            Err(parts) => match <[String; 2]>::try_from(parts) {
                Ok([field, operator]) => Ok(Condition::Constraint {
                    field,
                    operator,
                    operand: None,
                }),
                Err(parts) => Err(format!(
                    "a constraint has a field, an operator and perhaps an operand, not {parts:?}"
                )),
            },
        },
    }
}
