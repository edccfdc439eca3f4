//! The steps of a deployment.
//!
//! First, one step stops all removed apps. Then one step starts all new apps, with no instances
//! yet. Then one step for each layer of dependencies, dependencies first, scales or restarts apps.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::AppId;
use crate::model::{App, Effect};
use crate::time::Moment;

/// An action on one app in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Action {
    pub(crate) action: ActionKind,
    pub(crate) app: AppId,
}

/// The kinds of actions, with the API's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::enum_variant_names,
    reason = "these are the API's own names; those of pods will end otherwise"
)]
pub(crate) enum ActionKind {
    StartApplication,
    StopApplication,
    ScaleApplication,
    RestartApplication,
}

/// Actions that run concurrently; the next step starts when all of them are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) actions: Vec<Action>,
}

/// A stored deployment with its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) id: String,
    pub(crate) version: Moment,
    /// The app it locks.
    pub(crate) app: AppId,
    pub(crate) steps: Vec<Step>,
    /// Index of the current step; the number of steps when all are done.
    pub(crate) current: usize,
    /// The previous definition, which a revert restores.
    pub(crate) original: Option<App>,
}

impl Deployment {
    /// The current step.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.steps.get(self.current)
    }
}

/// A cycle in the dependencies of apps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are cyclic dependencies between {}", .0.iter().map(AppId::as_str).collect::<Vec<_>>().join(", "))]
pub(crate) struct Cycle(Vec<AppId>);

/// The steps from `original` to `target`; none when no instance is affected. `effect` compares the
/// definitions of an app that is in both.
pub(crate) fn steps(
    original: &BTreeMap<AppId, &App>,
    target: &BTreeMap<AppId, &App>,
    effect: impl Fn(&App, &App) -> Effect,
) -> Result<Vec<Step>, Cycle> {
    let mut steps = Vec::new();
    let action = |kind, id: &AppId| Action {
        action: kind,
        app: id.clone(),
    };
    let stop = original
        .keys()
        .filter(|id| !target.contains_key(id))
        .map(|id| action(ActionKind::StopApplication, id));
    steps.push(Step {
        actions: stop.collect(),
    });
    let start = target
        .keys()
        .filter(|id| !original.contains_key(id))
        .map(|id| action(ActionKind::StartApplication, id));
    steps.push(Step {
        actions: start.collect(),
    });
    for layer in layers(&dependencies(target))? {
        let actions = layer.iter().filter_map(|id| {
            let kind = match (original.get(id), target.get(id)?) {
                (None, _) => ActionKind::ScaleApplication,
                (Some(old), new) => match effect(old, new) {
                    Effect::Nothing | Effect::InPlace => return None,
                    Effect::Replace if new.instances > 0 => ActionKind::RestartApplication,
                    Effect::Replace | Effect::Scale => ActionKind::ScaleApplication,
                },
            };
            Some(action(kind, id))
        });
        steps.push(Step {
            actions: actions.collect(),
        });
    }
    steps.retain(|step| !step.actions.is_empty());
    Ok(steps)
}

fn dependencies(apps: &BTreeMap<AppId, &App>) -> BTreeMap<AppId, BTreeSet<AppId>> {
    let of = |app: &App| {
        // A dependency on a group covers all apps below it; one on a missing app is ignored.
        let below = |on: &AppId, id: &AppId| id == on || id.as_str().starts_with(&format!("{on}/"));
        apps.keys()
            .filter(|id| **id != app.id && app.dependencies.iter().any(|on| below(on, id)))
            .cloned()
            .collect()
    };
    apps.iter().map(|(id, app)| (id.clone(), of(app))).collect()
}

/// Layers by the longest path of dependencies: apps without any are first.
pub(crate) fn layers(dependencies: &BTreeMap<AppId, BTreeSet<AppId>>) -> Result<Vec<Vec<AppId>>, Cycle> {
    let mut placed: BTreeSet<&AppId> = BTreeSet::new();
    let mut layers = Vec::new();
    while placed.len() < dependencies.len() {
        let ready = |on: &BTreeSet<AppId>| {
            on.iter()
                .all(|id| placed.contains(id) || !dependencies.contains_key(id))
        };
        let layer: Vec<&AppId> = dependencies
            .iter()
            .filter(|(id, on)| !placed.contains(id) && ready(on))
            .map(|(id, _)| id)
            .collect();
        if layer.is_empty() {
            return Err(Cycle(
                dependencies
                    .keys()
                    .filter(|id| !placed.contains(id))
                    .cloned()
                    .collect(),
            ));
        }
        layers.push(layer.iter().map(|id| (*id).clone()).collect());
        placed.extend(layer);
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::config::Checks;
    use crate::testing::app;
    use serde_json::{Value, json};

    fn apps(described: &Value) -> BTreeMap<AppId, App> {
        let read = |(id, rest): (&String, &Value)| {
            let mut body = rest.clone();
            body["id"] = json!(id);
            body["dependencies"] = rest["deps"].clone();
            let marked = rest["version"] == "marked-for-restart";
            body.as_object_mut().unwrap().remove("version");
            // The fixture's apps may have both; planning allows it.
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

    /// The fixtures mark a restart by another version.
    fn effect(old: &App, new: &App) -> Effect {
        if old.version == new.version {
            old.effect_of(new, Checks::default())
        } else {
            Effect::Replace
        }
    }

    fn by_id(apps: &BTreeMap<AppId, App>) -> BTreeMap<AppId, &App> {
        apps.iter().map(|(id, app)| (id.clone(), app)).collect()
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
        let found = steps(&by_id(&original), &by_id(&target), effect).unwrap();
        let instances: BTreeMap<&AppId, u32> = target.iter().map(|(id, app)| (id, app.instances)).collect();
        let shown: Vec<Vec<String>> = found
            .iter()
            .map(|step| {
                let show = |action: &Action| match action.action {
                    ActionKind::ScaleApplication => {
                        format!("ScaleApplication {} {}", action.app, instances[&action.app])
                    }
                    kind => format!("{kind:?} {}", action.app),
                };
                step.actions.iter().map(show).collect()
            })
            .collect();
        assert_eq!(json!(shown), case["expect"]["steps"], "{}", case["id"]);
    }

    fn layer_case(case: &Value) {
        let ids = |list: &Value| -> BTreeSet<AppId> {
            list.as_array()
                .unwrap()
                .iter()
                .map(|id| AppId::parse(id.as_str().unwrap()).unwrap())
                .collect()
        };
        let input: BTreeMap<AppId, BTreeSet<AppId>> = case["input"]["dependencies"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(id, on)| (AppId::parse(id).unwrap(), ids(on)))
            .collect();
        let found = layers(&input).unwrap();
        let expected = case["expect"]["layers"].as_object().unwrap();
        assert_eq!(found.len(), expected.len(), "{}", case["id"]);
        for (number, layer) in expected {
            let index: usize = number.parse().unwrap();
            assert_eq!(
                found[index - 1].iter().cloned().collect::<BTreeSet<_>>(),
                ids(layer),
                "{} layer {number}",
                case["id"]
            );
        }
    }

    #[test]
    fn cyclic_dependencies_are_rejected() {
        let mut all = apps(&json!({
            "/a": {"cmd": "sleep 1", "deps": ["/b"]}, "/b": {"cmd": "sleep 1", "deps": ["/a"]}, "/c": {"cmd": "sleep 1", "deps": []},
        }));
        let error = steps(&BTreeMap::new(), &by_id(&all), effect)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cyclic dependencies") && error.contains("/a, /b") && !error.contains("/c"),
            "{error}"
        );
        all.get_mut(&AppId::parse("/b").unwrap())
            .unwrap()
            .dependencies
            .clear();
        assert_eq!(steps(&BTreeMap::new(), &by_id(&all), effect).unwrap().len(), 3);
    }
}
