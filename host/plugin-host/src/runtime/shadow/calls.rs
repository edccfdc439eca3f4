//! The calls of extension points as values, so that they can be repeated on a shadow version. A
//! probe's attempt takes several calls and is replayed from its transcript instead.

use std::sync::Arc;

use super::{Comparable, RepeatableCall};
use crate::{
    runtime::{
        engine::{
            Reply,
            worlds::{
                bootstrap::{Bootstrap, Call as BootstrapCall},
                events::{Call as FilterCall, Filter, SharedQuery},
                matcher::{Call as MatcherCall, Matcher, Question},
            },
        },
        recording::ObservedCall,
    },
    worlds::{
        bootstrap::{Context, Prepared, Refusal},
        events::{Decision, Event},
        matcher::{Constraint, ConstraintError, Verdict},
        probe::Request,
        step::{Answer, Step},
    },
};

/// Validates constraints.
#[derive(Clone)]
pub(crate) struct Validate(pub(crate) Vec<Constraint>);

/// Asks which candidates fit.
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

/// A call of a matcher and its answer. `revision`: of the agent set at the call.
pub(crate) enum MatcherSample {
    Validate(Validate, Vec<ConstraintError>),
    Evaluate {
        call: Evaluate,
        revision: u64,
        serving: Vec<Verdict>,
    },
    Place {
        call: Place,
        revision: u64,
        serving: Vec<u32>,
    },
    SelectKills {
        call: SelectKills,
        revision: u64,
        serving: Vec<u32>,
    },
}

impl RepeatableCall<Matcher> for Validate {
    type Answer = Vec<ConstraintError>;

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let constraints = self.0;
        MatcherCall::Validate { constraints, reply }
    }

    fn sample(self, answer: Self::Answer) -> MatcherSample {
        MatcherSample::Validate(self, answer)
    }

    fn observed(self, errors: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Validate {
            constraints: self.0,
            errors,
        }
    }
}

impl RepeatableCall<Matcher> for Evaluate {
    type Answer = Vec<Verdict>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(has_agent_set_loaded(&self.0))
    }

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let question = self.0;
        MatcherCall::Evaluate { question, reply }
    }

    fn sample(self, serving: Self::Answer) -> MatcherSample {
        MatcherSample::Evaluate {
            revision: self.0.agent_set.revision(),
            call: self,
            serving,
        }
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

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let Place { question, count } = self;
        MatcherCall::Place {
            question,
            count,
            reply,
        }
    }

    fn sample(self, serving: Self::Answer) -> MatcherSample {
        MatcherSample::Place {
            revision: self.question.agent_set.revision(),
            call: self,
            serving,
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

    fn call(self, reply: Reply<Self::Answer>) -> MatcherCall {
        let SelectKills { question, count } = self;
        MatcherCall::SelectKills {
            question,
            count,
            reply,
        }
    }

    fn sample(self, serving: Self::Answer) -> MatcherSample {
        MatcherSample::SelectKills {
            revision: self.question.agent_set.revision(),
            call: self,
            serving,
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

/// Opens a query.
#[derive(Clone)]
pub(crate) struct Open(pub(crate) Arc<SharedQuery>);

/// Decides about events.
#[derive(Clone)]
pub(crate) struct Decide {
    pub(crate) view: Arc<SharedQuery>,
    pub(crate) events: Arc<[Event]>,
}

/// A call of a filter and its answer.
pub(crate) enum FilterSample {
    Open(Open, Result<(), String>),
    Decide(Decide, Result<Vec<Decision>, String>),
}

impl RepeatableCall<Filter> for Open {
    /// Or the text with which the component refuses the query.
    type Answer = Result<(), String>;

    fn preferred_instance(&self) -> Option<usize> {
        Some(self.0.id as usize)
    }

    fn call(self, reply: Reply<Self::Answer>) -> FilterCall {
        FilterCall::Open { view: self.0, reply }
    }

    fn sample(self, serving: Self::Answer) -> FilterSample {
        FilterSample::Open(self, serving)
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

    fn call(self, reply: Reply<Self::Answer>) -> FilterCall {
        let Decide { view, events } = self;
        FilterCall::Decide { view, events, reply }
    }

    fn sample(self, serving: Self::Answer) -> FilterSample {
        FilterSample::Decide(self, serving)
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
    type Answer = Result<Prepared, Refusal>;

    fn call(self, reply: Reply<Self::Answer>) -> BootstrapCall {
        let Prepare { context, script } = self;
        BootstrapCall {
            context,
            script,
            reply,
        }
    }

    fn sample(self, serving: Self::Answer) -> <Bootstrap as Comparable>::Sample {
        (self, serving)
    }

    fn observed(self, prepared: Option<Self::Answer>) -> ObservedCall {
        ObservedCall::Prepare {
            context: self.context,
            script: self.script,
            prepared,
        }
    }
}

/// An attempt with the answers to its steps, and its end.
pub(crate) struct ProbeSample {
    pub(crate) request: Arc<Request>,
    pub(crate) steps: Vec<(Step, Answer)>,
    pub(crate) end: Step,
}
