//! Decides which agents may run a task, by host names, regions, attributes and placed instances.
//!
//! It implements two languages, and a task may use both:
//!
//! * **constraints** of apps and pods, `["rack", "GROUP_BY", "3"]`: [`constraint`]. Placed
//!   instances count.
//! * **expressions** of workflow tasks, `gpu:true` and `gpu:true?:cpu:true`: [`expression`]. They
//!   compare text attributes only.
//!
//! In addition, an agent outside the home region runs only tasks that name `@region` or `@zone` in
//! a constraint.
//!
//! `validate` reports an invalid constraint when a definition is posted. An invalid constraint that
//! bypassed this check rejects every agent, so that the task stays pending with a reason.
//!
//! [`agents`] stores the agents in an [`agent_table`]: the [`properties`] of each, and the [`fields`]
//! and values that they share. [`placement`] evaluates constraints on them.
//!
//! The plugin does no input or output, reads no clock and has no other failures.

use std::rc::Rc;

use transom_sdk::matcher::{Constraint, ConstraintError, Matcher};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_matcher};

mod agent_set;
pub mod agent_table;
pub mod agents;
pub mod classes;
pub mod constraint;
pub mod expression;
pub mod fields;
pub mod pattern;
pub mod placement;
pub mod properties;
pub mod tally;
pub mod value;

/// The plugin.
#[derive(Debug)]
pub struct Attributes {
    patterns: Rc<pattern::PatternCache>,
}

impl Plugin for Attributes {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "placement: constraints of apps, attribute constraints of workflow tasks",
            config_schema: None,
        }
    }

    fn configure(NoConfig {}: NoConfig) -> Result<Self, Vec<ConfigError>> {
        Ok(Self {
            patterns: Rc::default(),
        })
    }
}

impl Matcher for Attributes {
    type AgentSet = agents::Agents;

    fn validate(&self, constraints: &[Constraint]) -> Vec<ConstraintError> {
        let error_of = |constraint: &Constraint| match constraint {
            Constraint::Field(constraint) => {
                constraint::ParsedConstraint::parse(constraint, &self.patterns).err()
            }
            Constraint::Expression(text) => expression::validate(text).err(),
        };
        (0..)
            .zip(constraints)
            .filter_map(|(index, constraint)| {
                error_of(constraint).map(|message| ConstraintError {
                    constraint: index,
                    message,
                })
            })
            .collect()
    }

    fn agent_set(self: Rc<Self>, home_region: Option<String>) -> agents::Agents {
        agents::Agents::new(home_region, Rc::clone(&self.patterns))
    }
}

export_matcher!(Attributes);
