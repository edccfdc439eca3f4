//! The calls of extension points as values, so that they can be repeated on another version. A
//! probe's attempt takes several calls ([`super::attempt_sample`]).

use std::sync::Arc;

use super::RepeatableCall;
use crate::{
    documents::ObservedCall,
    runtime::{
        candidate::share::KeyHash,
        engine::{
            Reply,
            worlds::{
                bootstrap::{Bootstrap, Call as BootstrapCall},
                events::{Call as FilterCall, Filter},
                matcher::{Call as MatcherCall, Matcher, Question},
            },
        },
    },
    worlds::{
        bootstrap::{Context, Prepared, Rejection, Role},
        events::{Decision, Event, Query, SharedQuery},
        matcher::{Constraint, ConstraintError, Task, Verdict},
    },
};

/// Validates constraints.
#[derive(Clone)]
pub(crate) struct Validate(pub(crate) Vec<Constraint>);

/// Evaluates which candidates fit.
#[derive(Clone)]
pub(crate) struct Evaluate(pub(crate) Question);

/// Chooses agents for several instances.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) question: Question,
    pub(crate) count: u32,
}

/// Chooses the instances to kill.
#[derive(Clone)]
pub(crate) struct SelectKills {
    pub(crate) question: Question,
    pub(crate) count: u32,
}

impl RepeatableCall<Matcher> for Validate {
    type Answer = Vec<ConstraintError>;

    fn key(&self, hash: &mut KeyHash) {
        for constraint in &self.0 {
            match constraint {
                Constraint::Expression(text) => hash.part(text),
                Constraint::Field {
                    field,
                    operator,
                    operand,
                } => {
                    hash.part(field);
                    hash.part(operator);
                    hash.part(operand.as_deref().unwrap_or_default());
                }
            }
        }
    }

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let constraints = self.0;
        MatcherCall::Validate { constraints, reply }
    }

    fn observed(self, errors: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Validate {
            constraints: self.0,
            errors,
        }
    }
}

/// The canary's key for calls about the agents of a task: the run spec.
pub(crate) fn evaluate_key(task: &Task, hash: &mut KeyHash) {
    hash.part(&task.run_spec);
}

impl RepeatableCall<Matcher> for Evaluate {
    type Answer = Vec<Verdict>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(has_agent_set_loaded(&self.0))
    }

    fn revision(&self) -> Option<u64> {
        Some(self.0.agent_set.revision())
    }

    fn key(&self, hash: &mut KeyHash) {
        evaluate_key(&self.0.task, hash);
    }

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let question = self.0;
        MatcherCall::Evaluate { question, reply }
    }

    fn observed(self, verdicts: Option<Self::Answer>) -> ObservedCall {
        let Question {
            agent_set,
            task,
            candidates,
        } = self.0;
        ObservedCall::Evaluate {
            agents: agent_set.snapshot(),
            task,
            candidates,
            verdicts,
        }
    }
}

impl RepeatableCall<Matcher> for Place {
    type Answer = Vec<u32>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(has_agent_set_loaded(&self.question))
    }

    fn revision(&self) -> Option<u64> {
        Some(self.question.agent_set.revision())
    }

    fn key(&self, hash: &mut KeyHash) {
        hash.part(&self.question.task.run_spec);
    }

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let Place { question, count } = self;
        MatcherCall::Place {
            question,
            count,
            reply,
        }
    }

    fn observed(self, chosen: Option<Self::Answer>) -> ObservedCall {
        let Question {
            agent_set,
            task,
            candidates,
        } = self.question;
        ObservedCall::Place {
            agents: agent_set.snapshot(),
            task,
            candidates,
            count: self.count,
            chosen,
        }
    }
}

impl RepeatableCall<Matcher> for SelectKills {
    type Answer = Vec<u32>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(has_agent_set_loaded(&self.question))
    }

    fn revision(&self) -> Option<u64> {
        Some(self.question.agent_set.revision())
    }

    fn key(&self, hash: &mut KeyHash) {
        hash.part(&self.question.task.run_spec);
    }

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let SelectKills { question, count } = self;
        MatcherCall::SelectKills {
            question,
            count,
            reply,
        }
    }

    fn observed(self, chosen: Option<Self::Answer>) -> ObservedCall {
        let Question { agent_set, task, .. } = self.question;
        ObservedCall::SelectKills {
            agents: agent_set.snapshot(),
            task,
            count: self.count,
            chosen,
        }
    }
}

fn has_agent_set_loaded(question: &Question) -> usize {
    question.agent_set.id() as usize
}

/// The canary's key for a query. It is the same when a query is opened and when events are decided,
/// so that both calls go to the same version.
pub(crate) fn query_key(query: &Query, hash: &mut KeyHash) {
    for kind in &query.event_types {
        hash.part(kind);
    }
    hash.part(query.expression.as_deref().unwrap_or_default());
    hash.part(query.principal.as_deref().unwrap_or_default());
    for (name, value) in &query.extensions {
        hash.part(name);
        hash.part(value);
    }
}

/// Opens a query.
#[derive(Clone)]
pub(crate) struct Open(pub(crate) Arc<SharedQuery>);

/// Decides about events.
#[derive(Clone)]
pub(crate) struct Decide {
    pub(crate) view: Arc<SharedQuery>,
    pub(crate) events: Arc<[Event]>,
}

impl RepeatableCall<Filter> for Open {
    /// The error is the text with which the component rejects the query.
    type Answer = Result<(), String>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(self.0.id as usize)
    }

    fn key(&self, hash: &mut KeyHash) {
        query_key(&self.0.query, hash);
    }

    fn call(self, reply: Reply<Self::Answer>) -> FilterCall {
        FilterCall::Open { view: self.0, reply }
    }

    fn observed(self, opened: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Open { view: self.0, opened }
    }
}

impl RepeatableCall<Filter> for Decide {
    type Answer = Result<Vec<Decision>, String>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(self.view.id as usize)
    }

    fn key(&self, hash: &mut KeyHash) {
        query_key(&self.view.query, hash);
    }

    fn call(self, reply: Reply<Self::Answer>) -> FilterCall {
        let Decide { view, events } = self;
        FilterCall::Decide { view, events, reply }
    }

    fn observed(self, decisions: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Decide {
            view: self.view,
            events: self.events,
            decisions,
        }
    }
}

/// Prepares a container's script.
#[derive(Clone)]
pub(crate) struct Prepare {
    pub(crate) context: Context,
    pub(crate) script: Vec<u8>,
}

impl RepeatableCall<Bootstrap> for Prepare {
    type Answer = Result<Prepared, Rejection>;

    fn key(&self, hash: &mut KeyHash) {
        // The key omits the task's id, which changes when the container is started again.
        let Context {
            framework,
            role,
            number,
            ..
        } = &self.context;
        hash.part(framework);
        hash.part(match role {
            Role::Server => "server",
            Role::Agent => "agent",
            Role::Datastore => "datastore",
        });
        hash.number(*number);
    }

    fn call(self, reply: Reply<Self::Answer>) -> BootstrapCall {
        let Prepare { context, script } = self;
        BootstrapCall {
            context,
            script,
            reply,
        }
    }

    fn observed(self, prepared: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Prepare {
            context: self.context,
            script: self.script,
            prepared,
        }
    }
}
