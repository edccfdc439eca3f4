//! Events before they are numbered, and their texts.

use std::sync::Arc;

use serde_json::{Value, json};
use transom_plugin_host::events::MAX_EVENT_BYTES;

use crate::deploy::PlanTexts;
use crate::ids::SpecId;
use crate::time::Moment;

/// An event before it is numbered.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: &'static str,
    pub(crate) subject: Option<String>,
    /// The document, without the plan.
    pub(crate) body: Value,
    /// The plan of the deployment that it reports on.
    pub(crate) plan: Option<Arc<PlanTexts>>,
    /// The texts, if they are written already.
    pub(super) bodies: Option<Result<EventBodies, usize>>,
}

impl Draft {
    pub(super) fn new(kind: &'static str, subject: Option<&SpecId>, mut body: Value) -> Self {
        if let Some(members) = body.as_object_mut() {
            members.insert("eventType".to_owned(), json!(kind));
            members.insert("timestamp".to_owned(), json!(Moment::now()));
        }
        Self {
            kind,
            subject: subject.map(ToString::to_string),
            body,
            plan: None,
            bodies: None,
        }
    }

    /// Writes the texts of a large event before it is published.
    pub(crate) fn serialized(self) -> Self {
        Self {
            bodies: Some(EventBodies::of(&self)),
            ..self
        }
    }
}

/// Precedes the plan, the last member of a document.
const PLAN_MEMBER: &str = r#","plan":"#;

/// An event's bodies as text.
#[derive(Clone, Debug, Default)]
pub(super) struct EventBodies {
    pub(super) body: String,
    pub(super) light: Option<String>,
}

impl EventBodies {
    /// # Errors
    /// The bytes of the longer of the two, if they are more than [`MAX_EVENT_BYTES`].
    pub(super) fn of(draft: &Draft) -> Result<Self, usize> {
        let body = to_text(&draft.body);
        let within_limit = |bytes: usize| (bytes <= MAX_EVENT_BYTES).then_some(()).ok_or(bytes);
        let Some(plan) = &draft.plan else {
            within_limit(body.len())?;
            return Ok(Self { body, light: None });
        };
        within_limit(body.len() + PLAN_MEMBER.len() + plan.body.len().max(plan.light.len()))?;
        // The document is an object with members.
        let others = body.strip_suffix('}').unwrap_or(&body);
        let with = |plan: &str| format!("{others}{PLAN_MEMBER}{plan}}}");
        Ok(Self {
            body: with(&plan.body),
            light: Some(with(&plan.light)),
        })
    }
}

/// Bodies consist of texts and numbers, so serialising them cannot fail.
fn to_text(body: &Value) -> String {
    body.to_string()
}
