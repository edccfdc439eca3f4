//! Fields of a client's document that the service does not know. As in upstream, they are accepted
//! and have no effect. The response names them in the header `X-Transom-Unknown-Fields`, and
//! `strict=true` rejects them, so that a misspelt or misplaced field is noticed.
//!
//! The known fields are those of the schemas of requests in the OpenAPI document. Fields that the
//! service adds to definitions in its responses are known, too: a document that was read can be
//! written back.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, OnceLock};

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};
use transom_common::text::clip;
use transom_web::routes::Schemas;
use transom_web::{ApiError, Document, Problems};

use super::app::AppInfo;
use super::input_schemas;
use super::query::Query;
use crate::model::{App, Pod};

/// Maximum number of fields that are reported; the others are counted.
const MAX_FIELDS: usize = 100;
/// Maximum number of fields in the header; the others are counted.
const MAX_HEADER_FIELDS: usize = 16;
/// Maximum length of a name in a path in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length of the header in bytes, without the number of the other fields.
const MAX_HEADER_BYTES: usize = 2048;
/// Names less similar than this are no suggestion.
const MIN_SIMILARITY: f64 = 0.8;
const HEADER: HeaderName = HeaderName::from_static("x-transom-unknown-fields");
const REFERENCE: &str = "#/components/schemas/";

static SCHEMAS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut schemas = Schemas::default();
    schemas.of::<App>();
    schemas.of::<AppInfo<'_>>();
    schemas.of::<Pod>();
    let mut schemas = schemas.finish();
    input_schemas::add(&mut schemas);
    schemas
});

/// The kind of a client's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// An app, or a list of apps.
    App,
    /// A pod.
    Pod,
    /// A group.
    Group,
}

/// A field without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Its path in the document, such as `/container/docker/imgae`.
    pub path: String,
    /// The path of a known field that was probably meant.
    pub meant: Option<String>,
}

impl UnknownField {
    /// Says in words that the field has no effect, and which one was probably meant.
    pub fn text(&self) -> String {
        let meant = self.meant.as_ref();
        let meant = meant
            .map(|meant| format!("; did you mean {meant}?"))
            .unwrap_or_default();
        format!("is not a known field, so it has no effect{meant}")
    }
}

/// The unknown fields of a document, at most 100, and the number of the others. The cost is linear
/// in the size of the document.
pub fn unknown_fields(document: &Value, definition: Definition) -> (Vec<UnknownField>, usize) {
    let root = match definition {
        Definition::App => "AppInput",
        Definition::Pod => "PodInput",
        Definition::Group => "GroupInput",
    };
    let mut search = Search {
        root,
        found: Vec::new(),
        more: 0,
    };
    let nodes = resolve(root);
    match document {
        Value::Array(items) if definition == Definition::App => {
            for (index, item) in items.iter().enumerate() {
                search.visit(item, &nodes, &format!("/({index})"));
            }
        }
        document => search.visit(document, &nodes, ""),
    }
    (search.found, search.more)
}

struct Search {
    root: &'static str,
    found: Vec<UnknownField>,
    more: usize,
}

/// The alternatives of a schema.
type Nodes = Vec<&'static Value>;

/// The alternatives of the schema with this name.
fn resolve(name: &str) -> Nodes {
    let mut nodes = Nodes::new();
    // The schemas of responses have the fields that the service adds.
    let added = match name {
        "AppInput" => Some("AppInfo"),
        "PodInput" => Some("Pod"),
        _ => None,
    };
    for name in [Some(name), added].into_iter().flatten() {
        if let Some(schema) = SCHEMAS.get(name) {
            add(schema, &mut nodes);
        }
    }
    nodes
}

/// Adds a schema, or the alternatives that it has.
fn add(schema: &'static Value, nodes: &mut Nodes) {
    if let Some(name) = schema["$ref"].as_str() {
        nodes.extend(resolve(name.trim_start_matches(REFERENCE)));
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        for alternative in schema[alternatives].as_array().into_iter().flatten() {
            add(alternative, nodes);
        }
    }
    nodes.push(schema);
}

impl Search {
    fn visit(&mut self, value: &Value, nodes: &[&'static Value], path: &str) {
        match value {
            Value::Object(members) => self.visit_object(members, nodes, path),
            Value::Array(items) => {
                let mut below = Nodes::new();
                for node in nodes {
                    if let Some(items) = node.get("items") {
                        add(items, &mut below);
                    }
                }
                for (index, item) in items.iter().enumerate() {
                    self.visit(item, &below, &format!("{path}({index})"));
                }
            }
            _ => {}
        }
    }

    fn visit_object(&mut self, members: &Map<String, Value>, nodes: &[&'static Value], path: &str) {
        let properties = || nodes.iter().filter_map(|node| node["properties"].as_object());
        // Without properties it is a map whose names the client chooses, or of any other type.
        let values: Vec<&'static Value> = nodes
            .iter()
            .filter_map(|node| node.get("additionalProperties"))
            .collect();
        if values.is_empty() && properties().next().is_none() {
            return;
        }
        for (name, value) in members {
            let mut below = Nodes::new();
            for schema in properties().filter_map(|properties| properties.get(name)) {
                add(schema, &mut below);
            }
            if below.is_empty() {
                for schema in &values {
                    add(schema, &mut below);
                }
            }
            let path = format!("{path}/{}", clip(name, MAX_NAME_BYTES));
            if !below.is_empty() {
                self.visit(value, &below, &path);
            } else if !says_nothing(name, value) {
                let known = properties().flat_map(Map::keys).map(String::as_str);
                self.report(path, name, known.collect());
            }
        }
    }

    /// `known` are the names of the known fields at the same place.
    fn report(&mut self, path: String, name: &str, known: BTreeSet<&str>) {
        if self.found.len() == MAX_FIELDS {
            self.more += 1;
            return;
        }
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        // A long name is no misspelt one, and comparing it would take long.
        let similar = known
            .into_iter()
            .filter(|_| name.len() <= MAX_NAME_BYTES)
            .map(|known| {
                let similarity =
                    strsim::jaro_winkler(&name.to_ascii_lowercase(), &known.to_ascii_lowercase());
                (similarity, known)
            });
        let nearest = similar.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let nearest = nearest.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
        let meant = self
            .place_of(name)
            .or_else(|| Some(format!("{parent}/{}", nearest?.1)));
        self.found.push(UnknownField { path, meant });
    }

    /// The place of a field with this name elsewhere in the document, the shallowest one.
    fn place_of(&self, name: &str) -> Option<String> {
        let mut seen = BTreeSet::from([self.root]);
        let mut open: Vec<(String, Nodes)> = vec![(String::new(), resolve(self.root))];
        while !open.is_empty() {
            let mut next = Vec::new();
            for (path, nodes) in open {
                for (member, schema) in nodes
                    .iter()
                    .filter_map(|node| node["properties"].as_object())
                    .flatten()
                {
                    let path = format!("{path}/{member}");
                    if member == name {
                        return Some(path);
                    }
                    let of_items = schema.get("items").unwrap_or(schema);
                    let reference = of_items["$ref"].as_str().unwrap_or_default();
                    if !reference.is_empty() && seen.insert(reference) {
                        let mut nodes = Nodes::new();
                        add(of_items, &mut nodes);
                        next.push((path, nodes));
                    }
                }
            }
            open = next;
        }
        None
    }
}

/// Whether an unknown field says nothing: `null`, which older definitions have for fields that are
/// gone, and the empty lists of pods in the groups of responses.
fn says_nothing(name: &str, value: &Value) -> bool {
    value.is_null() || name == "pods" && value.as_array().is_some_and(Vec::is_empty)
}

/// The header of a response that names unknown fields.
fn header_value(fields: &[UnknownField], more: usize) -> Option<HeaderValue> {
    let mut text = String::new();
    let mut named = 0;
    for field in fields.iter().take(MAX_HEADER_FIELDS) {
        let path = header_safe(&field.path);
        if text.len() + path.len() > MAX_HEADER_BYTES {
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&path);
        named += 1;
    }
    let more = more + fields.len() - named;
    if more > 0 {
        // Writing into a String does not fail.
        let _ = write!(text, "; more={more}");
    }
    (!fields.is_empty())
        .then(|| HeaderValue::from_str(&text).ok())
        .flatten()
}

/// A path with all but visible ASCII characters, and the separators of the header, percent-encoded.
fn header_safe(path: &str) -> String {
    let mut safe = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b",;%\"".contains(&byte) {
            safe.push(char::from(byte));
        } else {
            let _ = write!(safe, "%{byte:02X}");
        }
    }
    safe
}

/// Carries the header from the handler to the response.
#[derive(Clone, Debug, Default)]
struct Report(Arc<OnceLock<HeaderValue>>);

/// Adds the header to the response of a request whose document has unknown fields.
pub(super) async fn report(mut request: Request, next: Next) -> Response {
    if ![Method::POST, Method::PUT, Method::PATCH].contains(request.method()) {
        return next.run(request).await;
    }
    let report = Report::default();
    request.extensions_mut().insert(report.clone());
    let mut response = next.run(request).await;
    if let Some(value) = report.0.get() {
        response.headers_mut().insert(HEADER, value.clone());
    }
    response
}

/// A [`Document`] with a definition, or a part of one. Its kind is that of the request's path.
#[derive(Debug)]
pub(super) struct DefinitionBody {
    document: Document,
    definition: Definition,
    is_strict: bool,
    report: Report,
}

impl DefinitionBody {
    /// The parsed body.
    pub(super) fn value(&self) -> &Value {
        self.document.value()
    }

    /// As [`Document::check`]; also looks for unknown fields.
    pub(super) async fn check<T: Send + 'static>(
        self,
        rules: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Self {
            document,
            definition,
            is_strict,
            report,
        } = self;
        let check = move |value: Value| {
            let (fields, more) = unknown_fields(&value, definition);
            if let Some(value) = header_value(&fields, more) {
                // The body of a request is checked once.
                let _ = report.0.set(value);
            }
            if is_strict && !fields.is_empty() {
                return Err(ApiError::invalid(&problems(&fields, more)));
            }
            rules(value)
        };
        document.check(check).await
    }
}

fn problems(fields: &[UnknownField], more: usize) -> Problems {
    let mut problems = Problems::default();
    for field in fields {
        problems.add(field.path.as_str(), field.text());
    }
    if more > 0 {
        problems.add("/", format!("has {more} more unknown fields"));
    }
    problems
}

impl<S: Send + Sync> FromRequest<S> for DefinitionBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let query = Query::from_request_parts(&mut parts, state).await?;
        let report = parts.extensions.get::<Report>().cloned().unwrap_or_default();
        let definition = match parts
            .uri
            .path()
            .split('/')
            .filter(|segment| !segment.is_empty())
            .nth(1)
        {
            Some("pods") => Definition::Pod,
            Some("groups") => Definition::Group,
            _ => Definition::App,
        };
        Ok(Self {
            document: Document::from_request(Request::from_parts(parts, body), state).await?,
            definition,
            is_strict: query.flag("strict", false),
            report,
        })
    }
}

#[cfg(test)]
#[path = "unknown_fields_tests.rs"]
mod tests;
