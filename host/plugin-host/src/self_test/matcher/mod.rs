//! Self-tests of world `attribute-matcher`: agents, a task's constraints, and either the agents on
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

mod agents;
mod case_agents;
pub(super) mod recorded;

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CaseAnswer, PreparedCase, Testable, ask, case_answer};
use crate::{
    runtime::engine::{
        Instance,
        worlds::matcher::{Call, Matcher, Question},
    },
    worlds::matcher::{Candidate, Constraint, ConstraintError, Task, Verdict},
};
pub(crate) use agents::GivenAgent;
pub(crate) use case_agents::CaseAgents;

/// One question.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Case {
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<GivenAgent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    home_region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_spec: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    constraints: Vec<GivenConstraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ending: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<Vec<GivenCandidate>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kill: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    validate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Expected>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum GivenConstraint {
    Expression(String),
    Field(Vec<String>),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum GivenCandidate {
    Agent(String),
    Detailed { agent: String, capacity: NonZeroU32 },
}

/// An expected answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Expected {
    /// Names of agents.
    Names(Vec<String>),
    /// Indices into the constraints, or into the placed instances.
    Indices(Vec<u32>),
    /// Verdicts by candidate.
    Verdicts(BTreeMap<String, GivenVerdict>),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum GivenVerdict {
    Fits(Fits),
    /// The index of the constraint.
    Rejected(u32),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Fits {
    Fits,
}

impl GivenVerdict {
    fn of(verdict: Verdict) -> GivenVerdict {
        match verdict {
            Verdict::Fits => GivenVerdict::Fits(Fits::Fits),
            Verdict::Refused(constraint) => GivenVerdict::Rejected(constraint),
        }
    }
}

/// A parsed case and its agents. It can be executed repeatedly.
pub(crate) struct PreparedQuestion {
    question: Question,
    agents: Arc<CaseAgents>,
    call: CaseCall,
    /// Whether the expected answer has verdicts or indices and not only names.
    is_exact: bool,
}

/// The call of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseCall {
    Evaluate,
    Place(u32),
    Kill(u32),
    Validate,
}

/// A component's answer.
pub(crate) enum MatcherOutput {
    Verdicts(Vec<Verdict>),
    Placed(Vec<u32>),
    Kills(Vec<u32>),
    Errors(Vec<ConstraintError>),
}

impl Case {
    fn call(&self) -> Result<CaseCall, String> {
        match (self.kill, self.place, self.validate) {
            (None, None, false) => Ok(CaseCall::Evaluate),
            (Some(count), None, false) => Ok(CaseCall::Kill(count.get())),
            (None, Some(count), false) => Ok(CaseCall::Place(count.get())),
            (None, None, true) => Ok(CaseCall::Validate),
            _ => Err("a case has only one of `kill`, `place` and `validate`".to_owned()),
        }
    }
}

impl CaseAgents {
    fn candidates(&self, given: Option<Vec<GivenCandidate>>) -> Result<Vec<Candidate>, String> {
        let Some(given) = given else {
            let all_agents = (1..=self.names.len() as u32).map(|agent| Candidate { agent, capacity: 1 });
            return Ok(all_agents.collect());
        };
        let candidate = |it| {
            let (name, capacity) = match it {
                GivenCandidate::Agent(name) => (name, 1),
                GivenCandidate::Detailed { agent, capacity } => (agent, capacity.get()),
            };
            let agent = self.handle(&name)?;
            Ok(Candidate { agent, capacity })
        };
        given.into_iter().map(candidate).collect()
    }

    /// Returns the expected answer, and whether it is exact.
    fn expected(
        &self,
        expected: Option<Expected>,
        call: CaseCall,
    ) -> Result<(Option<CaseAnswer>, bool), String> {
        let Some(expected) = expected else {
            return Ok((None, false));
        };
        let is_exact = !matches!(expected, Expected::Names(_));
        let answer = match expected {
            Expected::Names(mut names) => {
                self.handles(&names)?;
                if !matches!(call, CaseCall::Place(_)) {
                    names.sort();
                }
                case_answer("expect", names)
            }
            Expected::Verdicts(verdicts) => {
                verdicts.keys().try_for_each(|name| self.handle(name).map(drop))?;
                case_answer("expect", verdicts)
            }
            Expected::Indices(indices) => case_answer("expect", indices),
        };
        Ok((Some(answer), is_exact))
    }
}

impl Testable for Matcher {
    type Case = Case;
    type Question = PreparedQuestion;
    type Output = MatcherOutput;

    fn prepare_case(case: Case, shared: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let call = case.call()?;
        let agents = match (case.agents, shared) {
            (Some(agents), _) => Arc::new(CaseAgents::of(agents)),
            (None, Some(shared)) => Arc::clone(shared),
            (None, None) if call == CaseCall::Validate => Arc::new(CaseAgents::of(Vec::new())),
            (None, None) => return Err("`agents` is missing".to_owned()),
        };
        let placed = agents.handles(&case.placed)?;
        let ending = agents.handles(&case.ending)?;
        let (expected, is_exact) = agents.expected(case.expect, call)?;
        let instances = match call {
            CaseCall::Kill(kill) if kill as usize > placed.len() => {
                return Err(format!(
                    "`kill` is at most the number of placed instances, {}",
                    placed.len()
                ));
            }
            CaseCall::Kill(kill) => placed.len() as u32 - kill,
            _ => placed.len() as u32 + 1,
        };
        let mut extensions = case.extensions;
        if !ending.is_empty() {
            let handles: Vec<String> = ending.iter().map(u32::to_string).collect();
            extensions.push((Task::ENDING.to_owned(), handles.join(" ")));
        }
        let candidates = agents.candidates(case.candidates)?;
        let constraints = case.constraints.into_iter().map(constraint);
        let task = Task {
            run_spec: case.run_spec.unwrap_or_else(|| "/self-test".to_owned()),
            instances: case.instances.map_or(instances, NonZeroU32::get),
            constraints: constraints.collect::<Result<_, _>>()?,
            placed,
            extensions,
        };
        let question = Question {
            agent_set: agents.mirror(case.home_region),
            task,
            candidates,
        };
        Ok(PreparedCase {
            question: PreparedQuestion {
                question,
                agents,
                call,
                is_exact,
            },
            expected,
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        prepared: &PreparedQuestion,
    ) -> Result<MatcherOutput, String> {
        let question = prepared.question.clone();
        match prepared.call {
            CaseCall::Evaluate => {
                let verdicts = ask(instance, shared, |reply| Call::Evaluate { question, reply }).await;
                verdicts.map(MatcherOutput::Verdicts)
            }
            CaseCall::Place(count) => {
                let placed = ask(instance, shared, |reply| Call::Place {
                    question,
                    count,
                    reply,
                });
                placed.await.map(MatcherOutput::Placed)
            }
            CaseCall::Kill(count) => {
                let kills = ask(instance, shared, |reply| Call::SelectKills {
                    question,
                    count,
                    reply,
                });
                kills.await.map(MatcherOutput::Kills)
            }
            CaseCall::Validate => {
                let constraints = question.task.constraints;
                let errors = ask(instance, shared, |reply| Call::Validate { constraints, reply }).await;
                errors.map(MatcherOutput::Errors)
            }
        }
    }

    fn to_answer(prepared: &PreparedQuestion, found: MatcherOutput) -> CaseAnswer {
        let name = |handle: u32| {
            let at = (handle as usize).checked_sub(1)?;
            prepared.agents.names.get(at).cloned()
        };
        let mut agents: Vec<String> = match found {
            MatcherOutput::Errors(errors) => return case_answer("expect", invalid(&errors)),
            MatcherOutput::Placed(handles) => {
                let placed: Vec<String> = handles.into_iter().filter_map(name).collect();
                return case_answer("expect", placed);
            }
            MatcherOutput::Kills(kills) if prepared.is_exact => return case_answer("expect", kills),
            MatcherOutput::Kills(kills) => {
                let placed = |index: u32| prepared.question.task.placed.get(index as usize).copied();
                kills.into_iter().filter_map(placed).filter_map(name).collect()
            }
            MatcherOutput::Verdicts(verdicts) => {
                let verdicts = prepared.question.candidates.iter().zip(verdicts);
                let verdicts = verdicts.filter_map(|(it, verdict)| Some((name(it.agent)?, verdict)));
                if prepared.is_exact {
                    let verdicts: BTreeMap<String, GivenVerdict> = verdicts
                        .map(|(name, verdict)| (name, GivenVerdict::of(verdict)))
                        .collect();
                    return case_answer("expect", verdicts);
                }
                verdicts
                    .filter_map(|(name, verdict)| (verdict == Verdict::Fits).then_some(name))
                    .collect()
            }
        };
        agents.sort();
        case_answer("expect", agents)
    }
}

/// Returns the constraints with errors. The messages are not compared, because their wording may
/// differ.
fn invalid(errors: &[ConstraintError]) -> Vec<u32> {
    let mut indices: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn constraint(given: GivenConstraint) -> Result<Constraint, String> {
    match given {
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

    fn prepared(text: &str) -> Result<PreparedCase<Matcher>, String> {
        let case = toml::from_str::<Case>(text).map_err(|error| error.to_string())?;
        Matcher::prepare_case(case, None)
    }

    #[test]
    fn task_has_the_given_instances_or_one_more_than_placed() {
        let instances_of = |more: &str| {
            let prepared = prepared(&format!(
                "agents = [{{ hostname = \"a\" }}]\nplaced = [\"a\"]\n{more}"
            ))?;
            Ok::<_, String>(prepared.question.question.task.instances)
        };
        assert_eq!(instances_of(""), Ok(2));
        assert_eq!(instances_of("instances = 5"), Ok(5));
        assert!(instances_of("instances = 0").unwrap_err().contains("nonzero"));
        assert_eq!(instances_of("kill = 1"), Ok(0));
        assert!(
            instances_of("kill = 2")
                .unwrap_err()
                .contains("placed instances, 1")
        );
    }

    #[test]
    fn agents_with_one_hostname_are_distinguished_by_their_ids() {
        let agents = "agents = [{ id = \"1\", hostname = \"a\" }, { id = \"2\", hostname = \"a\" }]";
        let case = prepared(&format!(
            "{agents}\nplaced = [\"2\"]\nending = [\"2\"]\ncandidates = [\"2\", {{ agent = \"1\", capacity = 3 }}]\nexpect = {{ 1 = \"fits\", 2 = 0 }}"
        ))
        .unwrap();
        let Question { task, candidates, .. } = &case.question.question;
        assert_eq!((task.placed.as_slice(), candidates.len()), (&[2][..], 2));
        assert_eq!(task.extensions, [("ending".to_owned(), "2".to_owned())]);
        assert_eq!(
            candidates[1],
            Candidate {
                agent: 1,
                capacity: 3
            }
        );
        let verdicts = MatcherOutput::Verdicts(vec![Verdict::Refused(0), Verdict::Fits]);
        assert_eq!(Some(Matcher::to_answer(&case.question, verdicts)), case.expected);
        for (more, expected) in [
            ("placed = [\"a\"]", "the id or hostname \"a\""),
            ("candidates = [\"3\"]", "the id or hostname \"3\""),
            ("kill = 1\nplace = 1", "only one of"),
        ] {
            let error = prepared(&format!("{agents}\n{more}")).err().unwrap();
            assert!(error.contains(expected), "{more}: {error}");
        }
        assert!(
            prepared("place = 1")
                .err()
                .unwrap()
                .contains("`agents` is missing")
        );
    }
}
