//! The steps of a deployment.
//!
//! First, one step stops all removed apps. Then one step starts all new apps, with no instances
//! yet. Then one step for each layer of dependencies, dependencies first, scales or restarts apps.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_common::trace::TraceContext;

use super::layers::{Cycle, Layers};
use super::{Canary, Change, SharedTexts};
use crate::ids::{GroupId, SpecId};
use crate::model::{Effect, Spec};
use crate::settings::OnDeadline;
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::EditedSpec;

/// An action on one app or pod in a step, in the API's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ActionDocument", into = "ActionDocument")]
#[schemars(rename = "DeploymentAction")]
pub(crate) struct Action {
    pub(crate) kind: ActionKind,
    pub(crate) id: SpecId,
    pub(crate) is_pod: bool,
}

/// The kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionKind {
    Start,
    Stop,
    Scale,
    Restart,
}

/// The API's form of an action.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum ActionDocument {
    App { action: AppAction, app: SpecId },
    Pod { action: PodAction, pod: SpecId },
}

/// The API's names of actions on apps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::enum_variant_names, reason = "these are the API's own names")]
enum AppAction {
    StartApplication,
    StopApplication,
    ScaleApplication,
    RestartApplication,
}

/// The API's names of actions on pods.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::enum_variant_names, reason = "these are the API's own names")]
enum PodAction {
    StartPod,
    StopPod,
    ScalePod,
    RestartPod,
}

impl From<ActionDocument> for Action {
    fn from(document: ActionDocument) -> Self {
        let (kind, id, is_pod) = match document {
            ActionDocument::App { action, app } => (action.kind(), app, false),
            ActionDocument::Pod { action, pod } => (action.kind(), pod, true),
        };
        Self { kind, id, is_pod }
    }
}

impl From<Action> for ActionDocument {
    fn from(Action { kind, id, is_pod }: Action) -> Self {
        if is_pod {
            let action = match kind {
                ActionKind::Start => PodAction::StartPod,
                ActionKind::Stop => PodAction::StopPod,
                ActionKind::Scale => PodAction::ScalePod,
                ActionKind::Restart => PodAction::RestartPod,
            };
            Self::Pod { action, pod: id }
        } else {
            let action = match kind {
                ActionKind::Start => AppAction::StartApplication,
                ActionKind::Stop => AppAction::StopApplication,
                ActionKind::Scale => AppAction::ScaleApplication,
                ActionKind::Restart => AppAction::RestartApplication,
            };
            Self::App { action, app: id }
        }
    }
}

impl AppAction {
    fn kind(self) -> ActionKind {
        match self {
            Self::StartApplication => ActionKind::Start,
            Self::StopApplication => ActionKind::Stop,
            Self::ScaleApplication => ActionKind::Scale,
            Self::RestartApplication => ActionKind::Restart,
        }
    }
}

impl PodAction {
    fn kind(self) -> ActionKind {
        match self {
            Self::StartPod => ActionKind::Start,
            Self::StopPod => ActionKind::Stop,
            Self::ScalePod => ActionKind::Scale,
            Self::RestartPod => ActionKind::Restart,
        }
    }
}

/// Actions that run concurrently; the next step starts when all of them are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeploymentStep")]
pub(crate) struct Step {
    pub(crate) actions: Vec<Action>,
}

/// A stored deployment with its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) id: String,
    pub(crate) version: Moment,
    /// Shared with the same deployment in earlier steps, as is `change`.
    pub(crate) steps: Arc<Vec<Step>>,
    /// Index of the current step; the number of steps when all are done.
    pub(crate) current: usize,
    /// The change that it carries out, and that a revert undoes. Its apps and pods are locked.
    pub(crate) change: Arc<Change>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Deadline>,
    /// How its restarts begin, if not with all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) canary: Option<Canary>,
    /// Since when its restarts wait with healthy new instances. Not stored.
    #[serde(skip)]
    pub(crate) held_since: Option<Moment>,
    /// The trace context of the request that it carries out. Not stored.
    #[serde(skip)]
    pub(crate) trace: TraceContext,
    #[serde(skip)]
    pub(crate) texts: SharedTexts,
}

/// When a deployment has to be done, counted from its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deadline {
    pub(crate) seconds: u32,
    pub(crate) on_deadline: OnDeadline,
}

impl Deployment {
    /// The current step.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.steps.get(self.current)
    }

    /// Continues with a stored step. The record of a deployment may have an earlier one.
    pub(crate) fn continue_at(&mut self, step: usize) {
        self.current = self.current.max(step);
    }

    /// The apps and pods that it locks.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &SpecId> + Clone {
        self.change.specs.iter().map(|spec| &spec.id)
    }

    /// The time at which it must be done.
    pub(crate) fn due(&self) -> Option<Moment> {
        let deadline = self.deadline?;
        Some(self.version.plus_millis(i64::from(deadline.seconds) * 1000))
    }

    /// The subject in event queries: its only app or pod, or the group.
    pub(crate) fn subject(&self) -> String {
        match self.change.specs.as_slice() {
            [only] => only.id.to_string(),
            _ => self.change.group.to_string(),
        }
    }
}

/// The steps that take the edited apps to the definitions of `target`; none when no instance is
/// affected. `groups` are the edited groups. `effect` compares the definitions of an app that is
/// changed.
pub(crate) fn steps(
    target: &Tree,
    specs: &[EditedSpec],
    groups: &[GroupId],
    effect: impl Fn(&EditedSpec, &Spec, &Spec) -> Effect,
) -> Result<Vec<Step>, Cycle> {
    let action = |kind, spec: &EditedSpec| Action {
        kind,
        id: spec.id.clone(),
        is_pod: spec.is_pod(),
    };
    let stop = specs.iter().filter(|spec| spec.after.is_none());
    let start = specs
        .iter()
        .filter(|spec| spec.before.is_none() && spec.after.is_some());
    let mut steps = vec![
        Step {
            actions: stop.map(|spec| action(ActionKind::Stop, spec)).collect(),
        },
        Step {
            actions: start.map(|spec| action(ActionKind::Start, spec)).collect(),
        },
    ];
    let mut layers = Layers::new(target);
    // The dependencies of a group apply to all apps below it.
    for group in groups {
        for spec in target.specs_below(group) {
            layers.layer(spec.id())?;
        }
    }
    let mut by_layer: BTreeMap<u32, Vec<Action>> = BTreeMap::new();
    for spec in specs {
        let Some(new) = &spec.after else { continue };
        let layer = layers.layer(&spec.id)?;
        let kind = match &spec.before {
            None => ActionKind::Scale,
            Some(old) => match effect(spec, old, new) {
                Effect::Nothing | Effect::InPlace => continue,
                Effect::Replace if new.instances() > 0 => ActionKind::Restart,
                Effect::Replace | Effect::Scale => ActionKind::Scale,
            },
        };
        by_layer.entry(layer).or_default().push(action(kind, spec));
    }
    steps.extend(by_layer.into_values().map(|actions| Step { actions }));
    steps.retain(|step| !step.actions.is_empty());
    Ok(steps)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::App;
    use crate::settings::Checks;
    use crate::testing::app;
    use crate::tree::edit::Restart;
    use serde_json::{Value, json};

    fn apps(described: &Value) -> BTreeMap<SpecId, App> {
        let read = |(id, rest): (&String, &Value)| {
            let mut body = rest.clone();
            body["id"] = json!(id);
            body["dependencies"] = rest["deps"].clone();
            let marked = rest["version"] == "marked-for-restart";
            body.as_object_mut().unwrap().remove("version");
            // The fixtures contain apps with both `cmd` and `args`, which planning allows.
            let args = body.as_object_mut().unwrap().remove("args");
            let mut app = app(&body);
            app.args = args
                .map(|args| serde_json::from_value(args).unwrap())
                .unwrap_or_default();
            app.version = "2018-01-01T00:00:00.000Z".parse().unwrap();
            if marked {
                app.version = app.version.plus_millis(1);
            }
            (app.id.clone(), app)
        };
        described.as_object().unwrap().iter().map(read).collect()
    }

    /// The fixtures mark a restart by a different version.
    fn effect(old: &Spec, new: &Spec) -> Effect {
        if old.version() == new.version() {
            old.effect_of(new, Checks::default())
        } else {
            Effect::Replace
        }
    }

    fn tree(apps: &BTreeMap<SpecId, App>) -> Tree {
        let mut tree = Tree::default();
        for app in apps.values() {
            tree.insert(app.clone().into());
        }
        tree
    }

    /// The steps from one set of apps to another.
    fn planned(original: &BTreeMap<SpecId, App>, target: &BTreeMap<SpecId, App>) -> Result<Vec<Step>, Cycle> {
        let ids: BTreeSet<&SpecId> = original.keys().chain(target.keys()).collect();
        let edited: Vec<EditedSpec> = ids
            .into_iter()
            .map(|id| EditedSpec {
                id: id.clone(),
                before: original.get(id).cloned().map(Spec::from),
                after: target.get(id).cloned().map(Spec::from),
                restart: Restart::AsBefore,
            })
            .collect();
        steps(&tree(target), &edited, &[], |_, old, new| effect(old, new))
    }

    #[test]
    fn deployment_plans_match_the_fixtures() {
        let suite: Value =
            serde_json::from_str(include_str!("../../tests/fixtures/deployment-plan.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            if case["kind"] == "dependency-layers" {
                layer_case(case);
            } else {
                plan_case(case);
            }
        }
    }

    fn plan_case(case: &Value) {
        let (original, target) = (apps(&case["input"]["original"]), apps(&case["input"]["target"]));
        let found = planned(&original, &target).unwrap();
        let instances: BTreeMap<&SpecId, u32> = target.iter().map(|(id, app)| (id, app.instances)).collect();
        let shown: Vec<Vec<String>> = found
            .iter()
            .map(|step| {
                let show = |action: &Action| match action.kind {
                    ActionKind::Scale => {
                        format!("ScaleApplication {} {}", action.id, instances[&action.id])
                    }
                    kind => format!("{kind:?}Application {}", action.id),
                };
                step.actions.iter().map(show).collect()
            })
            .collect();
        assert_eq!(json!(shown), case["expect"]["steps"], "{}", case["id"]);
    }

    fn layer_case(case: &Value) {
        let described: serde_json::Map<String, Value> = case["input"]["dependencies"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(id, on)| (id.clone(), json!({"cmd": "sleep 1", "deps": on})))
            .collect();
        let target = apps(&Value::Object(described));
        let found = planned(&BTreeMap::new(), &target).unwrap();
        let expected = case["expect"]["layers"].as_object().unwrap();
        assert_eq!(found.len(), expected.len() + 1, "{}", case["id"]);
        for (number, layer) in expected {
            let index: usize = number.parse().unwrap();
            let shown: Vec<&SpecId> = found[index].actions.iter().map(|action| &action.id).collect();
            assert_eq!(json!(shown), *layer, "{} layer {number}", case["id"]);
        }
    }

    /// Twenty thousand apps, each of which depends on the next one.
    #[test]
    fn long_chain_of_dependencies_is_planned() {
        let mut described = serde_json::Map::new();
        for index in 0..20_000 {
            let on = format!("/a{}", index + 1);
            described.insert(format!("/a{index}"), json!({"cmd": "sleep 1", "deps": [on]}));
        }
        let found = planned(&BTreeMap::new(), &apps(&Value::Object(described))).unwrap();
        assert_eq!(found.len(), 20_001);
    }

    #[test]
    fn dependencies_of_a_group_are_those_of_all_apps_below_it() {
        let described = json!({
            "/db/a": {"cmd": "sleep 1", "deps": []}, "/web/x/a": {"cmd": "sleep 1", "deps": []}, "/web/b": {"cmd": "sleep 1", "deps": []},
        });
        let target = apps(&described);
        let mut tree = tree(&target);
        let mut group = crate::tree::Group::new(GroupId::parse("/web").unwrap(), Moment::now());
        group.dependencies = vec![SpecId::parse("/db").unwrap()];
        tree.insert_group(Arc::new(group));
        let edited: Vec<EditedSpec> = target
            .values()
            .map(|app| EditedSpec {
                id: app.id.clone(),
                before: None,
                after: Some(app.clone().into()),
                restart: Restart::AsBefore,
            })
            .collect();
        let found = steps(&tree, &edited, &[], |_, old, new| effect(old, new)).unwrap();
        let shown: Vec<Vec<&str>> = found[1..]
            .iter()
            .map(|step| step.actions.iter().map(|action| action.id.as_str()).collect())
            .collect();
        assert_eq!(shown, [vec!["/db/a"], vec!["/web/b", "/web/x/a"]]);
        let mut db = crate::tree::Group::new(GroupId::parse("/db").unwrap(), Moment::now());
        db.dependencies = vec![SpecId::parse("/web").unwrap()];
        let id = db.id.clone();
        tree.insert_group(Arc::new(db));
        assert!(steps(&tree, &[], &[id], |_, old, new| effect(old, new)).is_err());
    }

    #[test]
    fn cyclic_dependencies_are_rejected() {
        let mut all = apps(&json!({
            "/a": {"cmd": "sleep 1", "deps": ["/b"]}, "/b": {"cmd": "sleep 1", "deps": ["/a"]}, "/c": {"cmd": "sleep 1", "deps": []},
        }));
        let error = planned(&BTreeMap::new(), &all).unwrap_err().to_string();
        assert!(
            error.contains("cyclic dependencies") && error.contains("/a, /b") && !error.contains("/c"),
            "{error}"
        );
        all.get_mut(&SpecId::parse("/b").unwrap())
            .unwrap()
            .dependencies
            .clear();
        assert_eq!(planned(&BTreeMap::new(), &all).unwrap().len(), 3);
    }
}
