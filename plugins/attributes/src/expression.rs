//! Constraints of workflow tasks: `key:value`, and `A?:B`.
//!
//! A plain entry is split at its first colon; key and value are compared without regard to case and
//! are not trimmed. Only an agent's text attributes count: their names trimmed, their values
//! without blanks and without quotes around them.
//!
//! An entry `A?:B` is split at its first `?:`. It has no effect when the text A is among the plain
//! entries; otherwise the agent must not match A and must match B. So `gpu:true?:cpu:true` places the
//! task on agents without a GPU, which leaves those with one free, unless the task itself requests a
//! GPU.

use transom_sdk::matcher::Constraint;

use crate::agents::Agents;
use crate::fields::{Field, FieldTest, ValueTest};
use crate::properties::{AgentProperties, FieldLists};
use crate::value::FieldValue;

/// One entry of a task's constraints, parsed for the fields that the loaded agents have.
#[derive(Debug)]
pub struct Expression<'agents>(ExpressionKind<'agents>);

#[derive(Debug)]
enum ExpressionKind<'agents> {
    Plain(KeyValueTest<'agents>),
    /// `A?:B` where A is itself a constraint of the task. Every agent passes.
    NoEffect,
    /// `A?:B`: the agent must match B and not A.
    Fallback {
        excluded: KeyValueTest<'agents>,
        required: KeyValueTest<'agents>,
    },
}

/// `key:value`: tests of the attributes with that key, of which one must pass. A text without a colon
/// has no tests and matches no agent.
#[derive(Debug)]
struct KeyValueTest<'agents> {
    lists: &'agents FieldLists,
    tests: Vec<FieldTest<'agents, TextTest>>,
}

/// A text that is compared without regard to case, blanks and quotes.
#[derive(Debug)]
struct TextTest(String);

impl<'agents> Expression<'agents> {
    /// Parses an entry. `all` are all constraints of the task, including this one.
    pub fn parse(text: &str, all: &[Constraint], agents: &'agents Agents) -> Self {
        let Some((excluded, required)) = text.split_once("?:") else {
            return Self(ExpressionKind::Plain(KeyValueTest::parse(text, agents)));
        };
        // Only a plain entry can be equal to A, because A, the text before the first `?:`, contains no
        // `?:`.
        let is_requested = all
            .iter()
            .any(|other| matches!(other, Constraint::Expression(other) if other == excluded));
        Self(if is_requested {
            ExpressionKind::NoEffect
        } else {
            ExpressionKind::Fallback {
                excluded: KeyValueTest::parse(excluded, agents),
                required: KeyValueTest::parse(required, agents),
            }
        })
    }

    /// Whether the agent passes.
    pub fn matches(&self, agent: &AgentProperties) -> bool {
        match &self.0 {
            ExpressionKind::Plain(pair) => pair.matches(agent),
            ExpressionKind::NoEffect => true,
            ExpressionKind::Fallback { excluded, required } => {
                !excluded.matches(agent) && required.matches(agent)
            }
        }
    }
}

impl<'agents> KeyValueTest<'agents> {
    fn parse(text: &str, agents: &'agents Agents) -> Self {
        let (fields, lists) = (agents.fields(), agents.field_lists());
        let Some((key, value)) = text.split_once(':') else {
            return Self {
                lists,
                tests: Vec::new(),
            };
        };
        let (key, value) = (key.to_lowercase(), value.to_lowercase());
        let has_key = |field: &Field| match field {
            Field::Attribute(name) => name.trim().to_lowercase() == key,
            Field::Hostname | Field::Region | Field::Zone => false,
        };
        let tests = fields.iter().filter(|(field, _)| has_key(field));
        let tests = tests.filter_map(|(_, field)| FieldTest::new(fields, field, TextTest(value.clone())));
        Self {
            lists,
            tests: tests.collect(),
        }
    }

    fn matches(&self, agent: &AgentProperties) -> bool {
        self.tests.iter().any(|test| {
            let mut properties = self.lists.properties(agent);
            properties.any(|property| property.field == test.field && test.passes(property.value))
        })
    }
}

impl ValueTest for TextTest {
    fn passes(&self, value: &FieldValue) -> bool {
        if !value.is_text() {
            return false;
        }
        let text = value.text.replace(' ', "");
        text.trim_matches('"').to_lowercase() == self.0
    }
}

/// Returns an error for an entry that no agent could satisfy.
pub fn validate(text: &str) -> Result<(), String> {
    let required = text.split_once("?:").map_or(text, |(_, required)| required);
    if required.contains(':') {
        return Ok(());
    }
    Err(format!(
        "expected key:value or A?:B with key:value on both sides, found {text:?}: no agent would ever match"
    ))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use transom_sdk::{matcher::Value, testing::agent};

    use super::*;

    fn matches(constraints: &[&str], attributes: &[(&str, Value)]) -> bool {
        let mut agents = Agents::new(None, Rc::default());
        agents.apply_changes(vec![agent(1, "h", attributes)], Vec::new());
        let all: Vec<_> = constraints
            .iter()
            .map(|text| Constraint::Expression((*text).to_owned()))
            .collect();
        constraints
            .iter()
            .all(|text| Expression::parse(text, &all, &agents).matches(agents.get(1).unwrap()))
    }

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    /// Entries, the agent's attributes, whether the agent matches all entries.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, Value)], bool);

    #[test]
    fn entries_are_compared_with_text_attributes() {
        let cases: [Case; 16] = [
            (&[], &[], true),
            (&["gpu:true"], &[("gpu", text("true"))], true),
            (&["gpu:true"], &[("gpu", text("false"))], false),
            (&["gpu:true"], &[], false),
            (&["gpu"], &[("gpu", text(""))], false),
            (&["GPU:True"], &[(" Gpu ", text("\"TR UE\""))], true),
            (&["gpu :true"], &[("gpu", text("true"))], false),
            (&["gpu: true"], &[("gpu", text(" true"))], false),
            (&["img:a:b"], &[("img", text("a:b"))], true),
            // Only text attributes match.
            (&["cores:4"], &[("cores", Value::Scalar(4.0))], false),
            (&["a:1", "a:2"], &[("a", text("1")), ("a", text("2"))], true),
            (
                &["gpu:true?:cpu:true"],
                &[("cpu", text("true")), ("gpu", text("true"))],
                false,
            ),
            (
                &["gpu:true?:cpu:true", "gpu:true"],
                &[("gpu", text("true"))],
                true,
            ),
            // `A?:B` has no effect only when an entry has the same text as A: case counts.
            (
                &["GPU:true", "gpu:true?:cpu:true"],
                &[("gpu", text("true"))],
                false,
            ),
            // An A without a colon matches no agent, so B alone decides.
            (&["gpu?:cpu:true"], &[("cpu", text("true"))], true),
            // The entry is split at its first `?:` only; the second one belongs to B's value.
            (&["a:1?:b:2?:c:3"], &[("b", text("2?:c:3"))], true),
        ];
        for (constraints, attributes, expected) in cases {
            assert_eq!(
                matches(constraints, attributes),
                expected,
                "{constraints:?} {attributes:?}"
            );
        }
    }

    #[test]
    fn expression_that_matches_nothing_is_rejected() {
        for text in ["a:b", "a:b?:c:d", ":", "a?:c:d"] {
            assert!(validate(text).is_ok(), "{text:?}");
        }
        for text in ["", "gpu", "a:b?:c"] {
            assert!(validate(text).unwrap_err().contains("key:value"), "{text:?}");
        }
    }
}
