//! Calls of world `event-filter`.

use serde_json::Value;
use transom_plugin_cases::{
    Answer, answer,
    events::{Body, Case, Expected, GivenEvent},
};

use crate::worlds::events::{Decision, Event, Query};

/// The maximum size in bytes of the replaced events of one call that are compared as JSON documents. A
/// document may take a hundred times the memory of its text. Further ones are compared as texts.
const MAX_TREE_BYTES: usize = 256 << 10;

/// Converts a call to a case. Without events it is the opening of the query.
pub(crate) fn case(query: &Query, events: &[Event]) -> Case {
    let events = events.iter().map(|it| GivenEvent {
        sequence: Some(it.sequence),
        kind: it.kind.clone(),
        subject: it.subject.clone(),
        body: Body::of(&it.body),
    });
    Case {
        event_types: query.event_types.clone(),
        filter: query.expression.clone(),
        principal: query.principal.clone(),
        extensions: query.extensions.clone(),
        events: events.collect(),
        expect: None,
        rejected: false,
    }
}

/// Converts an event of a case. `sequence`: its number if the case names none.
pub(crate) fn event(given: GivenEvent, sequence: u64) -> Event {
    Event {
        sequence: given.sequence.unwrap_or(sequence),
        body: given.body.into_text(&given.kind),
        kind: given.kind,
        subject: given.subject,
    }
}

/// Converts the decisions of one call. The wording of a rejection is left out.
pub(crate) fn answer_of(decisions: Result<Vec<Decision>, ()>) -> Answer {
    match decisions {
        Ok(decisions) => answer("expect", comparable(decisions)),
        Err(()) => answer("refused", true),
    }
}

/// Converts the decisions of one call, so that they can be compared with others.
fn comparable(decisions: Vec<Decision>) -> Vec<Expected> {
    let mut rest = MAX_TREE_BYTES;
    let convert = |decision| match decision {
        Decision::Pass => Expected::Pass,
        Decision::Drop => Expected::Drop,
        Decision::Replace(json) => match rest.checked_sub(json.len()) {
            Some(less) => {
                rest = less;
                // The engine lets only JSON objects through.
                Expected::Replace(serde_json::from_str(&json).unwrap_or_default())
            }
            None => Expected::Replace(Value::String(json)),
        },
    };
    decisions.into_iter().map(convert).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_events_become_documents_up_to_a_limit() {
        let replaced = |blanks: usize| Decision::Replace(format!("{}{{}}", " ".repeat(blanks)));
        let half = MAX_TREE_BYTES / 2;
        let answers = comparable(vec![replaced(half), replaced(half), replaced(0), Decision::Drop]);
        let is_document: Vec<Option<bool>> = answers
            .iter()
            .map(|it| match it {
                Expected::Replace(value) => Some(value.is_object()),
                Expected::Pass | Expected::Drop => None,
            })
            .collect();
        assert_eq!(is_document, [Some(true), Some(false), Some(true), None]);
    }
}
