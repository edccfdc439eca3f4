//! The schemas of the documents that clients send: those of the definitions, of which nearly every
//! member may be absent, and some deprecated members.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::model::lengths;

const REFERENCE: &str = "#/components/schemas/";

/// The members that definitions in requests must have, by schema; schemas that are not listed
/// require none. Members that distinguish the alternatives of a schema are always required.
const REQUIRED: &[(&str, &[&str])] = &[
    ("Artifact", &["uri"]),
    ("CsiCapability", &["accessMode", "accessType"]),
    ("CsiOptions", &["pluginName", "capability"]),
    ("CsiVolume", &["name", "provider", "options"]),
    ("Docker", &["image"]),
    ("Endpoint", &["name"]),
    ("Exec", &["command"]),
    ("HealthCommand", &["value"]),
    ("Image", &["kind", "id"]),
    ("Parameter", &["key", "value"]),
    ("PersistentVolume", &["size"]),
    ("PluginCheck", &["name"]),
    ("Pod", &["id", "containers"]),
    ("PodConstraint", &["fieldName", "operator"]),
    ("PodContainer", &["name", "resources"]),
    ("PullConfig", &["secret"]),
    ("SecretDef", &["source"]),
    ("VolumeMount", &["name", "mountPath"]),
];

/// Schemas whose alternatives are distinguished by no required member.
const ALTERNATIVES_WITH_DEFAULTS: &[&str] = &["UnreachableStrategy", "Scaling"];

/// Adds the schemas `AppInput`, `PodInput` and `GroupInput`, and those that they refer to.
pub(super) fn add(schemas: &mut Map<String, Value>) {
    let mut names = BTreeSet::new();
    for root in ["App", "Pod"] {
        add_reachable(root, schemas, &mut names);
    }
    // Requests do not contain it.
    names.remove("VersionInfo");
    let mut inputs: Map<String, Value> = Map::new();
    for name in names {
        let mut schema = schemas[&name].clone();
        remove_required(&mut schema, ALTERNATIVES_WITH_DEFAULTS.contains(&name.as_str()));
        let required = REQUIRED.iter().find(|(known, _)| *known == name);
        if let Some((_, required)) = required {
            schema["required"] = json!(required);
        }
        add_request_forms(&name, &mut schema);
        lengths::describe(&mut schema, &name);
        inputs.insert(name, schema);
    }
    // A schema that is the same in requests and responses is not repeated.
    let mut differing: BTreeSet<String> = BTreeSet::new();
    loop {
        let more = inputs.iter().filter(|(name, schema)| {
            let refers = || references(schema).iter().any(|name| differing.contains(name));
            !differing.contains(*name) && (**schema != schemas[*name] || refers())
        });
        let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
        if more.is_empty() {
            break;
        }
        differing.extend(more);
    }
    for name in &differing {
        let mut schema = inputs[name].clone();
        redirect(&mut schema, &differing);
        schemas.insert(format!("{name}Input"), schema);
    }
    let mut group = group();
    lengths::describe(&mut group, "GroupInput");
    schemas.insert("GroupInput".to_owned(), group);
    if let Some(delete_tasks) = schemas.get_mut("DeleteTasks") {
        lengths::describe(delete_tasks, "DeleteTasks");
    }
}

/// Adds the names of a schema and of all schemas below it.
fn add_reachable(name: &str, schemas: &Map<String, Value>, names: &mut BTreeSet<String>) {
    if names.insert(name.to_owned()) {
        for below in references(&schemas[name]) {
            add_reachable(&below, schemas, names);
        }
    }
}

/// The names of the schemas that a schema refers to.
fn references(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match schema {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str);
            names.extend(
                name.and_then(|name| name.strip_prefix(REFERENCE))
                    .map(str::to_owned),
            );
            names.extend(members.values().flat_map(references));
        }
        Value::Array(items) => names.extend(items.iter().flat_map(references)),
        _ => {}
    }
    names
}

/// Replaces references to the listed schemas by references to their counterparts for requests.
fn redirect(schema: &mut Value, differing: &BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(REFERENCE)
                && differing.contains(name)
            {
                *reference = format!("{reference}Input");
            }
            for member in members.values_mut() {
                redirect(member, differing);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, differing)),
        _ => {}
    }
}

/// Removes the requirement of members from a schema and from those nested in its members.
fn remove_required(schema: &mut Value, with_alternatives: bool) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    members.remove("required");
    for alternatives in ["anyOf", "oneOf"] {
        let alternatives = members.get_mut(alternatives).and_then(Value::as_array_mut);
        for alternative in alternatives.into_iter().flatten() {
            let required = alternative.get("required").cloned();
            remove_required(alternative, with_alternatives);
            if let Some(required) = required.filter(|_| !with_alternatives) {
                alternative["required"] = required;
            }
        }
    }
    let properties = members.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        remove_required(property, with_alternatives);
        merge(property);
    }
}

/// Moves the members of the alternatives of a nested object into the object, because a request may
/// name the port of a check in one of two ways, or omit it.
fn merge(schema: &mut Value) {
    if schema.get("type").is_none_or(|kind| kind != "object") {
        return;
    }
    let Some(Value::Array(alternatives)) = schema.as_object_mut().and_then(|members| members.remove("oneOf"))
    else {
        return;
    };
    for mut alternative in alternatives {
        if let Some(members) = alternative["properties"].as_object_mut() {
            for (name, member) in std::mem::take(members) {
                schema["properties"][name] = member;
            }
        }
    }
}

/// Adds the forms that only requests may use, such as deprecated members.
fn add_request_forms(name: &str, schema: &mut Value) {
    let deprecated = |mut schema: Value, description: &str| {
        schema["deprecated"] = json!(true);
        schema["description"] = json!(description);
        schema
    };
    match name {
        "App" => {
            schema["description"] = json!(
                "A definition of an app, or the members to change. An absent or null member gets its default, or keeps \
                 its value."
            );
            let properties = &mut schema["properties"];
            if let Some(properties) = properties.as_object_mut() {
                properties.remove("versionInfo");
            }
            let numbers =
                json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 65535}});
            let texts = json!({"type": "array", "items": {"type": "string"}});
            properties["id"] = json!({
                "type": "string",
                "description": "Relative ids are relative to `/`, or in the document of a group to that group. \
                    Required, unless the path of the request names the app.",
            });
            properties["ports"] = deprecated(numbers, "Service ports; see `portDefinitions`.");
            properties["uris"] = deprecated(texts, "Files to fetch; see `fetch`.");
            properties["ipAddress"] = deprecated(json!({"type": "object"}), "See `networks`.");
        }
        "Pod" => {
            schema["description"] = json!("A definition of a pod.");
        }
        "Docker" => {
            let properties = &mut schema["properties"];
            let mappings = json!({"type": "array", "items": {"$ref": format!("{REFERENCE}PortMapping")}});
            properties["network"] = deprecated(json!({"type": "string"}), "See `networks`.");
            properties["portMappings"] = deprecated(mappings, "See `portMappings` of the container.");
        }
        "Protocol" => {
            if let Some(names) = schema["oneOf"].as_array_mut() {
                names.push(json!({"type": "string", "const": "tcp,udp"}));
            }
        }
        _ => {}
    }
}

/// A group's document, which the service reads member by member.
fn group() -> Value {
    let reference = |name: &str| json!({"$ref": format!("{REFERENCE}{name}")});
    let list =
        |of: Value, description: &str| json!({"type": "array", "items": of, "description": description});
    json!({
        "type": "object",
        "description": "A group and everything below it. Ids are relative to the group that they stand in.",
        "properties": {
            "id": {"type": "string", "description": "Required, unless the path of the request names the group."},
            "apps": list(reference("AppInput"), "Replaces all apps of the group; absent: they stay."),
            "groups": list(reference("GroupInput"), "Replaces all groups of the group; absent: they stay."),
            "dependencies": list(json!({"type": "string"}), "Ids of apps and groups that all apps below the group need."),
            "scaleBy": {
                "type": "number", "minimum": 0,
                "description": "The numbers of instances of all apps below the group are multiplied by this.",
            },
            "version": {
                "type": "string", "format": "date-time",
                "description": "The group returns to its definitions at this version.",
            },
            "enforceRole": {
                "type": "boolean",
                "description": "Whether the group's name is the role of new apps and pods below it. Only of groups in \
                    the root group.",
            },
        },
    })
}
