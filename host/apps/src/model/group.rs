//! A client's document of a group: definitions of apps and groups below it, and commands.

use serde_json::{Value, json};
use transom_web::Problems;

use super::reader::Reader;
use super::{AppUpdate, Constraint, Invalid, read_in};
use crate::ids::{GroupId, IdError, SpecId, length_problem};
use crate::time::Moment;

/// The maximum depth of nested groups.
pub(crate) const MAX_DEPTH: usize = 64;

/// A client's document. Members that it omits are `None` and stay unchanged. A list replaces all
/// apps, or all groups, of the group.
#[derive(Debug)]
pub(crate) struct GroupUpdate {
    pub(crate) id: GroupId,
    pub(crate) apps: Option<Vec<AppUpdate>>,
    pub(crate) groups: Option<Vec<GroupUpdate>>,
    pub(crate) dependencies: Option<Vec<SpecId>>,
    /// The factor by which all numbers of instances below the group are multiplied.
    pub(crate) scale_by: Option<f64>,
    /// The version to which the group is rolled back.
    pub(crate) version: Option<Moment>,
    /// Whether the group's name is the role of apps and pods below it.
    pub(crate) enforce_role: Option<bool>,
    /// Whether the document has no members but `id`, `version` and `scaleBy`.
    pub(crate) is_command: bool,
    /// Path of the document in the request: empty, or `/groups(1)`.
    pub(crate) path: String,
    /// Violated rules of this group, without those of its apps and groups.
    pub(crate) broken: Problems,
}

impl GroupUpdate {
    /// The number of apps and groups in the document.
    pub(crate) fn definitions(&self) -> usize {
        let groups = self.groups.iter().flatten().map(Self::definitions);
        1 + self.apps.iter().flatten().count() + groups.sum::<usize>()
    }
}

/// Parses a document. `id` is the group's, if the request's path contains it; the document's `id`
/// is relative to `base`. All problems of shape are reported together.
pub(crate) fn read_group(
    document: &Value,
    base: &GroupId,
    id: Option<&GroupId>,
) -> Result<GroupUpdate, Invalid> {
    let mut shape = Problems::default();
    let update = read_below(document, base, id, String::new(), 0, &mut shape);
    match update {
        Some(update) if shape.is_empty() => Ok(update),
        _ => Err(Invalid::Shape(shape)),
    }
}

fn read_below(
    document: &Value,
    base: &GroupId,
    id: Option<&GroupId>,
    path: String,
    depth: usize,
    shape: &mut Problems,
) -> Option<GroupUpdate> {
    let Some(members) = document.as_object() else {
        shape.add(or_root(&path), "error.expected.jsobject");
        return None;
    };
    if depth > MAX_DEPTH {
        shape.add(
            or_root(&path),
            format!("groups may be nested at most {MAX_DEPTH} deep"),
        );
        return None;
    }
    let mut broken = Problems::default();
    let mut reader = Reader::new(members, path.clone(), shape);
    let named = match reader.string("id").map(|text| GroupId::parse_in(base, &text)) {
        Some(Ok(named)) => Some(named),
        Some(Err(error)) => {
            pattern(&mut reader, "id", error);
            return None;
        }
        None => None,
    };
    let id = match (id, named) {
        (Some(id), Some(named)) if *id != named => {
            broken.add(
                format!("{path}/id"),
                format!("is not {id}, which the path names; an id cannot be changed"),
            );
            id.clone()
        }
        (Some(id), _) => id.clone(),
        (None, Some(named)) => named,
        (None, None) => {
            reader.problem("id", "is undefined: a group needs its id");
            return None;
        }
    };
    // The ids of everything below would be too long as well.
    if let Some(text) = length_problem(id.as_str()) {
        reader.problem("id", text);
        return None;
    }
    let dependencies = read_dependencies(&mut reader, &id);
    let scale_by = reader.number("scaleBy", 0.0);
    let version = reader.string("version").and_then(|text| {
        let moment = text.parse().ok();
        if moment.is_none() {
            reader.problem("version", "error.expected.date");
        }
        moment
    });
    let enforce_role = reader.boolean("enforceRole");
    if enforce_role == Some(true) && !id.is_top() {
        broken.add(
            format!("{path}/enforceRole"),
            "enforceRole can only be set for top-level groups",
        );
    }
    let has = (reader.array("apps").is_some(), reader.array("groups").is_some());
    let list = |name: &str, has: bool| members.get(name).filter(|_| has).and_then(Value::as_array);
    let (listed_apps, listed_groups) = (list("apps", has.0), list("groups", has.1));
    let mut apps = listed_apps.map(|_| Vec::new());
    for (index, document) in listed_apps.into_iter().flatten().enumerate() {
        let app = read_app(document, &id, &format!("{path}/apps({index})"), shape);
        if let Some(apps) = &mut apps {
            apps.extend(app);
        }
    }
    let mut groups = listed_groups.map(|_| Vec::new());
    for (index, document) in listed_groups.into_iter().flatten().enumerate() {
        let path = format!("{path}/groups({index})");
        let Some(group) = read_below(document, &id, None, path.clone(), depth + 1, shape) else {
            continue;
        };
        if group.id.parent().as_ref() != Some(&id) {
            broken.add(format!("{path}/id"), not_child(&id));
        }
        if let Some(groups) = &mut groups {
            groups.push(group);
        }
    }
    Some(GroupUpdate {
        id,
        apps,
        groups,
        dependencies,
        scale_by,
        version,
        enforce_role,
        is_command: !members.iter().any(is_content),
        path,
        broken,
    })
}

/// Whether a member belongs to a group's definition, rather than naming the group or commanding
/// what is done with it.
fn is_content((name, value): (&String, &Value)) -> bool {
    !value.is_null() && !["id", "version", "scaleBy"].contains(&name.as_str())
}

fn read_dependencies(reader: &mut Reader<'_>, id: &GroupId) -> Option<Vec<SpecId>> {
    let texts = reader.strings("dependencies")?;
    let mut dependencies = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match SpecId::parse_in(id, text) {
            Ok(dependency) => dependencies.push(dependency),
            Err(error) => pattern(reader, &format!("dependencies({index})"), error),
        }
    }
    Some(dependencies)
}

fn pattern(reader: &mut Reader<'_>, key: &str, error: IdError) {
    reader.problem(key, "error.pattern");
    reader.problem(key, error.to_string());
}

/// Parses one app of a group. Its id and its dependencies are relative to the group.
fn read_app(document: &Value, group: &GroupId, path: &str, shape: &mut Problems) -> Option<AppUpdate> {
    let mut document = document.clone();
    let id = document["id"]
        .as_str()
        .and_then(|text| SpecId::parse_in(group, text).ok());
    if let Some(id) = &id {
        document["id"] = json!(id);
    }
    match read_in(&document, group) {
        Ok(mut update) => {
            match &update.id {
                Some(id) if id.group() != *group => update.broken.add("/id", not_child(group)),
                None if update.broken.is_empty() => {
                    update.broken.add("/id", "is undefined: an app needs its id");
                }
                _ => {}
            }
            Some(update)
        }
        Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => {
            shape.extend(problems.below(path));
            None
        }
    }
}

fn not_child(group: &GroupId) -> String {
    format!("Identifier is not child of '{group}'")
}

fn or_root(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

impl GroupUpdate {
    /// The constraints of all apps, each with the path of its app, so that one call validates all
    /// of them.
    pub(crate) fn constraints(&self) -> Vec<(String, &[Constraint])> {
        let apps = self.apps.iter().flatten().enumerate();
        let own = apps.map(|(index, app)| (format!("{}/apps({index})", self.path), app.constraints()));
        let below = self.groups.iter().flatten().flat_map(Self::constraints);
        own.chain(below).collect()
    }
}
