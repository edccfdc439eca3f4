//! Constraints of apps and pods: field, operator, operand.
//!
//! | operator | operand | an instance may go to an agent whose value of the field |
//! |---|---|---|
//! | `UNIQUE` | none | has no placed instance |
//! | `CLUSTER` | optional | equals the operand, or without one that of the first placed instance, if any |
//! | `GROUP_BY` | optional whole number | has fewer placed instances than its share, see [`Spread`] |
//! | `LIKE`, `UNLIKE` | regular expression | as a whole matches the operand, or does not match it |
//! | `MAX_PER` | whole number | has fewer placed instances than the operand |
//! | `IS` | text or number | equals the operand; numbers are compared after rounding to three decimals |
//!
//! An agent without the field satisfies only `UNLIKE`. An empty operand counts as none.

use transom_sdk::matcher::FieldConstraint;

use crate::fields::{Field, ValueTest};
use crate::pattern::{Pattern, PatternCache};
use crate::value::{self, FieldValue, ValueKind};

/// A valid constraint of an app or pod.
#[derive(Debug)]
pub struct ParsedConstraint {
    /// The field that it tests.
    pub field: Field,
    /// The test of the field's value.
    pub test: Test,
}

/// The test of a constraint.
#[derive(Debug)]
pub enum Test {
    /// Depends on the agent only.
    Agent(AgentTest),
    /// Depends on the agent and on the placed instances.
    Placed(PlacedTest),
}

/// A test of an agent's value, independent of the placed instances.
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

/// A test of how many placed instances have the same value of the field as the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedTest {
    /// `UNIQUE` and `MAX_PER`: fewer than this number of instances with the same value.
    FewerThan(u32),
    /// `CLUSTER` without an operand: all instances have the same value.
    SameValue,
    /// `GROUP_BY`, with the number of groups if the constraint has one.
    Spread(Option<u32>),
}

impl ParsedConstraint {
    /// Parses a constraint, or returns its error.
    pub fn parse(constraint: &FieldConstraint, patterns: &PatternCache) -> Result<Self, String> {
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
                None => Test::Placed(PlacedTest::FewerThan(1)),
                Some(operand) => return Err(format!("UNIQUE does not accept a value, found {operand:?}")),
            },
            "CLUSTER" => match operand {
                None => Test::Placed(PlacedTest::SameValue),
                Some(operand) => Test::Agent(AgentTest::Equal(operand.to_owned())),
            },
            "GROUP_BY" => Test::Placed(PlacedTest::Spread(
                operand.map(|n| parse_count("GROUP_BY", n)).transpose()?,
            )),
            "MAX_PER" => Test::Placed(PlacedTest::FewerThan(parse_count(
                "MAX_PER",
                operand.unwrap_or_default(),
            )?)),
            "LIKE" => Test::Agent(AgentTest::Like(parse_pattern(operand, patterns)?)),
            "UNLIKE" => Test::Agent(AgentTest::Unlike(parse_pattern(operand, patterns)?)),
            "IS" => Test::Agent(AgentTest::Is(parse_text_or_number(operand)?)),
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

fn parse_count(operator: &str, operand: &str) -> Result<u32, String> {
    operand.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        let or_none = if operator == "GROUP_BY" { " or none" } else { "" };
        format!("{operator} takes an integer value of at least 1{or_none}, found {operand:?}")
    })
}

fn parse_pattern(operand: Option<&str>, patterns: &PatternCache) -> Result<Pattern, String> {
    let operand = operand.ok_or("LIKE and UNLIKE require a non-empty, regular expression value")?;
    patterns
        .get(operand)
        .map_err(|error| format!("'{operand}' is not a valid regular expression: {error}"))
}

fn parse_text_or_number(operand: Option<&str>) -> Result<String, String> {
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
    pub fn passes_without_field(&self) -> bool {
        matches!(self, Self::Unlike(_))
    }
}

impl ValueTest for AgentTest {
    fn passes(&self, value: &FieldValue) -> bool {
        match self {
            Self::Equal(operand) => value.text == *operand,
            Self::Is(operand) => match value.kind {
                ValueKind::Text => value.text == *operand,
                ValueKind::Scalar => {
                    value::parse_scalar_text(operand).is_some_and(|operand| operand == value.text)
                }
                ValueKind::Other => false,
            },
            Self::Like(pattern) => pattern.matches(&value.text),
            Self::Unlike(pattern) => !pattern.matches(&value.text),
        }
    }
}

/// The limits of `GROUP_BY`, which spreads a task's instances over groups of agents.
///
/// With `g` groups and `n` instances a group's share is `n / g`; the remaining `n mod g` instances
/// go to groups that have their share, one each. A group that has no instance yet may get one while
/// fewer than `g` groups are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    groups: u32,
    share: u32,
    remainder: u32,
}

impl Spread {
    /// The limits for `instances` over `groups`. Zero groups count as one, because the value of the
    /// agent under evaluation is itself a group.
    pub fn new(groups: u32, instances: u32) -> Self {
        let groups = groups.max(1);
        Self {
            groups,
            share: instances / groups,
            remainder: instances % groups,
        }
    }

    /// Whether a group with `count` instances may get one more, with these totals of all groups.
    pub fn allows(self, count: u32, totals: SpreadTotals) -> bool {
        if count == 0 {
            return totals.used_groups < self.groups;
        }
        count < self.share || (count == self.share && totals.above_share < u64::from(self.remainder))
    }

    /// The totals of groups with these counts of instances.
    pub fn totals(self, counts: impl Iterator<Item = u32>) -> SpreadTotals {
        let mut totals = SpreadTotals::default();
        for count in counts {
            totals.used_groups = totals.used_groups.saturating_add(u32::from(count > 0));
            let above_share = u64::from(count.saturating_sub(self.share));
            totals.above_share = totals.above_share.saturating_add(above_share);
        }
        totals
    }

    /// Adds an instance to a group that has `count` of them.
    pub fn add_instance(self, count: u32, totals: &mut SpreadTotals) {
        totals.used_groups = totals.used_groups.saturating_add(u32::from(count == 0));
        totals.above_share = totals.above_share.saturating_add(u64::from(count >= self.share));
    }
}

/// The totals over all groups of a [`Spread`]. They are kept up to date, so that the test of one more
/// instance does not depend on the number of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadTotals {
    /// The groups with instances.
    used_groups: u32,
    /// The instances that groups have in addition to their share.
    above_share: u64,
}

#[cfg(test)]
mod tests {
    use transom_sdk::matcher::Value;

    use super::*;

    #[test]
    fn spread_allows_each_group_its_share_and_some_groups_one_more() {
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
            // With more groups than instances, a group gets one instance at most.
            (3, 1, 0, &[], true),
            (3, 2, 0, &[1], true),
            (3, 0, 0, &[], true),
            // Zero groups do not cause a division by zero.
            (0, 5, 0, &[], true),
            (0, 5, 4, &[4], true),
            (0, 5, 5, &[5], false),
        ];
        for (groups, instances, count, counts, expected) in cases {
            let spread = Spread::new(groups, instances);
            let totals = spread.totals(counts.iter().copied());
            let allowed = spread.allows(count, totals);
            assert_eq!(
                allowed, expected,
                "{instances} over {groups}: {count} of {counts:?}"
            );
            // The same totals, counted one by one.
            let mut counted = SpreadTotals::default();
            for total in counts {
                (0..*total).for_each(|before| spread.add_instance(before, &mut counted));
            }
            assert_eq!(counted, totals, "{instances} over {groups}: {counts:?}");
        }
    }

    #[test]
    fn is_operator_compares_values_by_their_type() {
        let cases = [
            (FieldValue::from_attribute(Value::Scalar(1.0)), "1.0", true),
            (FieldValue::from_attribute(Value::Scalar(1.0)), "1.00051", false),
            (
                FieldValue::from_attribute(Value::Text("1".to_owned())),
                "1.0",
                false,
            ),
            (FieldValue::from_attribute(Value::Text("a".to_owned())), "a", true),
            (
                FieldValue::from_attribute(Value::Set(vec!["a".to_owned()])),
                "{a}",
                false,
            ),
            (FieldValue::from_text("h1".to_owned()), "h1", true),
            (FieldValue::from_text("h1".to_owned()), "H1", false),
        ];
        for (value, operand, expected) in cases {
            assert_eq!(
                AgentTest::Is(operand.to_owned()).passes(&value),
                expected,
                "{value:?} IS {operand}"
            );
        }
    }

    #[test]
    fn an_agent_without_the_field_passes_only_unlike() {
        let pattern = PatternCache::default().get(".*").unwrap();
        assert!(AgentTest::Unlike(pattern.clone()).passes_without_field());
        assert!(!AgentTest::Like(pattern).passes_without_field());
        assert!(!AgentTest::Is(String::new()).passes_without_field());
        assert!(!AgentTest::Equal(String::new()).passes_without_field());
    }
}
