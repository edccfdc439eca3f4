//! Constraints of workflow tasks: `key:value`, and `A?:B`.
//!
//! A plain entry is split at its first colon; key and value are compared without regard to case and
//! are not trimmed. Only an agent's text attributes count: their names trimmed, their values
//! without blanks and without quotes around them.
//!
//! An entry `A?:B` is split at its first `?:`. It has no effect when the text A is among the plain
//! entries; otherwise the agent must not match A and must match B. So `gpu:true?:cpu:true` keeps
//! the agents with a GPU free and uses those without, unless the task itself requests one.

use transom_sdk::matcher::Constraint;

use crate::agents::AgentProperties;
use crate::constraint::Found;
use crate::fields::{Field, FieldTest, Fields, ValueTest};

/// One entry, in the company of the task's others, for the agents that are known.
#[derive(Debug)]
pub struct Expression<'agents>(Kind<'agents>);

#[derive(Debug)]
enum Kind<'agents> {
    Plain(Pair<'agents>),
    /// The task asks for the first side itself.
    Nothing,
    Instead {
        of: Pair<'agents>,
        this: Pair<'agents>,
    },
}

/// `key:value`: tests of the attributes with that key. Without a colon there is nothing that it
/// matches.
#[derive(Debug)]
struct Pair<'agents>(Vec<FieldTest<'agents, TextTest>>);

/// A text that is compared without regard to case, blanks and quotes.
#[derive(Debug)]
struct TextTest(String);

impl<'agents> Expression<'agents> {
    /// Makes an entry ready; `all` are the task's constraints, this one among them.
    pub fn parse(text: &str, all: &[Constraint], fields: &'agents Fields) -> Self {
        let Some((of, this)) = text.split_once("?:") else {
            return Self(Kind::Plain(Pair::parse(text, fields)));
        };
        // Only a plain entry can be equal to it: the text before the first `?:` has none.
        let asked_for = all
            .iter()
            .any(|other| matches!(other, Constraint::Expression(other) if other == of));
        Self(if asked_for {
            Kind::Nothing
        } else {
            Kind::Instead {
                of: Pair::parse(of, fields),
                this: Pair::parse(this, fields),
            }
        })
    }

    /// Whether the agent passes.
    pub fn matches(&self, agent: &AgentProperties) -> bool {
        match &self.0 {
            Kind::Plain(pair) => pair.matches(agent),
            Kind::Nothing => true,
            Kind::Instead { of, this } => !of.matches(agent) && this.matches(agent),
        }
    }
}

impl<'agents> Pair<'agents> {
    fn parse(text: &str, fields: &'agents Fields) -> Self {
        let Some((key, value)) = text.split_once(':') else {
            return Self(Vec::new());
        };
        let (key, value) = (key.to_lowercase(), value.to_lowercase());
        let with_key = |field: &Field| match field {
            Field::Attribute(name) => name.trim().to_lowercase() == key,
            Field::Hostname | Field::Region | Field::Zone => false,
        };
        let tests = fields.iter().filter(|(field, _)| with_key(field));
        Self(
            tests
                .filter_map(|(_, field)| FieldTest::new(fields, field, TextTest(value.clone())))
                .collect(),
        )
    }

    fn matches(&self, agent: &AgentProperties) -> bool {
        self.0.iter().any(|test| {
            let mut properties = agent.iter().filter(|property| property.field == test.field);
            properties.any(|property| test.passes(property.value))
        })
    }
}

impl ValueTest for TextTest {
    fn passes(&self, found: &Found) -> bool {
        if !found.is_text() {
            return false;
        }
        let text = found.text.replace(' ', "");
        text.trim_matches('"').to_lowercase() == self.0
    }
}

/// Returns an error for an entry that no agent could satisfy.
pub fn check(text: &str) -> Result<(), String> {
    let needed = text.split_once("?:").map_or(text, |(_, this)| this);
    if needed.contains(':') {
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
    use crate::agents::Agents;

    fn matches(constraints: &[&str], attributes: &[(&str, Value)]) -> bool {
        let mut agents = Agents::new(None, Rc::default());
        agents.take_up(vec![agent(1, "h", attributes)], Vec::new());
        let all: Vec<_> = constraints
            .iter()
            .map(|text| Constraint::Expression((*text).to_owned()))
            .collect();
        constraints
            .iter()
            .all(|text| Expression::parse(text, &all, agents.fields()).matches(agents.get(1).unwrap()))
    }

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    /// Entries, attributes, whether they match.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, Value)], bool);

    #[test]
    fn entries_match_as_measured() {
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
            // Only text attributes.
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
            // The text itself, not what it means.
            (
                &["GPU:true", "gpu:true?:cpu:true"],
                &[("gpu", text("true"))],
                false,
            ),
            // A first side without a colon matches nothing, so the second decides.
            (&["gpu?:cpu:true"], &[("cpu", text("true"))], true),
            // Split at the first `?:`; the rest is one value.
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
    fn expression_that_matches_nothing_is_refused() {
        for text in ["a:b", "a:b?:c:d", ":", "a?:c:d"] {
            assert!(check(text).is_ok(), "{text:?}");
        }
        for text in ["", "gpu", "a:b?:c"] {
            assert!(check(text).unwrap_err().contains("key:value"), "{text:?}");
        }
    }
}
