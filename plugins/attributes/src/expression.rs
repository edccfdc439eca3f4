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

/// What an expression can match of an agent: its text attributes, made comparable.
#[derive(Debug, Default)]
pub struct Texts(Vec<(String, String)>);

impl Texts {
    /// From the names and values of an agent's text attributes.
    pub fn new<'agent>(texts: impl Iterator<Item = (&'agent str, &'agent str)>) -> Self {
        let comparable = |(name, value): (&str, &str)| {
            let value = value.replace(' ', "");
            (name.trim().to_lowercase(), value.trim_matches('"').to_lowercase())
        };
        Self(texts.map(comparable).collect())
    }

    fn contains(&self, pair: &Pair) -> bool {
        pair.0.as_ref().is_some_and(|pair| self.0.contains(pair))
    }
}

/// `key:value`, comparable. Without a colon there is nothing that it matches.
#[derive(Debug)]
struct Pair(Option<(String, String)>);

impl Pair {
    fn parse(text: &str) -> Self {
        Self(
            text.split_once(':')
                .map(|(key, value)| (key.to_lowercase(), value.to_lowercase())),
        )
    }
}

/// One entry, in the company of the task's others.
#[derive(Debug)]
pub struct Expression(Kind);

#[derive(Debug)]
enum Kind {
    Plain(Pair),
    /// The task asks for the first side itself.
    Nothing,
    Instead {
        of: Pair,
        this: Pair,
    },
}

impl Expression {
    /// Makes an entry ready; `all` are the task's constraints, this one among them.
    pub fn parse(text: &str, all: &[Constraint]) -> Self {
        let Some((of, this)) = text.split_once("?:") else {
            return Self(Kind::Plain(Pair::parse(text)));
        };
        // Only a plain entry can be equal to it: the text before the first `?:` has none.
        let asked_for = all
            .iter()
            .any(|other| matches!(other, Constraint::Expression(other) if other == of));
        Self(if asked_for {
            Kind::Nothing
        } else {
            Kind::Instead {
                of: Pair::parse(of),
                this: Pair::parse(this),
            }
        })
    }

    /// Whether an agent with these texts passes.
    pub fn matches(&self, texts: &Texts) -> bool {
        match &self.0 {
            Kind::Plain(pair) => texts.contains(pair),
            Kind::Nothing => true,
            Kind::Instead { of, this } => !texts.contains(of) && texts.contains(this),
        }
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
    use transom_sdk::{matcher::Value, testing::agent};

    use super::*;
    use crate::agents::AgentProperties;

    fn matches(constraints: &[&str], attributes: &[(&str, Value)]) -> bool {
        let agent = AgentProperties::new(agent(1, "h", attributes));
        let all: Vec<_> = constraints
            .iter()
            .map(|text| Constraint::Expression((*text).to_owned()))
            .collect();
        constraints
            .iter()
            .all(|text| Expression::parse(text, &all).matches(agent.texts()))
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
