//! Constraints of apps and pods: field, operator, operand.
//!
//! | operator | operand | an instance may go to an agent whose value of the field |
//! |---|---|---|
//! | `UNIQUE` | none | no placed instance has |
//! | `CLUSTER` | optional | is the operand; without one: is the first placed instance's, any when none is placed |
//! | `GROUP_BY` | optional whole number | has not got more than its share, see [`Spread`] |
//! | `LIKE`, `UNLIKE` | regular expression | matches it as a whole, or does not |
//! | `MAX_PER` | whole number | fewer placed instances than that have |
//! | `IS` | text or number | is the operand; numbers are compared after rounding to three decimals |
//!
//! An agent without the field matches nothing but `UNLIKE`. No operand and an empty one are the
//! same.

use transom_sdk::matcher::{FieldConstraint, Value};

use crate::fields::{Field, ValueTest};
use crate::pattern::{Cache, Pattern};
use crate::value;

/// A value of an agent's field: its text form, and its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// What it is compared by.
    pub text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Scalar,
    Other,
}

impl Found {
    /// A host name, region or zone.
    pub fn name(text: String) -> Self {
        Self {
            text,
            kind: Kind::Text,
        }
    }

    /// An attribute.
    pub fn attribute(found: Value) -> Self {
        let kind = match &found {
            Value::Text(_) => Kind::Text,
            Value::Scalar(_) => Kind::Scalar,
            Value::Ranges(_) | Value::Set(_) => Kind::Other,
        };
        Self {
            text: value::text(found),
            kind,
        }
    }

    /// Whether the agent's value is a text.
    pub fn is_text(&self) -> bool {
        self.kind == Kind::Text
    }
}

/// A constraint made ready.
#[derive(Debug)]
pub struct Rule {
    /// What it looks at.
    pub field: Field,
    /// The test of its value.
    pub test: Test,
}

/// What a constraint asks.
#[derive(Debug)]
pub enum Test {
    /// Something of the agent alone.
    Agent(AgentTest),
    /// Something of the instances that are placed.
    Placed(PlacedTest),
}

/// What an agent answers alone.
#[derive(Debug)]
pub enum AgentTest {
    /// `CLUSTER` with an operand.
    Equal(String),
    /// `IS`
    Is(String),
    /// `LIKE`
    Like(Pattern),
    /// `UNLIKE`
    Unlike(Pattern),
}

/// What depends on the instances that are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedTest {
    /// `UNIQUE` and `MAX_PER`: fewer than so many with the same value.
    Fewer(u32),
    /// `CLUSTER` without an operand.
    Together,
    /// `GROUP_BY` with the number of groups, where one is given.
    Spread(Option<u32>),
}

impl Rule {
    /// Compiles a constraint, or returns its error.
    pub fn parse(constraint: &FieldConstraint, patterns: &Cache) -> Result<Self, String> {
        let FieldConstraint {
            field,
            operator,
            operand,
        } = constraint;
        let operand = operand.as_deref().filter(|operand| !operand.is_empty());
        if operator.is_empty() {
            return Err("Each constraint must have either 2 or 3 fields: field, operator and, where the operator takes one, a \
                        value"
                .to_owned());
        }
        if field.is_empty() {
            return Err("illegal constraint specification: the field is empty; expected hostname, @region, @zone or the \
                        name of an attribute"
                .to_owned());
        }
        let test = match operator.as_str() {
            "UNIQUE" => match operand {
                None => Test::Placed(PlacedTest::Fewer(1)),
                Some(operand) => return Err(format!("UNIQUE does not accept a value, found {operand:?}")),
            },
            "CLUSTER" => match operand {
                None => Test::Placed(PlacedTest::Together),
                Some(operand) => Test::Agent(AgentTest::Equal(operand.to_owned())),
            },
            "GROUP_BY" => Test::Placed(PlacedTest::Spread(
                operand.map(|n| count("GROUP_BY", n)).transpose()?,
            )),
            "MAX_PER" => Test::Placed(PlacedTest::Fewer(count("MAX_PER", operand.unwrap_or_default())?)),
            "LIKE" => Test::Agent(AgentTest::Like(pattern(operand, patterns)?)),
            "UNLIKE" => Test::Agent(AgentTest::Unlike(pattern(operand, patterns)?)),
            "IS" => Test::Agent(AgentTest::Is(text_or_number(operand)?)),
            other => {
                return Err(format!(
                    "illegal constraint specification: no operator {other:?}; expected UNIQUE, CLUSTER, GROUP_BY, LIKE, \
                     UNLIKE, MAX_PER or IS"
                ));
            }
        };
        Ok(Self {
            field: Field::parse(field),
            test,
        })
    }
}

fn count(operator: &str, operand: &str) -> Result<u32, String> {
    operand.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        let none = if operator == "GROUP_BY" { " or none" } else { "" };
        format!("{operator} takes an integer value of at least 1{none}, found {operand:?}")
    })
}

fn pattern(operand: Option<&str>, patterns: &Cache) -> Result<Pattern, String> {
    let operand = operand.ok_or("LIKE and UNLIKE require a non-empty, regular expression value")?;
    patterns
        .get(operand)
        .map_err(|error| format!("'{operand}' is not a valid regular expression: {error}"))
}

fn text_or_number(operand: Option<&str>) -> Result<String, String> {
    match operand {
        None => Err("IS requires a value".to_owned()),
        Some(operand) if operand.starts_with(['[', '{']) => Err(format!(
            "IS only supports Mesos text and float values, found {operand:?}"
        )),
        Some(operand) => Ok(operand.to_owned()),
    }
}

impl AgentTest {
    /// Whether an agent without the field passes.
    pub fn passes_without(&self) -> bool {
        matches!(self, Self::Unlike(_))
    }
}

impl ValueTest for AgentTest {
    fn passes(&self, found: &Found) -> bool {
        match self {
            Self::Equal(operand) => found.text == *operand,
            Self::Is(operand) => match found.kind {
                Kind::Text => found.text == *operand,
                Kind::Scalar => value::scalar_of(operand).is_some_and(|operand| operand == found.text),
                Kind::Other => false,
            },
            Self::Like(pattern) => pattern.matches(&found.text),
            Self::Unlike(pattern) => !pattern.matches(&found.text),
        }
    }
}

/// `GROUP_BY`: so many instances over so many groups, each group's share and what is left over.
///
/// With `g` groups and `n` instances a group's share is `n / g`; the `n mod g` instances left over
/// go to groups that have their share, one each. A group that has no instance yet may get one while
/// fewer than `g` groups are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    groups: u32,
    share: u32,
    over: u32,
}

impl Spread {
    /// For `instances` in all. No groups at all count as one: the value at hand is itself a group.
    pub fn new(groups: u32, instances: u32) -> Self {
        let groups = groups.max(1);
        Self {
            groups,
            share: instances / groups,
            over: instances % groups,
        }
    }

    /// Whether one more may go to a group that has `here`, when the groups in use have `counts`.
    pub fn allows(self, here: u32, counts: impl Iterator<Item = u32> + Clone) -> bool {
        if here == 0 {
            return counts.filter(|count| *count > 0).count() < self.groups as usize;
        }
        let used: u64 = counts
            .map(|count| u64::from(count.saturating_sub(self.share)))
            .sum();
        here < self.share || (here == self.share && used < u64::from(self.over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_allows_each_group_its_share_and_some_one_more() {
        // Groups, instances, this group's count, all counts.
        let cases: [(u32, u32, u32, &[u32], bool); 15] = [
            (2, 5, 2, &[2], true),
            (2, 5, 3, &[3], false),
            (2, 5, 1, &[3, 1], true),
            (2, 5, 2, &[3, 2], false),
            (2, 5, 0, &[1, 1], false),
            (4, 5, 1, &[1], true),
            (4, 5, 2, &[2], false),
            (4, 5, 1, &[2, 1], false),
            (4, 5, 0, &[2, 1], true),
            // More groups than instances: one each.
            (3, 1, 0, &[], true),
            (3, 2, 0, &[1], true),
            (3, 0, 0, &[], true),
            // Never a division by zero.
            (0, 5, 0, &[], true),
            (0, 5, 4, &[4], true),
            (0, 5, 5, &[5], false),
        ];
        for (groups, instances, here, counts, expected) in cases {
            let allowed = Spread::new(groups, instances).allows(here, counts.iter().copied());
            assert_eq!(
                allowed, expected,
                "{instances} over {groups}: {here} of {counts:?}"
            );
        }
    }

    #[test]
    fn is_operator_compares_values_by_their_type() {
        let cases = [
            (Found::attribute(Value::Scalar(1.0)), "1.0", true),
            (Found::attribute(Value::Scalar(1.0)), "1.00051", false),
            (Found::attribute(Value::Text("1".to_owned())), "1.0", false),
            (Found::attribute(Value::Text("a".to_owned())), "a", true),
            (Found::attribute(Value::Set(vec!["a".to_owned()])), "{a}", false),
            (Found::name("h1".to_owned()), "h1", true),
            (Found::name("h1".to_owned()), "H1", false),
        ];
        for (found, operand, expected) in cases {
            assert_eq!(
                AgentTest::Is(operand.to_owned()).passes(&found),
                expected,
                "{found:?} IS {operand}"
            );
        }
    }

    #[test]
    fn an_agent_without_the_field_passes_only_unlike() {
        let pattern = Cache::default().get(".*").unwrap();
        assert!(AgentTest::Unlike(pattern.clone()).passes_without());
        assert!(!AgentTest::Like(pattern).passes_without());
        assert!(!AgentTest::Is(String::new()).passes_without());
        assert!(!AgentTest::Equal(String::new()).passes_without());
    }
}
