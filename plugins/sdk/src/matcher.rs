//! `attribute-matcher`: decides which agents may run a task. See the package `transom:matcher`.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bindings::exports::transom::matcher::matcher as wit;
use crate::plugin::{Exported, Installed, Plugin, installed};

pub use wit::{
    Agent, Attribute, Candidate, Constraint, ConstraintError, FieldConstraint, Task, Value, Verdict,
};

/// A plugin of the world `attribute-matcher`.
pub trait Matcher: Plugin {
    /// The plugin's copy of the cluster's agents.
    type AgentSet: AgentSet;

    /// Returns the errors of a definition's constraints; empty if they are valid. Called when a
    /// definition is posted.
    fn validate(&self, constraints: &[Constraint]) -> Vec<ConstraintError>;

    /// Creates an empty agent set. `home_region`: the master's region.
    fn agent_set(self: Rc<Self>, home_region: Option<String>) -> Self::AgentSet;
}

/// The cluster's agents, loaded once for many calls.
pub trait AgentSet: 'static {
    /// Adds agents or replaces those with the same handle, and removes `gone`.
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>);

    /// Returns for each candidate, in order, whether it may run one more instance.
    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict>;

    /// Selects agents for up to `count` further instances, as if they were placed one after the
    /// other.
    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32>;

    /// Selects `count` of the placed instances to kill, as indices into [`Task::placed`], which is
    /// in the host's order of preference. If the result has fewer indices, the host selects the
    /// rest in its order. The default implementation leaves the whole selection to the host.
    fn select_kills(&mut self, _task: &Task, _count: u32) -> Vec<u32> {
        Vec::new()
    }
}

impl<P: Matcher + Installed> wit::Guest for Exported<P> {
    type AgentSet = ExportedAgentSet<P>;

    fn validate(constraints: Vec<Constraint>) -> Vec<ConstraintError> {
        installed::<P>().validate(&constraints)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct ExportedAgentSet<P: Matcher>(RefCell<P::AgentSet>);

impl<P: Matcher + Installed> wit::GuestAgentSet for ExportedAgentSet<P> {
    fn new(home_region: Option<String>) -> Self {
        Self(RefCell::new(installed::<P>().agent_set(home_region)))
    }

    fn update(&self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.0.borrow_mut().update(changed, gone);
    }

    fn evaluate(&self, task: Task, candidates: Vec<Candidate>) -> Vec<Verdict> {
        self.0.borrow_mut().evaluate(&task, &candidates)
    }

    fn place(&self, task: Task, candidates: Vec<Candidate>, count: u32) -> Vec<u32> {
        self.0.borrow_mut().place(&task, &candidates, count)
    }

    fn select_kills(&self, task: Task, count: u32) -> Vec<u32> {
        self.0.borrow_mut().select_kills(&task, count)
    }
}

/// Makes the crate a component of the world `attribute-matcher`: `export_matcher!(MyMatcher)`,
/// once, in a `cdylib`.
#[macro_export]
macro_rules! export_matcher {
    ($plugin:ty) => {
        $crate::__export!(
            $plugin,
            MATCHER,
            "component-type:transom:attribute-matcher",
            matcher::matcher,
            __export_transom_matcher_matcher_0_1_0_cabi
        );
    };
}
