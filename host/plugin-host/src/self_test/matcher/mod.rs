//! Runs cases of world `attribute-matcher`.

mod case_agents;

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use transom_plugin_cases::{
    Answer, answer,
    matcher::{Case, CaseCall, Expected, GivenCandidate, GivenVerdict},
};

use super::{PreparedCase, Testable, ask};
use crate::{
    documents::matcher::{constraint, invalid, verdict_of},
    runtime::engine::{
        Instance,
        worlds::matcher::{Call, Matcher, Question},
    },
    worlds::matcher::{Candidate, ConstraintError, Task, Verdict},
};
pub(crate) use case_agents::CaseAgents;

/// A parsed case and its agents. It can be executed repeatedly.
pub(crate) struct PreparedQuestion {
    question: Question,
    agents: Arc<CaseAgents>,
    call: CaseCall,
    /// Whether the expected answer has verdicts or indices and not only names.
    is_exact: bool,
}

/// A component's answer.
pub(crate) enum MatcherOutput {
    Verdicts(Vec<Verdict>),
    Placed(Vec<u32>),
    Kills(Vec<u32>),
    Errors(Vec<ConstraintError>),
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
    fn expected(&self, expected: Option<Expected>, call: CaseCall) -> Result<(Option<Answer>, bool), String> {
        let Some(expected) = expected else {
            return Ok((None, false));
        };
        let is_exact = !matches!(expected, Expected::Names(_));
        let expected = match expected {
            Expected::Names(mut names) => {
                self.handles(&names)?;
                if !matches!(call, CaseCall::Place(_)) {
                    names.sort();
                }
                answer("expect", names)
            }
            Expected::Verdicts(verdicts) => {
                verdicts.keys().try_for_each(|name| self.handle(name).map(drop))?;
                answer("expect", verdicts)
            }
            Expected::Indices(indices) => answer("expect", indices),
        };
        Ok((Some(expected), is_exact))
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

    fn to_answer(prepared: &PreparedQuestion, found: MatcherOutput) -> Answer {
        let name = |handle: u32| {
            let at = (handle as usize).checked_sub(1)?;
            prepared.agents.names.get(at).cloned()
        };
        let mut agents: Vec<String> = match found {
            MatcherOutput::Errors(errors) => return answer("expect", invalid(&errors)),
            MatcherOutput::Placed(handles) => {
                let placed: Vec<String> = handles.into_iter().filter_map(name).collect();
                return answer("expect", placed);
            }
            MatcherOutput::Kills(kills) if prepared.is_exact => return answer("expect", kills),
            MatcherOutput::Kills(kills) => {
                let placed = |index: u32| prepared.question.task.placed.get(index as usize).copied();
                kills.into_iter().filter_map(placed).filter_map(name).collect()
            }
            MatcherOutput::Verdicts(verdicts) => {
                let verdicts = prepared.question.candidates.iter().zip(verdicts);
                let verdicts = verdicts.filter_map(|(it, verdict)| Some((name(it.agent)?, verdict)));
                if prepared.is_exact {
                    let verdicts: BTreeMap<String, GivenVerdict> = verdicts
                        .map(|(name, verdict)| (name, verdict_of(verdict)))
                        .collect();
                    return answer("expect", verdicts);
                }
                verdicts
                    .filter_map(|(name, verdict)| (verdict == Verdict::Fits).then_some(name))
                    .collect()
            }
        };
        agents.sort();
        answer("expect", agents)
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
