//! Definitions of apps, pods and groups. They are parsed and checked like those of clients, but
//! keep Marathon's versions and times.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::{Value, json};
use transom_scheduler::TaskRecord;
use transom_web::Problems;

use super::difference::differences;
use super::marathon::Marathon;
use super::report::{Carried, Report};
use super::task_index::TaskIndex;
use crate::Settings;
use crate::core::persist::{PastVersion, SpecRecord, group_key, spec_key, version_key};
use crate::ids::{GroupId, SpecId};
use crate::model::pod::read_pod;
use crate::model::{DefinitionSettings, Invalid, Spec, VersionInfo, read};
use crate::time::Moment;
use crate::tree::edit::{EditContext, Editor, Restart};
use crate::tree::{Group, Tree};

/// The maximum depth of nested groups.
const MAX_DEPTH: usize = 64;

/// The definitions that can be carried.
pub(super) struct Definitions {
    specs: BTreeMap<SpecId, Imported>,
    groups: BTreeMap<GroupId, Group>,
    rejected: BTreeSet<SpecId>,
}

/// An app or pod.
struct Imported {
    record: SpecRecord,
    /// The definitions of its past versions.
    past: BTreeMap<Moment, Spec>,
}

/// The settings with which definitions are parsed.
struct Context<'a> {
    config: &'a Settings,
    settings: DefinitionSettings,
    service_ports: RangeInclusive<u16>,
}

impl Definitions {
    /// Reads all definitions. Those that cannot be carried are rejected by name.
    pub(super) fn read(
        marathon: &Marathon,
        config: &Settings,
        index: &TaskIndex,
        report: &mut Report,
    ) -> Self {
        let context = Context {
            config,
            settings: DefinitionSettings::new(config),
            service_ports: config.service_ports(),
        };
        let mut all = Self {
            specs: BTreeMap::new(),
            groups: BTreeMap::new(),
            rejected: BTreeSet::new(),
        };
        let used = index.versions();
        let apps = marathon.apps.iter().map(|document| (document, false));
        let pods = marathon.pods.iter().map(|document| (document, true));
        for (document, is_pod) in apps.chain(pods) {
            let name = document["id"].as_str().unwrap_or_default();
            let Ok(id) = SpecId::parse(name) else {
                let kind = if is_pod { "pod" } else { "app" };
                report.reject(format!("{kind} {name:?}"), "Its id is not valid.");
                continue;
            };
            let past = marathon.versions.get(name).map(Vec::as_slice).unwrap_or_default();
            let used = used.get(name).map(Vec::as_slice).unwrap_or_default();
            match context.imported(&id, document, is_pod, past, used, report) {
                Ok(imported) => drop(all.specs.insert(id, imported)),
                Err(problems) => {
                    for problem in problems {
                        report.reject(id.to_string(), problem);
                    }
                    all.rejected.insert(id);
                }
            }
        }
        all.read_groups(&marathon.groups, 0, report);
        all.check_tree(&context, report);
        all
    }

    fn read_groups(&mut self, document: &Value, depth: usize, report: &mut Report) {
        let name = document["id"].as_str().unwrap_or_default();
        let (Ok(id), true) = (GroupId::parse(name), depth <= MAX_DEPTH) else {
            return report.reject(
                format!("group {name:?}"),
                "Its id is not valid, or it is nested too deeply.",
            );
        };
        let version = document["version"].as_str().and_then(|text| text.parse().ok());
        let mut dependencies = Vec::new();
        for text in list(&document["dependencies"]).filter_map(Value::as_str) {
            match SpecId::parse_in(&id, text) {
                Ok(dependency) => dependencies.push(dependency),
                Err(error) => report.reject(
                    format!("group {id}"),
                    format!("Its dependency {text:?} is not valid: {error}."),
                ),
            }
        }
        let version = version.unwrap_or(Moment::from(jiff::Timestamp::UNIX_EPOCH));
        let enforce_role = document["enforceRole"].as_bool() == Some(true);
        if enforce_role && !id.is_top() {
            report.reject(
                format!("group {id}"),
                "enforceRole can only be set for top-level groups.",
            );
        }
        if !id.is_root() || !dependencies.is_empty() {
            let group = Group {
                dependencies,
                enforce_role,
                ..Group::new(id.clone(), version)
            };
            self.groups.insert(id, group);
        }
        for below in list(&document["groups"]) {
            self.read_groups(below, depth + 1, report);
        }
    }

    /// Checks the rules between definitions, and adds groups that exist only as parts of ids.
    fn check_tree(&mut self, context: &Context<'_>, report: &mut Report) {
        let empty = Tree::default();
        let mut editor = Editor::new(&empty, context.edit(Moment::from(jiff::Timestamp::UNIX_EPOCH)));
        for imported in self.specs.values() {
            editor.restore(&imported.record.spec, Restart::AsBefore);
        }
        for group in self.groups.values() {
            editor.set_group(group.clone());
        }
        match editor.finish() {
            Ok(edited) => {
                for (id, group) in edited.tree.groups() {
                    let group = || Group::clone(group);
                    self.groups.entry(id.clone()).or_insert_with(group);
                }
            }
            Err(invalid) => {
                for (path, text) in texts(invalid) {
                    report.reject(path, text);
                }
            }
        }
    }

    pub(super) fn has(&self, id: &SpecId) -> bool {
        self.specs.contains_key(id)
    }

    pub(super) fn is_rejected(&self, id: &SpecId) -> bool {
        self.rejected.contains(id)
    }

    /// The definition that a task was launched from. If Marathon no longer has it, the current one
    /// is used, provided that only the number of instances has changed since.
    pub(super) fn of_task(&mut self, id: &SpecId, version: Moment) -> Option<Spec> {
        let imported = self.specs.get_mut(id)?;
        let present = &imported.record.spec;
        if version == present.version() {
            return Some(present.clone());
        }
        if let Some(past) = imported.past.get(&version) {
            return Some(past.clone());
        }
        if version < present.config_version() || version > present.version() {
            return None;
        }
        let past = present.with_version(version);
        let config = Arc::clone(&imported.record.config);
        imported.record.past.push(PastVersion {
            version,
            config,
            bytes: None,
        });
        imported.record.past.sort_by_key(|past| past.version);
        imported.past.insert(version, past.clone());
        Some(past)
    }

    /// The consequence, if a task does not have the current configuration.
    pub(super) fn outdated(&self, record: &TaskRecord) -> Option<String> {
        let id = SpecId::parse(&record.run_spec).ok()?;
        let imported = self.specs.get(&id)?;
        let version = record.version.parse().ok()?;
        imported.record.is_outdated(version).then(|| {
            format!(
                "It runs an earlier configuration ({version}) of {id}: the next change of {id} replaces it."
            )
        })
    }

    /// The carried apps and pods, in the order of ids.
    pub(super) fn carried(&self, tasks: &[TaskRecord]) -> Vec<Carried> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for task in tasks {
            *counts.entry(task.run_spec.as_str()).or_default() += 1;
        }
        let specs = self.specs.iter().map(|(id, imported)| Carried {
            kind: if imported.record.spec.is_pod() {
                "pod"
            } else {
                "app"
            },
            id: id.to_string(),
            versions: imported.record.past.len() + 1,
            tasks: counts.get(id.as_str()).copied().unwrap_or_default(),
        });
        let groups = self.groups.keys().map(|id| Carried {
            kind: "group",
            id: id.to_string(),
            versions: 1,
            tasks: 0,
        });
        let mut all: Vec<Carried> = specs.chain(groups).collect();
        all.sort_by(|one, other| (&one.id, one.kind).cmp(&(&other.id, other.kind)));
        all
    }

    /// Adds the records by their keys.
    pub(super) fn write(&self, records: &mut BTreeMap<String, Value>) -> serde_json::Result<()> {
        for (id, imported) in &self.specs {
            records.insert(spec_key(id), serde_json::to_value(&imported.record)?);
            for (version, spec) in &imported.past {
                records.insert(version_key(id, *version), serde_json::to_value(spec)?);
            }
        }
        for (id, group) in &self.groups {
            records.insert(group_key(id), serde_json::to_value(group)?);
        }
        Ok(())
    }
}

impl Context<'_> {
    fn edit(&self, version: Moment) -> EditContext<'_> {
        EditContext {
            definitions: &self.settings,
            force: true,
            max_instances: self.config.max_instances,
            service_ports: &self.service_ports,
            checks: self.config.checks,
            version,
        }
    }

    /// Imports an app or pod with its past versions. `used` are the versions that tasks were
    /// launched from.
    fn imported(
        &self,
        id: &SpecId,
        document: &Value,
        is_pod: bool,
        past: &[Value],
        used: &[String],
        report: &mut Report,
    ) -> Result<Imported, Vec<String>> {
        let spec = self.definition(id, document, is_pod)?;
        if spec.is_resident() {
            return Err(vec![
                "It has persistent volumes, which cannot be taken over yet: move its data, or keep it in Marathon.".to_owned(),
            ]);
        }
        let our_document = match &spec {
            Spec::App(app) => serde_json::to_value(app),
            Spec::Pod(pod) => serde_json::to_value(pod),
        };
        for text in differences(document, &our_document.unwrap_or_default()) {
            report.differs(id.to_string(), format!("{text}."));
        }
        let config: Arc<str> = spec.config(self.config.checks).into();
        let (mut versions, mut definitions) = (Vec::new(), BTreeMap::new());
        for document in past {
            let definition = match self.definition(id, document, is_pod) {
                Ok(definition) if definition.version() == spec.version() => continue,
                Ok(definition) => definition,
                Err(problems) => {
                    let version = document["version"].as_str().unwrap_or("?");
                    report.differs(
                        id.to_string(),
                        format!(
                            "Its past version {version} is not imported: {}",
                            problems.join(" ")
                        ),
                    );
                    continue;
                }
            };
            let version = definition.version();
            // Since this version, only the number of instances has changed.
            let same = !is_pod && version >= spec.config_version();
            let config = if same {
                Arc::clone(&config)
            } else {
                definition.config(self.config.checks).into()
            };
            if definitions.insert(version, definition).is_none() {
                versions.push(PastVersion {
                    version,
                    config,
                    bytes: None,
                });
            }
        }
        versions.sort_by_key(|past| past.version);
        let is_used = |version: &Moment| used.iter().any(|used| used.parse().ok() == Some(*version));
        let mut excess = (versions.len() + 1).saturating_sub(self.config.max_versions);
        versions.retain(|past| {
            let surplus = excess > 0 && !is_used(&past.version);
            excess -= usize::from(surplus);
            !surplus
        });
        definitions.retain(|version, _| versions.iter().any(|past| past.version == *version));
        let last_failure = serde_json::from_value(document["lastTaskFailure"].clone()).ok();
        Ok(Imported {
            record: SpecRecord {
                spec,
                config,
                past: versions,
                deleted: false,
                last_failure,
                failures: None,
                terminations: Vec::new(),
                restarted_at: None,
            },
            past: definitions,
        })
    }

    /// Parses one definition and checks it independently of the others.
    fn definition(&self, id: &SpecId, document: &Value, is_pod: bool) -> Result<Spec, Vec<String>> {
        let text = document["version"].as_str().unwrap_or_default();
        let version: Moment = text
            .parse()
            .map_err(|_| vec![format!("Its version is not valid: {text:?}.")])?;
        let empty = Tree::default();
        let mut editor = Editor::new(&empty, self.edit(version));
        let sentences = |invalid: Invalid| -> Vec<String> {
            let texts = texts(invalid).into_iter();
            texts.map(|(path, text)| format!("{path}: {text}.")).collect()
        };
        if is_pod {
            editor.put_pod(id.clone(), read_pod(document).map_err(sentences)?);
        } else {
            let update = read(document).map_err(sentences)?;
            editor.put(id.clone(), update, false, false, "");
        }
        let edited = editor.finish().map_err(sentences)?;
        let spec = edited.specs.into_iter().find_map(|edited| edited.after);
        let mut spec = spec.ok_or_else(|| vec!["It has no definition.".to_owned()])?;
        let info = serde_json::from_value::<VersionInfo>(document["versionInfo"].clone());
        spec.set_version_info(info.unwrap_or(VersionInfo {
            last_scaling_at: version,
            last_config_change_at: version,
        }));
        Ok(spec)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Each problem with its path.
fn texts(invalid: Invalid) -> Vec<(String, String)> {
    let (Invalid::Shape(problems) | Invalid::Rules(problems)) = invalid;
    pairs(&problems)
}

fn pairs(problems: &Problems) -> Vec<(String, String)> {
    let document = json!(problems);
    let all = list(&document).flat_map(|problem| {
        let path = problem["path"].as_str().unwrap_or_default();
        let errors = list(&problem["errors"]).filter_map(Value::as_str);
        errors
            .map(|error| (path.to_owned(), error.trim_end_matches('.').to_owned()))
            .collect::<Vec<_>>()
    });
    all.collect()
}
