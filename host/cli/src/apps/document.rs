//! Reads definitions from files, determines the kind of each, and removes members that are not part of
//! a definition.

use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, bail};
use serde_json::Value;
use transom_apps::{Definition, unknown_fields};

use super::id::Kind;
use crate::exit::{Misconfigured, Unavailable};
use crate::output::print_note;

/// The largest file, in bytes. The daemon's own limit is `apps.max_body`.
const MAX_FILE: u64 = 256 << 20;

/// Members of the API's documents that are not part of a definition. Without them, the output of
/// `transom apps show --output json` is a definition again.
const NO_PART: &[&str] = &[
    "version",
    "versionInfo",
    "tasks",
    "tasksStaged",
    "tasksRunning",
    "tasksHealthy",
    "tasksUnhealthy",
    "tasksStats",
    "deployments",
    "lastTaskFailure",
    "readinessCheckResults",
    "uris",
    "ports",
    "ipAddress",
];
/// The number of members at the beginning of the list that the service itself sets. The rest are
/// deprecated forms of other members.
const SET_BY_SERVICE: usize = 11;

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    /// One app, pod or group.
    One(Kind, Value),
    /// A list of apps.
    Apps(Vec<Value>),
}

/// Reads a file; `-` is standard input. Warns of fields that the service would ignore.
pub(super) fn read(file: &str) -> anyhow::Result<Document> {
    let text = text(file)?;
    let document = serde_json::from_str(&text)
        .with_context(|| format!("{file} is not JSON"))
        .context(Misconfigured)?;
    let document = sorted(document)
        .with_context(|| file.to_owned())
        .context(Misconfigured)?;
    match &document {
        Document::One(kind, one) => warn_of_unknown(file, *kind, one),
        Document::Apps(apps) => warn_of_unknown(file, Kind::App, &Value::from(apps.clone())),
    }
    Ok(document)
}

/// Warns of fields that the service would ignore, with those that were probably meant. `source` is
/// the place of the document.
pub(super) fn warn_of_unknown(source: &str, kind: Kind, document: &Value) {
    for line in unknown(kind, document) {
        print_note(format!("warning: {source}: {line}"));
    }
}

/// A line for each unknown field of a document.
fn unknown(kind: Kind, document: &Value) -> Vec<String> {
    let definition = match kind {
        Kind::App => Definition::App,
        Kind::Pod => Definition::Pod,
        Kind::Group => Definition::Group,
    };
    let (fields, more) = unknown_fields(document, definition);
    let lines = fields
        .iter()
        .map(|field| format!("{} {}", field.path, field.text()));
    let more = (more > 0).then(|| format!("{more} more unknown fields"));
    lines.chain(more).collect()
}

fn text(file: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut read = |input: &mut dyn Read| input.take(MAX_FILE + 1).read_to_string(&mut text);
    let read = if file == "-" {
        read(&mut io::stdin().lock())
    } else {
        File::open(file).and_then(|mut file| read(&mut file))
    };
    read.with_context(|| format!("cannot read {file}"))
        .context(Unavailable)?;
    if text.len() as u64 > MAX_FILE {
        return Err(anyhow::anyhow!("{file} has more than {} MB", MAX_FILE >> 20).context(Misconfigured));
    }
    Ok(text)
}

/// Determines the kind of a document: one with containers is a pod; one with apps, pods or groups is a
/// group.
fn sorted(document: Value) -> anyhow::Result<Document> {
    match document {
        Value::Array(list) => {
            for (index, one) in list.iter().enumerate() {
                if kind(one)? != Kind::App {
                    bail!(
                        "number {index} of the list is not an app; only apps can be changed together as a list"
                    );
                }
            }
            Ok(Document::Apps(list.into_iter().map(definition).collect()))
        }
        document => Ok(Document::One(kind(&document)?, definition(document))),
    }
}

fn kind(document: &Value) -> anyhow::Result<Kind> {
    let Some(members) = document.as_object() else {
        bail!("expected a definition: an app, a list of apps, a pod or a group");
    };
    let any = |names: &[&str]| names.iter().any(|name| members.contains_key(*name));
    Ok(if any(&["containers", "scaling"]) {
        Kind::Pod
    } else if any(&["apps", "groups", "pods", "enforceRole", "scaleBy"]) {
        Kind::Group
    } else {
        Kind::App
    })
}

/// Removes the members that the service sets from a document of the API.
pub(super) fn definition(mut document: Value) -> Value {
    let is_version_alone = document.as_object().is_some_and(|members| {
        members.contains_key("version") && members.keys().all(|key| matches!(key.as_str(), "version" | "id"))
    });
    // In a document with nothing else, `version` is part of the request: it restores an earlier
    // definition.
    if let Some(members) = document.as_object_mut()
        && !is_version_alone
    {
        members.retain(|name, _| !NO_PART[..SET_BY_SERVICE].contains(&name.as_str()));
    }
    document
}

/// As [`definition`], and also removes deprecated forms of members, for a comparison.
pub(super) fn comparable(document: Value) -> Value {
    let mut document = definition(document);
    if let Some(members) = document.as_object_mut() {
        members.retain(|name, _| !NO_PART.contains(&name.as_str()));
    }
    document
}

/// The id in a document, beginning with a slash.
pub(super) fn id(document: &Value) -> Option<String> {
    let id = document["id"].as_str()?;
    Some(format!("/{}", id.trim_matches('/')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kind_of_a_document_is_determined_by_its_members() {
        for (document, kind) in [
            (json!({"id": "/a", "cmd": "x"}), Kind::App),
            (json!({"id": "/a", "container": {}}), Kind::App),
            (json!({"id": "/a", "containers": []}), Kind::Pod),
            (json!({"id": "/a", "apps": []}), Kind::Group),
            (json!({"id": "/a", "groups": []}), Kind::Group),
        ] {
            assert_eq!(
                sorted(document.clone()).expect("sorted"),
                Document::One(kind, document)
            );
        }
        assert!(sorted(json!([{"id": "/a"}, {"id": "/b", "containers": []}])).is_err());
        assert!(sorted(json!("text")).is_err());
    }

    #[test]
    fn unknown_fields_are_named_with_those_that_were_meant() {
        let app = json!({"id": "/a", "cmd": "x", "instnaces": 2, "forcePullImage": true});
        assert_eq!(
            unknown(Kind::App, &app),
            [
                "/forcePullImage is not a known field, so it has no effect; did you mean /container/docker/forcePullImage?",
                "/instnaces is not a known field, so it has no effect; did you mean /instances?",
            ]
        );
        let group = json!({"id": "/g", "apps": [{"id": "a", "cpu": 1}], "dependancies": ["/x"]});
        assert_eq!(unknown(Kind::Group, &group).len(), 2);
        assert_eq!(unknown(Kind::App, &json!({"id": "/a", "cmd": "x"})), [""; 0]);
    }

    #[test]
    fn examples_have_no_unknown_fields() {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut count = 0;
        for folder in ["apps", "groups", "pods"] {
            for file in std::fs::read_dir(format!("{examples}/{folder}")).expect("a folder") {
                let path = file.expect("a file").path();
                if path.extension().is_none_or(|extension| extension != "json") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a text");
                let document = serde_json::from_str(&text).expect("JSON");
                let (kind, document) = match sorted(document).expect("a definition") {
                    Document::One(kind, document) => (kind, document),
                    Document::Apps(apps) => (Kind::App, apps.into()),
                };
                assert_eq!(unknown(kind, &document), [""; 0], "{}", path.display());
                count += 1;
            }
        }
        assert!(count > 5, "{count} examples");
    }

    #[test]
    fn shown_document_becomes_a_definition_again() {
        let response = json!({"id": "/a", "cmd": "x", "version": "2026", "tasksRunning": 1, "tasks": []});
        assert_eq!(definition(response), json!({"id": "/a", "cmd": "x"}));
        let back = json!({"id": "/a", "version": "2026"});
        assert_eq!(definition(back.clone()), back, "a return to a version");
    }
}
