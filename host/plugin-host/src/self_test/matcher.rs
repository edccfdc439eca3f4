//! Self-tests of world `attribute-matcher`: some agents, a task's constraints, and which agents it
//! may go to, or which of its instances are to be killed.
//!
//! ```toml
//! [[self-test]]
//! agents = [{ hostname = "a", attributes = { rack = "r1", cores = 8.0 } }, { hostname = "b", zone = "z1" }]
//! constraints = [["rack", "CLUSTER", "r1"], "gpu:true"]
//! placed = ["a"]                           # those that run an instance already
//! instances = 3                            # how many the task is to have; by default one more
//! expect = ["a"]                           # those that one more instance may go to
//!
//! [[self-test]]
//! agents = [{ hostname = "a" }, { hostname = "b" }]
//! constraints = [["@hostname", "GROUP_BY"]]
//! placed = ["a", "b", "b"]                 # in the order in which the host would kill
//! kill = 1
//! expect = ["b"]                           # the agents whose instances are to be killed
//! ```

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use serde::Deserialize;

use super::{Answer, PreparedCase, Testable, answer, ask};
use crate::{
    runtime::engine::{
        Instance,
        worlds::matcher::{Call, Matcher, Question},
    },
    worlds::{
        agent_mirror::AgentMirror,
        matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, Task, Verdict},
    },
};

/// One question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    agents: Vec<GivenAgent>,
    #[serde(default)]
    constraints: Vec<GivenConstraint>,
    #[serde(default)]
    placed: Vec<String>,
    instances: Option<NonZeroU32>,
    kill: Option<NonZeroU32>,
    expect: Option<Vec<String>>,
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
enum GivenConstraint {
    Expression(String),
    Field(Vec<String>),
}

/// A question that stays the same, and the agents' names by their handles.
pub(crate) struct PreparedQuestion {
    question: Question,
    names: Vec<String>,
    kill: Option<u32>,
}

/// A component's answer.
pub(crate) enum Found {
    Verdicts(Vec<Verdict>),
    Kills(Vec<u32>),
}

impl Testable for Matcher {
    type Case = Case;
    type Question = PreparedQuestion;
    type Found = Found;

    fn prepare_case(case: Case) -> Result<PreparedCase<Self>, String> {
        let names: Vec<String> = case.agents.iter().map(|it| it.hostname.clone()).collect();
        let handle = |name: &String| {
            let at = names.iter().position(|it| it == name);
            at.map(|at| at as u32 + 1)
                .ok_or_else(|| format!("no agent has the hostname {name:?}"))
        };
        let placed: Vec<u32> = case.placed.iter().map(handle).collect::<Result<_, _>>()?;
        let expected = match case.expect {
            None => None,
            Some(mut fit) => {
                fit.iter().try_for_each(|name| handle(name).map(drop))?;
                fit.sort();
                Some(answer("expect", fit))
            }
        };
        let kill = case.kill.map(NonZeroU32::get);
        if kill.is_some_and(|kill| kill as usize > placed.len()) {
            return Err(format!(
                "`kill` is at most the number of placed instances, {}",
                placed.len()
            ));
        }
        let instances = match kill {
            Some(kill) => placed.len() as u32 - kill,
            None => placed.len() as u32 + 1,
        };
        let agent_set = AgentMirror::new(None);
        agent_set.update(case.agents.into_iter().zip(1..).map(agent).collect(), Vec::new());
        let constraints = case.constraints.into_iter().map(constraint);
        let task = Task {
            run_spec: "/self-test".to_owned(),
            instances: case.instances.map_or(instances, NonZeroU32::get),
            constraints: constraints.collect::<Result<_, _>>()?,
            placed,
            extensions: Vec::new(),
        };
        let candidates = (1..=names.len() as u32).map(|agent| Candidate { agent, capacity: 1 });
        let question = Question {
            agent_set: Arc::new(agent_set),
            task,
            candidates: candidates.collect(),
        };
        Ok(PreparedCase {
            question: PreparedQuestion {
                question,
                names,
                kill,
            },
            expected,
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        asked: &PreparedQuestion,
    ) -> Result<Found, String> {
        let question = asked.question.clone();
        let Some(count) = asked.kill else {
            let verdicts = ask(instance, shared, |reply| Call::Evaluate { question, reply }).await;
            return verdicts.map(Found::Verdicts);
        };
        let kills = ask(instance, shared, |reply| Call::SelectKills {
            question,
            count,
            reply,
        });
        kills.await.map(Found::Kills)
    }

    fn to_answer(asked: &PreparedQuestion, found: Found) -> Answer {
        let mut agents: Vec<&String> = match found {
            Found::Verdicts(verdicts) => {
                let fits = |(name, verdict)| (verdict == Verdict::Fits).then_some(name);
                asked.names.iter().zip(verdicts).filter_map(fits).collect()
            }
            Found::Kills(kills) => {
                let agent = |index: u32| asked.question.task.placed.get(index as usize);
                let name = |handle: &u32| asked.names.get(*handle as usize - 1);
                kills.into_iter().filter_map(agent).filter_map(name).collect()
            }
        };
        agents.sort();
        answer("expect", agents)
    }
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
        extensions: Vec::new(),
    }
}

fn constraint(it: GivenConstraint) -> Result<Constraint, String> {
    match it {
        GivenConstraint::Expression(text) => Ok(Constraint::Expression(text)),
        GivenConstraint::Field(parts) => match <[String; 3]>::try_from(parts) {
            Ok([field, operator, operand]) => Ok(Constraint::Field {
                field,
                operator,
                operand: Some(operand),
            }),
            Err(parts) => match <[String; 2]>::try_from(parts) {
                Ok([field, operator]) => Ok(Constraint::Field {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_has_the_given_instances_or_one_more_than_placed() {
        let asked = |more: &str| {
            let text = format!("agents = [{{ hostname = \"a\" }}]\nplaced = [\"a\"]\n{more}");
            let case = toml::from_str::<Case>(&text).map_err(|error| error.to_string())?;
            Ok::<_, String>(Matcher::prepare_case(case)?.question.question.task.instances)
        };
        assert_eq!(asked(""), Ok(2));
        assert_eq!(asked("instances = 5"), Ok(5));
        assert!(asked("instances = 0").unwrap_err().contains("nonzero"));
        assert_eq!(asked("kill = 1"), Ok(0));
        assert!(asked("kill = 2").unwrap_err().contains("placed instances, 1"));
    }
}
