//! Runs cases of world `event-filter`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use transom_plugin_cases::{Answer, events::Case};

use super::{CaseAgents, PreparedCase, Testable, ask};
use crate::{
    documents::events::{answer_of, event},
    runtime::engine::{
        Instance,
        worlds::events::{Call, Filter},
    },
    worlds::events::{Decision, Event, Query, SharedQuery},
};

/// A query, and events to decide. Instances keep the query open until this is dropped.
pub(crate) struct Question {
    view: Arc<SharedQuery>,
    events: Arc<[Event]>,
}

/// Numbers the views, which have to be unique within an instance.
static NEXT_VIEW_ID: AtomicU64 = AtomicU64::new(0);

impl Testable for Filter {
    type Case = Case;
    type Question = Question;
    /// The error is the text with which the component rejected the query.
    type Output = Result<Vec<Decision>, String>;

    fn prepare_case(mut case: Case, _: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let expected = case.take_expected();
        let query = Query {
            event_types: case.event_types,
            expression: case.filter,
            principal: case.principal,
            extensions: case.extensions,
        };
        let id = NEXT_VIEW_ID.fetch_add(1, Relaxed);
        let question = Question {
            view: Arc::new(SharedQuery { id, query }),
            events: case
                .events
                .into_iter()
                .zip(1..)
                .map(|(it, sequence)| event(it, sequence))
                .collect(),
        };
        Ok(PreparedCase { question, expected })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<()>,
        question: &Question,
    ) -> Result<Self::Output, String> {
        let (view, events) = (Arc::clone(&question.view), Arc::clone(&question.events));
        ask(instance, shared, |reply| Call::Decide { view, events, reply }).await
    }

    fn to_answer(_question: &Question, found: Self::Output) -> Answer {
        answer_of(found.map_err(drop))
    }
}
