//! Compares requests and responses with the OpenAPI document. The client of the tests calls this
//! for every exchange.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::client::Answer;
use super::routes;

/// The document. Schemas of responses allow no members that they do not name.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = routes::document();
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    for (name, schema) in schemas {
        if !name.ends_with("Input") {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
    document
});

/// The statuses of errors that any operation may have.
const COMMON: &[u16] = &[401, 403, 413, 415, 421, 502, 503];

/// The validators by the text of their schema.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// The problems of a document with a schema of the OpenAPI document.
pub(super) fn problems(schema: &Value, document: &Value) -> Vec<String> {
    let validator = {
        let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = validators.entry(schema.to_string()).or_insert_with(|| {
            let mut root = schema.clone();
            root["components"] = json!({"schemas": DOCUMENT["components"]["schemas"]});
            let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
            let compiled = options.should_validate_formats(true).build(&root);
            Arc::new(compiled.unwrap_or_else(|error| panic!("{schema}: {error}")))
        });
        Arc::clone(compiled)
    };
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Fails if a request and its response are not as described. Returns the operation and the status,
/// such as `GET /v2/apps/{id} 200`; `None` for paths that are not described.
pub(super) fn check(method: &str, path: &str, body: &str, answer: &Answer) -> Option<String> {
    let template = template(path)?;
    let Some(operation) = DOCUMENT["paths"][template].get(method.to_lowercase()) else {
        assert!(
            answer.status >= 400 || ["HEAD", "OPTIONS"].contains(&method),
            "{method} {template} is not described: {answer:?}"
        );
        return None;
    };
    let exchange = format!("{method} {template} {}", answer.status);
    let status = answer.status.to_string();
    let responses = operation["responses"].as_object().unwrap();
    let response = resolved(responses.get(&status).unwrap_or(&responses["default"]));
    assert!(
        COMMON.contains(&answer.status) || responses.contains_key(&status),
        "{exchange} is not described: {answer:?}"
    );
    let kind = answer.headers.get("content-type").map(String::as_str);
    let kind = kind.map_or("", |kind| kind.split(';').next().unwrap_or_default());
    let content = response.get("content").and_then(Value::as_object);
    match content.and_then(|content| content.get(kind)) {
        Some(content) => {
            let found = problems(&content["schema"], &answer.body);
            assert!(
                found.is_empty(),
                "{exchange} {path}: {found:#?} in {:#}",
                answer.body
            );
        }
        None => assert!(
            content.is_none() && answer.body == "",
            "{exchange} is described without content of the type '{kind}': {answer:?}"
        ),
    }
    if answer.status < 300
        && let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema")
    {
        let mut body: Value = serde_json::from_str(body).unwrap();
        // As the schemas say in words, a member that is null counts as absent.
        if let Some(members) = body.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        let found = problems(schema, &body);
        assert!(
            found.is_empty(),
            "accepted body of {exchange}: {found:#?} in {body:#}"
        );
    }
    Some(exchange)
}

/// The response that a reference names, or the response itself.
fn resolved(response: &'static Value) -> &'static Value {
    match response["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    }
}

/// The path of the document that matches a requested path: of several, the one with the most
/// literal text.
fn template(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let path = format!("/{}", segments.join("/"));
    let templates = DOCUMENT["paths"].as_object().into_iter().flat_map(Map::keys);
    let fitting = templates.filter(|template| {
        // A path below the root group omits the group's id.
        matches(template, &path) || matches(&template.replacen("/{id}/", "/", 1), &path)
    });
    fitting.map(String::as_str).max_by_key(|template| {
        let names = template
            .split('{')
            .skip(1)
            .map(|rest| rest.find('}').unwrap() + 2);
        template.len() - names.sum::<usize>()
    })
}

/// Whether a path fits. Ids of apps, pods and groups may contain slashes.
fn matches(template: &str, path: &str) -> bool {
    let Some((literal, rest)) = template.split_once('{') else {
        return template == path;
    };
    let (Some(path), Some((name, rest))) = (path.strip_prefix(literal), rest.split_once('}')) else {
        return false;
    };
    let ends = (1..=path.len()).filter(|end| path.is_char_boundary(*end));
    let mut ends = ends.filter(|end| name == "id" || !path[..*end].contains('/'));
    ends.any(|end| matches(rest, &path[end..]))
}
