//! The cost and the limits of every list and map in requests. The documents are generated from the
//! schemas of the API's description.

use std::collections::BTreeSet;

use axum::body::HttpBody;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use transom_testkit::assert_linear;
use transom_web::ApiError;

use crate::api::apps::read_all;
use crate::api::routes::document;
use crate::api::tasks::read_task_ids;
use crate::deploy::plan;
use crate::ids::{GroupId, SpecId};
use crate::model::lengths::tests::LIFTED;
use crate::model::pod::read_pod;
use crate::model::{Effect, Invalid, read, read_group};
use crate::settings::Checks;
use crate::testing::settings;
use crate::time::Moment;
use crate::tree::Tree;
use crate::tree::edit::{EditContext, Editor};

/// The maximum bytes of an answer.
const MAX_ANSWER: u64 = 64 << 10;

/// The documents of requests, by the name of their schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    App,
    Apps,
    Pod,
    Group,
    Tasks,
}

/// Parses a document and checks all rules, as a request on an empty tree.
fn check(root: Root, body: &Value) -> Result<(), ApiError> {
    let (before, settings, service_ports) = (Tree::default(), settings(), 10_000..=20_000);
    let context = EditContext {
        definitions: &settings,
        force: false,
        max_instances: 1_000,
        service_ports: &service_ports,
        checks: Checks::default(),
        version: Moment::now(),
    };
    let mut editor = Editor::new(&before, context);
    let some_id = |id: Option<SpecId>| id.unwrap_or_else(|| SpecId::parse("/a").unwrap());
    match root {
        Root::App => {
            let update = read(body)?;
            editor.put(some_id(update.id.clone()), update, false, false, "");
        }
        Root::Apps => {
            for (index, update) in read_all(body, false)?.into_iter().enumerate() {
                let id = some_id(update.id.clone());
                editor.put(id, update, false, false, &format!("/({index})"));
            }
        }
        Root::Pod => {
            let input = read_pod(body)?;
            editor.put_pod(some_id(input.id.clone()), input);
        }
        Root::Group => editor.put_group(read_group(body, &GroupId::root(), None)?),
        Root::Tasks => return read_task_ids(body.clone()).map(drop),
    }
    let edited = editor.finish()?;
    let groups: Vec<GroupId> = edited
        .groups
        .iter()
        .filter_map(|group| Some(group.after.as_ref()?.id.clone()))
        .collect();
    let steps = plan::steps(&edited.tree, &edited.specs, &groups, |_, _, _| Effect::Nothing);
    steps.map(drop).map_err(|cycle| {
        Invalid::Rules(transom_web::Problems::one("/dependencies", cycle.to_string())).into()
    })
}

/// A list or map in a document.
struct List {
    root: Root,
    path: Vec<Part>,
    /// The schema of its elements.
    element: Value,
    is_map: bool,
    max: usize,
}

/// A step from a document to a part of it.
#[derive(Clone)]
enum Part {
    /// A member of an object that has these other members.
    Member { others: Value, name: String },
    /// The only element of a list or map.
    Element { is_map: bool },
}

impl List {
    fn name(&self) -> String {
        let parts = self.path.iter().map(|part| match part {
            Part::Member { name, .. } => format!("/{name}"),
            Part::Element { is_map: false } => "(0)".to_owned(),
            Part::Element { is_map: true } => "/k".to_owned(),
        });
        let path: String = parts.collect();
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// The member that has the list.
    fn member(&self) -> &str {
        let names = self.path.iter().rev().filter_map(|part| match part {
            Part::Member { name, .. } => Some(name.as_str()),
            Part::Element { .. } => None,
        });
        names.into_iter().next().unwrap_or_default()
    }

    /// A document whose list has that many elements.
    fn document(&self, count: usize, element: impl Fn(usize) -> Value) -> Value {
        let mut value: Value = if self.is_map {
            (0..count).map(|n| (format!("k{n}"), element(n))).collect()
        } else {
            (0..count).map(element).collect()
        };
        for part in self.path.iter().rev() {
            value = match part {
                Part::Member { others, name } => {
                    let mut object = others.clone();
                    object[name] = value;
                    object
                }
                Part::Element { is_map: false } => json!([value]),
                Part::Element { is_map: true } => json!({"k": value}),
            };
        }
        value
    }
}

/// Collects the lists of schemas.
struct Walk {
    schemas: Map<String, Value>,
    root: Root,
    seen: BTreeSet<String>,
    lists: Vec<List>,
}

/// All lists and maps of all documents.
fn lists() -> Vec<List> {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut walk = Walk {
        schemas: schemas.clone(),
        root: Root::App,
        seen: BTreeSet::new(),
        lists: Vec::new(),
    };
    let body = |path: &str, method: &str| {
        document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"].clone()
    };
    for (root, schema) in [
        (Root::App, body("/v2/apps", "post")),
        (Root::Apps, body("/v2/apps", "put")),
        (Root::Pod, body("/v2/pods", "post")),
        (Root::Group, body("/v2/groups", "post")),
        (Root::Tasks, body("/v2/tasks/delete", "post")),
    ] {
        walk.root = root;
        assert!(schema.is_object(), "{root:?}");
        walk.visit(&schema, &[], &json!({}));
    }
    assert!(walk.lists.len() > 50, "{}", walk.lists.len());
    walk.lists
}

impl Walk {
    /// Follows a reference. A schema with a name is visited once.
    fn visit(&mut self, schema: &Value, path: &[Part], others: &Value) {
        if let Some(name) = reference(schema) {
            if self.seen.insert(name.to_owned()) {
                let schema = self.schemas[name].clone();
                self.visit(&schema, path, others);
            }
            return;
        }
        let is_map = schema
            .get("additionalProperties")
            .is_some_and(|more| *more != false);
        if schema["type"] == "array" || is_map {
            let (keyword, element) = if is_map {
                ("maxProperties", &schema["additionalProperties"])
            } else {
                ("maxItems", &schema["items"])
            };
            let mut list = List {
                root: self.root,
                path: path.to_vec(),
                element: element.clone(),
                is_map,
                max: 0,
            };
            let max = schema[keyword].as_u64();
            list.max =
                max.unwrap_or_else(|| panic!("{:?}{} has no {keyword}", self.root, list.name())) as usize;
            self.lists.push(list);
            let below = [path, &[Part::Element { is_map }]].concat();
            self.visit(element, &below, &json!({}));
        }
        // The members of one alternative would contradict those of the others.
        let mut own = schema.clone();
        if let Some(own) = own.as_object_mut() {
            own.retain(|keyword, _| !["oneOf", "anyOf", "allOf"].contains(&keyword.as_str()));
        }
        let mut all = others.clone();
        if let (Some(all), Value::Object(own)) = (all.as_object_mut(), self.sample(&own, 0, false)) {
            all.extend(own);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let part = Part::Member {
                others: all.clone(),
                name: name.clone(),
            };
            self.visit(property, &[path, &[part]].concat(), &json!({}));
        }
        for alternatives in ["oneOf", "anyOf", "allOf"] {
            for alternative in schema[alternatives].as_array().into_iter().flatten() {
                self.visit(alternative, path, &all);
            }
        }
    }

    /// An instance of a schema; those with other numbers have other texts. `full`: with all
    /// members.
    fn sample(&self, schema: &Value, number: usize, full: bool) -> Value {
        if let Some(name) = reference(schema) {
            return match name {
                "SpecId" => json!(format!("/a{number}")),
                // No further nesting.
                "GroupInput" => json!({"id": format!("g{number}")}),
                _ => self.sample(&self.schemas[name], number, full),
            };
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if let Some(first) = schema["enum"].get(0) {
            return first.clone();
        }
        let mut object = Map::new();
        for alternatives in ["oneOf", "anyOf", "allOf"] {
            let first = schema[alternatives].as_array().into_iter().flatten();
            let first = first
                .into_iter()
                .find(|alternative| alternative["type"] != "null");
            match first.map(|first| self.sample(first, number, full)) {
                Some(Value::Object(members)) => object.extend(members),
                Some(other) => return other,
                None => {}
            }
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds[0].clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("string") if schema["format"] == "date-time" => json!("2018-01-01T00:00:00.000Z"),
            Some("string") => json!(format!("a{number}")),
            Some("integer" | "number") => json!(1 + number % 1_000),
            Some("boolean") => json!(false),
            Some("array") if full => json!([self.sample(&schema["items"], number, false)]),
            Some("array") => json!([]),
            _ => {
                let required = schema["required"].as_array().into_iter().flatten();
                let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let is_id = name == "id";
                    if is_id && schema["properties"].get("scaleBy").is_some() {
                        object.insert(name.clone(), json!(format!("g{number}")));
                    } else if is_id
                        && ["constraints", "containers"]
                            .iter()
                            .any(|it| schema["properties"].get(it).is_some())
                    {
                        object.insert(name.clone(), json!(format!("/g0/a{number}")));
                    } else if full || required.contains(name.as_str()) {
                        object.insert(name.clone(), self.sample(property, number, full));
                    }
                }
                Value::Object(object)
            }
        }
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

fn answer_bytes(root: Root, body: &Value) -> u64 {
    let Err(error) = check(root, body) else { return 0 };
    error.into_response().body().size_hint().exact().unwrap()
}

/// Fails if the cost of a document is not linear in a number, or if its answer is not bounded.
fn assert_bounded(what: &str, root: Root, count: usize, document: impl Fn(usize) -> Value) {
    let (few, many) = (document(count), document(4 * count));
    assert_linear(what, || drop(check(root, &few)), || drop(check(root, &many)));
    for body in [few, many] {
        let bytes = answer_bytes(root, &body);
        assert!(bytes <= MAX_ANSWER, "{what}: an answer of {bytes} bytes");
    }
}

#[test]
fn cost_of_each_list_is_linear_and_its_answer_is_bounded() {
    LIFTED.set(true);
    let schemas = document()["components"]["schemas"].as_object().unwrap().clone();
    let samples = Walk {
        schemas,
        root: Root::App,
        seen: BTreeSet::new(),
        lists: Vec::new(),
    };
    for list in lists() {
        let sample = |number: usize, full: bool| samples.sample(&list.element, number, full);
        let variants: [(&str, usize, Element<'_>); 6] = [
            ("wrong types", 1_000, &|_| json!(true)),
            ("empty objects", 1_000, &|_| json!({})),
            ("long texts", 200, &|_| json!("\u{1}".repeat(200))),
            ("equal elements", 500, &|_| sample(0, false)),
            ("distinct elements", 500, &|number| sample(number, false)),
            ("full elements", 150, &|number| sample(number, true)),
        ];
        for (variant, count, element) in variants {
            let what = format!("{variant} in {:?} {}", list.root, list.name());
            assert_bounded(&what, list.root, count, |count| list.document(count, element));
        }
    }
}

#[test]
fn each_list_has_the_described_maximum_length() {
    for list in lists() {
        let too_long = format!("has {} elements, expected at most {}", list.max + 1, list.max);
        let answered = |count: usize| match check(list.root, &list.document(count, |_| json!(true))) {
            Ok(()) => String::new(),
            Err(error) => format!("{error:?}"),
        };
        let name = list.name();
        // The rules of constraints have their own texts.
        if list.max > 3 {
            let error = answered(list.max + 1);
            assert!(
                error.contains(&too_long) && error.contains(&name),
                "{:?} {name}: {error}",
                list.root
            );
            assert!(error.contains("status: 422"), "{error}");
        }
        assert!(
            !answered(list.max).contains("elements, expected at most"),
            "{name}"
        );
        assert!(
            list.max <= 5_000 || ["apps", "groups", "ids", "args", "argv", ""].contains(&list.member()),
            "{name}"
        );
    }
}

/// An element or a document by its number.
type Element<'a> = &'a dyn Fn(usize) -> Value;

#[test]
fn cost_of_lists_that_refer_to_each_other_is_linear() {
    LIFTED.set(true);
    let list = |count: usize, of: &dyn Fn(usize) -> Value| -> Value { (0..count).map(of).collect() };
    let cases: [(&str, Root, usize, Element<'_>); 8] = [
        ("networks and ports that name them", Root::App, 150, &|n| {
            json!({
                "id": "/a", "cmd": "sleep 1",
                "networks": list(n, &|i| json!({"mode": "container", "name": format!("n{i}")})),
                "container": {"type": "MESOS", "portMappings": list(n, &|i| json!({"networkNames": [format!("x{i}")], "name": format!("p{i}")}))},
            })
        }),
        (
            "health checks that differ",
            Root::App,
            500,
            &|n| json!({"id": "/a", "cmd": "sleep 1", "healthChecks": list(n, &|i| json!({"port": i % 60_000}))}),
        ),
        ("readiness checks and ports", Root::App, 500, &|n| {
            json!({
                "id": "/a", "cmd": "sleep 1",
                "portDefinitions": list(n, &|i| json!({"name": format!("p{i}")})),
                "readinessChecks": list(n, &|i| json!({"portName": format!("q{i}")})),
            })
        }),
        (
            "volumes, mounts and endpoints of containers",
            Root::Pod,
            150,
            &|n| {
                json!({
                    "id": "/a", "volumes": list(n, &|i| json!({"name": format!("v{i}")})),
                    "networks": list(n, &|i| json!({"mode": "container", "name": format!("n{i}")})),
                    "containers": list(n, &|i| json!({
                        "name": format!("c{i}"), "resources": {},
                        "endpoints": [{"name": format!("e{i}"), "networkNames": [format!("x{i}")]}],
                        "volumeMounts": [{"name": format!("v{i}"), "mountPath": "m"}, {"name": "none", "mountPath": "m"}],
                    })),
                })
            },
        ),
        ("exclusive volumes of the same name", Root::Group, 60, &|n| {
            let volume = json!({
                "containerPath": "/v", "mode": "RW",
                "external": {"name": "v", "provider": "dvdi", "options": {"dvdi/driver": "rexray"}},
            });
            json!({"id": "/g", "apps": list(n, &|i| json!({
                "id": format!("a{i}"), "cmd": "sleep 1", "upgradeStrategy": {"maximumOverCapacity": 0, "minimumHealthCapacity": 0},
                "container": {"type": "MESOS", "volumes": [volume]},
            }))})
        }),
        ("apps that depend on a group", Root::Group, 100, &|n| {
            let apps = |on: &'static [&'static str]| {
                list(
                    n,
                    &move |i| json!({"id": format!("a{i}"), "cmd": "sleep 1", "dependencies": on}),
                )
            };
            json!({"id": "/g", "groups": [{"id": "h", "apps": apps(&[])}, {"id": "k", "apps": apps(&["/g/h"])}]})
        }),
        ("a group that depends on many apps", Root::Group, 100, &|n| {
            let apps = list(n, &|i| json!({"id": format!("a{i}"), "cmd": "sleep 1"}));
            json!({"id": "/g", "groups": [
                {"id": "h", "apps": apps}, {"id": "k", "apps": apps, "dependencies": list(n, &|i| json!(format!("/g/h/a{i}")))},
            ]})
        }),
        ("a group that depends on its own apps", Root::Group, 100, &|n| {
            let apps = list(n, &|i| json!({"id": format!("a{i}"), "cmd": "sleep 1"}));
            json!({"id": "/g", "apps": apps, "dependencies": list(n, &|i| json!(format!("/g/a{i}")))})
        }),
    ];
    for (what, root, count, document) in cases {
        assert_bounded(what, root, count, document);
    }
}
