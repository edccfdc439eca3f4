//! Explains which condition rejects which agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;
use serde_json::Value;
use transom_common::text::clip;

use super::{CanaryAnswer, CanaryVersion, MAX_TEXT, PluginFailure};
use crate::{
    api::{
        extension_points::ExtensionPoints,
        matcher_chain::{CandidateEvaluator, ChainVerdict, evaluate_chain},
    },
    error::CallError,
    runtime::{
        candidate::share::KeyHash,
        engine::worlds::matcher::{Matcher, Question},
        pool::Version,
        shadow::{
            calls::{Evaluate, evaluate_key},
            repeat,
        },
    },
    worlds::{
        agent_mirror::{AgentMirror, AgentSnapshot},
        matcher::{Agent, AttributeValue, Candidate, Constraint, Task, Verdict},
    },
};

/// Maximum number of attribute values listed for a condition.
const MAX_VALUES: usize = 20;
/// Maximum number of host names listed for a condition.
const MAX_EXAMPLES: usize = 5;

/// Which agents may run one more instance of a task, and why others may not. Resources are not
/// considered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MatcherExplanation {
    /// The matchers, in the order in which they are called.
    pub matchers: Vec<String>,
    /// The constraints, in the order of the definition.
    pub constraints: Vec<String>,
    /// Number of agents that were evaluated.
    pub agents: usize,
    /// Number of agents that all matchers accept.
    pub accepted: usize,
    /// Wanted number of instances.
    pub instances: u32,
    /// Number of instances that run and count for constraints.
    pub placed: usize,
    /// The rejected agents, grouped by matcher and constraint. An agent is counted at the first
    /// constraint that its matcher names.
    #[serde(rename = "refusals")]
    pub rejections: Vec<Rejections>,
    /// A matcher that did not answer. No task is launched in this case.
    pub failure: Option<PluginFailure>,
    /// The answer with the canaries, if the task is in the share of at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryAnswer<MatcherExplanation>>,
}

/// The agents that one condition rejects.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejections {
    /// The matcher.
    pub plugin: String,
    /// The constraint's place in the definition, from 0. None: a rule of the matcher itself, such as
    /// the home region.
    pub constraint: Option<u32>,
    /// The constraint as it is passed to the matcher: `rack CLUSTER r1`.
    pub condition: String,
    /// Number of agents that it rejects.
    pub agents: usize,
    /// Values of the constraint's attribute on these agents, the most frequent one first.
    pub values: Vec<ValueCount>,
    /// Number of agents whose values are not listed.
    pub other_values: usize,
    /// Host names of some of them.
    pub examples: Vec<String>,
}

/// A value and the number of agents that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueCount {
    /// None: these agents lack the attribute.
    pub value: Option<String>,
    /// Number of agents.
    pub agents: usize,
}

/// A matcher that runs on separate instances for explanations.
struct DetachedMatcher {
    name: String,
    version: Version<Matcher>,
}

impl DetachedMatcher {
    fn of(name: &str, version: &Version<Matcher>) -> DetachedMatcher {
        DetachedMatcher {
            name: name.to_owned(),
            version: version.detached_per_call(),
        }
    }
}

impl CandidateEvaluator for DetachedMatcher {
    fn evaluate(&self, question: Question) -> impl Future<Output = Result<Vec<Verdict>, CallError>> + Send {
        repeat(&self.version, Evaluate(question))
    }
}

pub(crate) async fn explain(
    extension_points: &ExtensionPoints,
    agents: &AgentSnapshot,
    mut task: Task,
) -> MatcherExplanation {
    task.placed.retain(|agent| agents.get(*agent).is_some());
    let partial = MatcherExplanation {
        matchers: extension_points.config.bindings.matchers.clone(),
        constraints: task.constraints.iter().map(condition).collect(),
        agents: agents.len(),
        instances: task.instances,
        placed: task.placed.len(),
        ..MatcherExplanation::default()
    };
    let matchers = match extension_points.matchers() {
        Ok(matchers) => matchers,
        Err(error) => {
            return MatcherExplanation {
                failure: Some(PluginFailure::from(&error)),
                ..partial
            };
        }
    };
    let serving = matchers
        .iter()
        .map(|(name, active)| DetachedMatcher::of(name, active.primary()));
    let explanation = fill_in(partial.clone(), &serving.collect::<Vec<_>>(), agents, &task).await;
    let in_share = |hash: &mut KeyHash| evaluate_key(&task, hash);
    let canaries = matchers.iter().map(|(_, active)| active.canary(in_share));
    let canaries: Vec<_> = canaries.collect();
    let versions: Vec<CanaryVersion> = canaries
        .iter()
        .flatten()
        .map(|it| CanaryVersion::of(it))
        .collect();
    if versions.is_empty() {
        return explanation;
    }
    let detached = matchers.iter().zip(&canaries).map(|((name, active), canary)| {
        DetachedMatcher::of(name, canary.map_or(active.primary(), |it| &it.version))
    });
    let answer = fill_in(partial, &detached.collect::<Vec<_>>(), agents, &task).await;
    MatcherExplanation {
        canary: Some(CanaryAnswer {
            versions,
            answer: Box::new(answer),
        }),
        ..explanation
    }
}

/// Calls these matchers and fills in the explanation.
async fn fill_in(
    mut explanation: MatcherExplanation,
    matchers: &[DetachedMatcher],
    agents: &AgentSnapshot,
    task: &Task,
) -> MatcherExplanation {
    let agents_in_order: Vec<&Agent> = agents.iter().collect();
    let candidates: Vec<Candidate> = agents_in_order
        .iter()
        .map(|agent| Candidate {
            agent: agent.handle,
            capacity: 1,
        })
        .collect();
    let mirror = Arc::new(AgentMirror::from_snapshot(agents));
    match evaluate_chain(matchers, &mirror, task, &candidates).await {
        Ok(judged) => {
            let names: Vec<&str> = matchers.iter().map(|it| it.name.as_str()).collect();
            explanation.accepted = judged.iter().filter(|it| it.rejected_by.is_none()).count();
            explanation.rejections = group(&names, task, &agents_in_order, &judged);
        }
        Err(error) => explanation.failure = Some(PluginFailure::from(&error)),
    }
    explanation
}

/// Groups the rejected agents by matcher and constraint.
fn group(matchers: &[&str], task: &Task, agents: &[&Agent], judged: &[ChainVerdict]) -> Vec<Rejections> {
    let mut groups: BTreeMap<(usize, u32), Vec<&Agent>> = BTreeMap::new();
    for (agent, judgement) in agents.iter().zip(judged) {
        if let (Some(matcher), Verdict::Refused(constraint)) = (judgement.rejected_by, judgement.verdict) {
            groups.entry((matcher, constraint)).or_default().push(agent);
        }
    }
    let groups = groups.into_iter().map(|((matcher, index), agents)| {
        let constraint = task.constraints.get(index as usize);
        let (values, other_values) = constraint.map_or_else(Default::default, |it| values(it, &agents));
        let hosts = agents.iter().map(|agent| clip(&agent.hostname, MAX_TEXT));
        Rejections {
            plugin: matchers[matcher].to_owned(),
            constraint: constraint.map(|_| index),
            condition: constraint.map_or_else(|| "a rule of the matcher itself".to_owned(), condition),
            agents: agents.len(),
            values,
            other_values,
            examples: hosts.take(MAX_EXAMPLES).collect(),
        }
    });
    groups.collect()
}

fn condition(constraint: &Constraint) -> String {
    clip(&constraint.to_string(), MAX_TEXT)
}

/// Returns the values of a constraint's attribute on these agents, and the number of agents whose
/// values are left out. Empty for an expression, which may use several attributes.
fn values(constraint: &Constraint, agents: &[&Agent]) -> (Vec<ValueCount>, usize) {
    let Constraint::Field { field, .. } = constraint else {
        return (Vec::new(), 0);
    };
    let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for agent in agents {
        *counts.entry(value_of(agent, field)).or_default() += 1;
    }
    let mut values: Vec<ValueCount> = counts
        .into_iter()
        .map(|(value, agents)| ValueCount { value, agents })
        .collect();
    values.sort_by_key(|it| std::cmp::Reverse(it.agents));
    let others = values.iter().skip(MAX_VALUES).map(|it| it.agents).sum();
    values.truncate(MAX_VALUES);
    (values, others)
}

/// Returns the values of an agent's attribute as text, separated by commas if there are several
/// with one name.
fn value_of(agent: &Agent, field: &str) -> Option<String> {
    let text = match field {
        "@hostname" | "hostname" => Some(agent.hostname.clone()),
        "@region" => agent.region.clone(),
        "@zone" => agent.zone.clone(),
        name => {
            let own = agent.attributes.iter().filter(|it| it.name == name);
            let texts: Vec<String> = own.map(|it| text_of(&it.value)).collect();
            (!texts.is_empty()).then(|| texts.join(", "))
        }
    };
    text.map(|text| clip(&text, MAX_TEXT))
}

/// As agents write attributes: `1.5`, `[6-7]`, `{a,b}`.
fn text_of(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::Scalar(number) => Value::from(*number).to_string(),
        AttributeValue::Ranges(ranges) => {
            let ranges: Vec<String> = ranges.iter().map(|(from, to)| format!("{from}-{to}")).collect();
            format!("[{}]", ranges.join(","))
        }
        AttributeValue::Set(items) => {
            let items: BTreeSet<&str> = items.iter().map(String::as_str).collect();
            let items: Vec<&str> = items.into_iter().collect();
            format!("{{{}}}", items.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds::matcher::Attribute;

    fn agent(handle: u32, rack: Option<AttributeValue>) -> Agent {
        let attribute = |value| Attribute {
            name: "rack".to_owned(),
            value,
        };
        Agent {
            handle,
            id: handle.to_string(),
            hostname: format!("host-{handle}"),
            region: None,
            zone: None,
            attributes: rack.map(attribute).into_iter().collect(),
            extensions: Vec::new(),
        }
    }

    fn racked(handle: u32, rack: &str) -> Agent {
        agent(handle, Some(AttributeValue::Text(rack.to_owned())))
    }

    fn rack(operator: &str, operand: Option<&str>) -> Constraint {
        Constraint::Field {
            field: "rack".to_owned(),
            operator: operator.to_owned(),
            operand: operand.map(str::to_owned),
        }
    }

    fn count(value: Option<&str>, agents: usize) -> ValueCount {
        ValueCount {
            value: value.map(str::to_owned),
            agents,
        }
    }

    #[test]
    fn rejected_agents_are_grouped_by_matcher_and_constraint_with_their_values() {
        let agents = [
            racked(0, "r1"),
            racked(1, "r2"),
            racked(2, "r2"),
            agent(3, None),
            racked(4, "r1"),
            racked(5, "r1"),
        ];
        let task = Task {
            constraints: vec![rack("CLUSTER", Some("r1")), rack("UNIQUE", None)],
            ..Task::default()
        };
        let rejected = |matcher, constraint| ChainVerdict {
            verdict: Verdict::Refused(constraint),
            rejected_by: Some(matcher),
        };
        let fits = ChainVerdict {
            verdict: Verdict::Fits,
            rejected_by: None,
        };
        let judged = [
            fits,
            rejected(0, 0),
            rejected(0, 0),
            rejected(0, 0),
            rejected(1, 1),
            rejected(1, 2),
        ];
        let agents: Vec<&Agent> = agents.iter().collect();
        let groups = group(&["attributes", "spread"], &task, &agents, &judged);
        let [cluster, unique, own] = groups.as_slice() else {
            panic!("{groups:?}");
        };
        assert_eq!(
            (
                cluster.plugin.as_str(),
                cluster.constraint,
                cluster.condition.as_str(),
                cluster.agents
            ),
            ("attributes", Some(0), "rack CLUSTER r1", 3)
        );
        assert_eq!(cluster.values, [count(Some("r2"), 2), count(None, 1)]);
        assert_eq!(cluster.examples, ["host-1", "host-2", "host-3"]);
        assert_eq!(
            (unique.plugin.as_str(), unique.condition.as_str()),
            ("spread", "rack UNIQUE")
        );
        assert_eq!(unique.values, [count(Some("r1"), 1)]);
        assert_eq!(
            (own.constraint, own.condition.as_str(), own.values.len()),
            (None, "a rule of the matcher itself", 0)
        );
    }

    #[test]
    fn values_are_bounded_and_the_rest_is_counted() {
        let agents: Vec<Agent> = (0..100)
            .map(|at| racked(at, &format!("r{}", at.min(50))))
            .collect();
        let agents: Vec<&Agent> = agents.iter().collect();
        let (listed, others) = values(&rack("UNIQUE", None), &agents);
        assert_eq!(listed.len(), MAX_VALUES);
        assert_eq!(listed[0], count(Some("r50"), 50));
        let listed_agents: usize = listed.iter().map(|it| it.agents).sum();
        assert_eq!(listed_agents + others, 100);
        assert_eq!(
            values(&Constraint::Expression("gpu:true".to_owned()), &agents),
            (vec![], 0)
        );
    }

    #[test]
    fn values_of_all_kinds_have_a_text() {
        for (value, expected) in [
            (AttributeValue::Scalar(1.5), "1.5"),
            (AttributeValue::Ranges(vec![(6, 7), (9, 9)]), "[6-7,9-9]"),
            (AttributeValue::Set(vec!["b".into(), "a".into()]), "{a,b}"),
            (AttributeValue::Text("x".repeat(2000)), ""),
        ] {
            let found = value_of(&agent(1, Some(value)), "rack").unwrap();
            if expected.is_empty() {
                assert_eq!(found.len(), MAX_TEXT);
            } else {
                assert_eq!(found, expected);
            }
        }
        assert_eq!(value_of(&agent(7, None), "@hostname").as_deref(), Some("host-7"));
        assert_eq!(value_of(&agent(7, None), "@zone"), None);
    }
}
