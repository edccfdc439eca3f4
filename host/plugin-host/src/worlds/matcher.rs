//! Placement: the types of the `attribute-matcher` component.
//!
//! The types mirror the WIT package `transom:matcher`. The types that occur many times in one call
//! are passed to components without a conversion.

use std::fmt;

use wasmtime::component::{ComponentType, Lower};

/// The value of an agent's attribute.
#[derive(Clone, Debug, PartialEq, ComponentType, Lower)]
#[component(variant)]
pub enum AttributeValue {
    /// Text.
    #[component(name = "text")]
    Text(String),
    /// A number.
    #[component(name = "scalar")]
    Scalar(f64),
    /// Inclusive ranges.
    #[component(name = "ranges")]
    Ranges(Vec<(u64, u64)>),
    /// A set of texts.
    #[component(name = "set")]
    Set(Vec<String>),
}

/// A named attribute of an agent.
#[derive(Clone, Debug, PartialEq, ComponentType)]
#[component(record)]
pub struct Attribute {
    /// The attribute's name.
    pub name: String,
    /// Its value.
    pub value: AttributeValue,
}

/// An agent of the cluster.
#[derive(Clone, Debug, PartialEq, ComponentType)]
#[component(record)]
pub struct Agent {
    /// The host's number for this agent. It is never reused for another agent.
    pub handle: u32,
    /// The cluster's id.
    pub id: String,
    /// Its host name.
    pub hostname: String,
    /// The fault domain's region.
    pub region: Option<String>,
    /// The fault domain's zone.
    pub zone: Option<String>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Fields of later versions of the interface.
    pub extensions: Vec<(String, String)>,
}

/// A constraint on agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// A workflow task's attribute entry, as written: `gpu:true`, `gpu:true?:cpu:true`.
    Expression(String),
    /// `["rack", "GROUP_BY", "3"]`. A plain host name is `@hostname`, `IS`, the name.
    Field {
        /// Attribute name, or `@hostname`, `@region`, `@zone`.
        field: String,
        /// Upper case: `UNIQUE`, `CLUSTER`, `GROUP_BY`, ...
        operator: String,
        /// The third element, when there is one.
        operand: Option<String>,
    },
}

/// On one line: `rack UNIQUE`, `rack LIKE a|b`, or the expression.
impl fmt::Display for Constraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expression(text) => formatter.write_str(text),
            Self::Field {
                field,
                operator,
                operand,
            } => {
                write!(formatter, "{field} {operator}")?;
                operand
                    .iter()
                    .try_for_each(|operand| write!(formatter, " {operand}"))
            }
        }
    }
}

/// The reason why a constraint is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstraintError {
    /// Index into the constraints.
    pub constraint: u32,
    /// One line for the definition's author.
    pub message: String,
}

/// The task to place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Id of the app or pod, or of the workflow task.
    pub run_spec: String,
    /// Total number of wanted instances.
    pub instances: u32,
    /// The constraints. An agent has to satisfy all of them.
    pub constraints: Vec<Constraint>,
    /// Handles of the agents that run an instance now. An agent with two instances occurs twice.
    /// All of them are in the agent set.
    pub placed: Vec<u32>,
    /// [`ENDING`](Self::ENDING), and fields of later versions of the interface.
    pub extensions: Vec<(String, String)>,
}

impl Task {
    /// Key in [`extensions`](Self::extensions). Its value lists the agents of
    /// [`placed`](Self::placed) whose instance is being ended, as handles separated by spaces.
    /// These instances still run, so a constraint such as `UNIQUE` has to count them; they end
    /// soon, so a spread over places may ignore them.
    pub const ENDING: &str = "ending";
}

/// An agent with enough resources for the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The agent's handle.
    pub agent: u32,
    /// How many more instances its resources allow; at least 1.
    pub capacity: u32,
}

/// The matcher's verdict on one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType)]
#[component(variant)]
pub enum Verdict {
    /// One more instance may go there.
    #[component(name = "fits")]
    Fits,
    /// Index of the constraint that the agent does not satisfy.
    #[component(name = "refused")]
    Refused(u32),
}
