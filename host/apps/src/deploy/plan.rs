//! The steps of a deployment.
//!
//! First, one step stops all removed apps. Then one step starts all new apps, with no instances
//! yet. Then one step for each layer of dependencies, dependencies first, scales or restarts apps.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Change;
use crate::config::OnDeadline;
use crate::ids::{AppId, GroupId};
use crate::model::{App, Effect};
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::EditedApp;

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
    pub(crate) steps: Vec<Step>,
    /// Index of the current step; the number of steps when all are done.
    pub(crate) current: usize,
    /// What it carries out, and a revert takes back. It locks these apps.
    pub(crate) change: Change,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Deadline>,
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

    /// The apps that it locks.
    pub(crate) fn apps(&self) -> impl Iterator<Item = &AppId> + Clone {
        self.change.apps.iter().map(|app| &app.id)
    }

    /// When it has to be done.
    pub(crate) fn due(&self) -> Option<Moment> {
        let deadline = self.deadline?;
        Some(self.version.plus_millis(i64::from(deadline.seconds) * 1000))
    }

    /// What it is about, for event queries: its only app, or the group.
    pub(crate) fn subject(&self) -> String {
        match self.change.apps.as_slice() {
            [only] => only.id.to_string(),
            _ => self.change.group.to_string(),
        }
    }

    /// Whether a later step has an action on an app.
    pub(crate) fn waits(&self, app: &AppId) -> bool {
        let later = self.steps.iter().skip(self.current + 1);
        later
            .flat_map(|step| &step.actions)
            .any(|action| action.app == *app)
    }
}

/// A cycle in the dependencies of apps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are cyclic dependencies between {}", .0.iter().map(AppId::as_str).collect::<Vec<_>>().join(", "))]
pub(crate) struct Cycle(BTreeSet<AppId>);

/// The steps that take the edited apps to the definitions of `target`; none when no instance is
/// affected. `groups` are the edited groups. `effect` compares the definitions of an app that is
/// changed.
pub(crate) fn steps(
    target: &Tree,
    apps: &[EditedApp],
    groups: &[GroupId],
    effect: impl Fn(&EditedApp, &App, &App) -> Effect,
) -> Result<Vec<Step>, Cycle> {
    let action = |kind, id: &AppId| Action {
        action: kind,
        app: id.clone(),
    };
    let stop = apps.iter().filter(|app| app.after.is_none());
    let start = apps
        .iter()
        .filter(|app| app.before.is_none() && app.after.is_some());
    let mut steps = vec![
        Step {
            actions: stop
                .map(|app| action(ActionKind::StopApplication, &app.id))
                .collect(),
        },
        Step {
            actions: start
                .map(|app| action(ActionKind::StartApplication, &app.id))
                .collect(),
        },
    ];
    let mut layers = Layers::new(target);
    // Dependencies of a group are those of all apps below it.
    for group in groups {
        for app in target.apps_below(group) {
            layers.of(&app.id)?;
        }
    }
    let mut by_layer: BTreeMap<u32, Vec<Action>> = BTreeMap::new();
    for app in apps {
        let Some(new) = &app.after else { continue };
        let layer = layers.of(&app.id)?;
        let kind = match &app.before {
            None => ActionKind::ScaleApplication,
            Some(old) => match effect(app, old, new) {
                Effect::Nothing | Effect::InPlace => continue,
                Effect::Replace if new.instances > 0 => ActionKind::RestartApplication,
                Effect::Replace | Effect::Scale => ActionKind::ScaleApplication,
            },
        };
        by_layer.entry(layer).or_default().push(action(kind, &app.id));
    }
    steps.extend(by_layer.into_values().map(|actions| Step { actions }));
    steps.retain(|step| !step.actions.is_empty());
    Ok(steps)
}

/// The layers of apps: one more than the greatest layer of their dependencies.
struct Layers<'a> {
    tree: &'a Tree,
    known: BTreeMap<AppId, u32>,
}

/// An app whose dependencies are being visited.
struct Visit {
    id: AppId,
    dependencies: std::vec::IntoIter<AppId>,
    layer: u32,
}

impl<'a> Layers<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            known: BTreeMap::new(),
        }
    }

    /// The layer of an app. Visits only what the app depends on; not recursive, because chains of
    /// dependencies may be long.
    fn of(&mut self, app: &AppId) -> Result<u32, Cycle> {
        if let Some(layer) = self.known.get(app) {
            return Ok(*layer);
        }
        let mut path = vec![self.visit(app.clone())];
        let mut on_path = BTreeSet::from([app.clone()]);
        while let Some(visit) = path.last_mut() {
            let Some(next) = visit.dependencies.next() else {
                let (id, layer) = (visit.id.clone(), visit.layer);
                path.pop();
                on_path.remove(&id);
                self.known.insert(id, layer);
                if let Some(dependent) = path.last_mut() {
                    dependent.layer = dependent.layer.max(layer + 1);
                }
                continue;
            };
            if let Some(layer) = self.known.get(&next) {
                visit.layer = visit.layer.max(layer + 1);
            } else if on_path.contains(&next) {
                let cycle = path.iter().map(|visit| visit.id.clone());
                return Err(Cycle(cycle.skip_while(|id| *id != next).collect()));
            } else {
                on_path.insert(next.clone());
                path.push(self.visit(next));
            }
        }
        Ok(self.known.get(app).copied().unwrap_or(0))
    }

    fn visit(&self, id: AppId) -> Visit {
        Visit {
            dependencies: self.dependencies(&id).into_iter(),
            id,
            layer: 0,
        }
    }

    /// The apps that an app depends on, by its own dependencies and those of its groups. One that
    /// does not exist is ignored.
    fn dependencies(&self, id: &AppId) -> Vec<AppId> {
        let own = self.tree.app(id).into_iter().flat_map(|app| &app.dependencies);
        let groups: Vec<_> = id
            .group()
            .with_ancestors()
            .filter_map(|group| self.tree.group(&group))
            .collect();
        let of_groups = groups.iter().flat_map(|group| &group.dependencies);
        let paths: BTreeSet<&AppId> = own.chain(of_groups).collect();
        let apps = paths.into_iter().flat_map(|path| self.tree.apps_at(path));
        apps.map(|app| app.id.clone()).filter(|on| on != id).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::config::Checks;
    use crate::testing::app;
    use crate::tree::edit::Restart;
    use serde_json::{Value, json};
    use std::sync::Arc;

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

    fn tree(apps: &BTreeMap<AppId, App>) -> Tree {
        let mut tree = Tree::default();
        for app in apps.values() {
            tree.insert(Arc::new(app.clone()));
        }
        tree
    }

    /// The steps from one set of apps to another.
    fn planned(original: &BTreeMap<AppId, App>, target: &BTreeMap<AppId, App>) -> Result<Vec<Step>, Cycle> {
        let ids: BTreeSet<&AppId> = original.keys().chain(target.keys()).collect();
        let edited: Vec<EditedApp> = ids
            .into_iter()
            .map(|id| EditedApp {
                id: id.clone(),
                before: original.get(id).cloned().map(Arc::new),
                after: target.get(id).cloned().map(Arc::new),
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
            let shown: Vec<&AppId> = found[index].actions.iter().map(|action| &action.app).collect();
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
        group.dependencies = vec![AppId::parse("/db").unwrap()];
        tree.insert_group(Arc::new(group));
        let edited: Vec<EditedApp> = target
            .values()
            .map(|app| EditedApp {
                id: app.id.clone(),
                before: None,
                after: Some(Arc::new(app.clone())),
                restart: Restart::AsBefore,
            })
            .collect();
        let found = steps(&tree, &edited, &[], |_, old, new| effect(old, new)).unwrap();
        let shown: Vec<Vec<&str>> = found[1..]
            .iter()
            .map(|step| step.actions.iter().map(|action| action.app.as_str()).collect())
            .collect();
        assert_eq!(shown, [vec!["/db/a"], vec!["/web/b", "/web/x/a"]]);
        let mut db = crate::tree::Group::new(GroupId::parse("/db").unwrap(), Moment::now());
        db.dependencies = vec![AppId::parse("/web").unwrap()];
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
        all.get_mut(&AppId::parse("/b").unwrap())
            .unwrap()
            .dependencies
            .clear();
        assert_eq!(planned(&BTreeMap::new(), &all).unwrap().len(), 3);
    }
}
