//! The plan of a deployment as events show it.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::{Map, json};

use super::plan::{Action, Deployment, Step};
use crate::settings::PlanForm;
use crate::time::Moment;

/// The texts of a plan. Each event of a deployment contains the whole plan, so they are written once
/// and shared by its events.
#[derive(Debug)]
pub(crate) struct PlanTexts {
    pub(crate) form: PlanForm,
    /// In the configured form.
    pub(crate) body: String,
    /// Upstream's steps alone, which `plan-format=light` selects.
    pub(crate) light: String,
}

/// The place of the texts, shared by all steps of a deployment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTexts(Arc<OnceLock<Arc<PlanTexts>>>);

impl PartialEq for SharedTexts {
    /// The texts follow from the deployment.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Serialize)]
struct Plan<'a, S> {
    id: &'a str,
    version: Moment,
    steps: S,
    /// Empty objects, which some clients require.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Map<String, serde_json::Value>>,
}

impl Deployment {
    /// The texts of its plan.
    pub(crate) fn plan_texts(&self, form: PlanForm) -> Arc<PlanTexts> {
        let write = || Arc::new(PlanTexts::of(self, form));
        let texts = self.texts.0.get_or_init(write);
        if texts.form == form {
            Arc::clone(texts)
        } else {
            write()
        }
    }
}

impl PlanTexts {
    fn of(deployment: &Deployment, form: PlanForm) -> Self {
        let light = text(deployment, &*deployment.steps, false);
        let body = match form {
            PlanForm::Flat | PlanForm::Both => {
                let actions = deployment.steps.iter().flat_map(|step: &Step| &step.actions);
                let entry = |action: &Action| {
                    #[cfg(test)]
                    crate::testing::operations::count();
                    let mut entry = json!(action);
                    if form == PlanForm::Both {
                        entry["actions"] = json!([action]);
                    }
                    entry
                };
                let steps: Vec<_> = actions.map(entry).collect();
                text(deployment, &steps, form == PlanForm::Both)
            }
            PlanForm::Upstream => text(deployment, &*deployment.steps, true),
        };
        Self { form, body, light }
    }
}

fn text<S: Serialize + ?Sized>(deployment: &Deployment, steps: &S, with_groups: bool) -> String {
    let plan = Plan {
        id: &deployment.id,
        version: deployment.version,
        steps,
        original: with_groups.then(Map::new),
        target: with_groups.then(Map::new),
    };
    // Serialisation into memory cannot fail: all keys are texts.
    serde_json::to_string(&plan).unwrap_or_default()
}
