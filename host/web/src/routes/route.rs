//! One route, and its description.

use std::borrow::Cow;
use std::fmt;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::Schemas;
use super::document::{ErrorResponse, JSON, reference};
use crate::Requirement;

/// A schema, from the schemas of types.
type Schema = Box<dyn Fn(&mut Schemas) -> Value + Send + Sync>;

/// One method of one path.
pub struct Route<S = ()> {
    pub(super) method: Method,
    pub(super) path: Cow<'static, str>,
    pub(super) routed_by: Option<&'static str>,
    pub(super) handler: MethodRouter<S>,
    pub(super) requirement: Requirement,
    changes: bool,
    local: bool,
    id: Cow<'static, str>,
    tag: Option<&'static str>,
    summary: &'static str,
    description: Option<&'static str>,
    parameters: Vec<&'static str>,
    body: Option<Schema>,
    responses: Vec<Response>,
    /// The headers of all successful responses.
    headers: Vec<&'static str>,
    /// The statuses of errors, with their description if it is not that of the table.
    errors: Vec<(u16, Option<&'static str>)>,
    has_error_bodies: bool,
}

/// A response that is no error of the table.
struct Response {
    status: u16,
    description: Cow<'static, str>,
    content: Vec<(&'static str, Schema)>,
    headers: Vec<&'static str>,
}

impl<S: Clone + Send + Sync + 'static> Route<S> {
    /// A route with its handler, the unique id of its operation and a summary. Methods that only read
    /// need a trusted network or credentials, and so do the others, which count as changes.
    pub fn new<T: 'static>(
        method: Method,
        path: impl Into<Cow<'static, str>>,
        id: impl Into<Cow<'static, str>>,
        summary: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        let mut route = Self::described(method, path, id, summary);
        if let Ok(filter) = MethodFilter::try_from(route.method.clone()) {
            route.handler = on(filter, handler);
        }
        route
    }

    /// A route that is only described, because the service has a router of its own.
    pub fn described(
        method: Method,
        path: impl Into<Cow<'static, str>>,
        id: impl Into<Cow<'static, str>>,
        summary: &'static str,
    ) -> Self {
        Self {
            handler: MethodRouter::new(),
            changes: method != Method::GET,
            method,
            path: path.into(),
            routed_by: None,
            requirement: Requirement::NetworkOrCredentials,
            local: false,
            id: id.into(),
            tag: None,
            summary,
            description: None,
            parameters: Vec::new(),
            body: None,
            responses: Vec::new(),
            headers: Vec::new(),
            errors: Vec::new(),
            has_error_bodies: true,
        }
    }

    /// A route that reads.
    pub fn get<T: 'static>(
        path: impl Into<Cow<'static, str>>,
        id: impl Into<Cow<'static, str>>,
        summary: &'static str,
        handler: impl Handler<T, S>,
    ) -> Self {
        Self::new(Method::GET, path, id, summary, handler)
    }
}

impl<S> Route<S> {
    /// What a request must have.
    #[must_use]
    pub fn requires(mut self, requirement: Requirement) -> Self {
        self.requirement = requirement;
        self
    }

    /// The route changes something, whatever its method.
    #[must_use]
    pub fn changing(mut self) -> Self {
        self.changes = true;
        self
    }

    /// A standby answers it itself.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// The section of the document that lists the route.
    #[must_use]
    pub fn tag(mut self, tag: &'static str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// More than the summary says.
    #[must_use]
    pub fn description(mut self, text: &'static str) -> Self {
        self.description = Some(text);
        self
    }

    /// Adds parameters by their keys, in addition to those in the path.
    #[must_use]
    pub fn parameters(mut self, keys: &[&'static str]) -> Self {
        self.parameters.extend(keys);
        self
    }

    /// The JSON document that is the body of the request.
    #[must_use]
    pub fn body(mut self, schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static) -> Self {
        self.body = Some(Box::new(schema));
        self
    }

    /// The JSON document of a response with the status 200.
    #[must_use]
    pub fn returns<T: JsonSchema + 'static>(self, description: impl Into<Cow<'static, str>>) -> Self {
        self.response(200, description, Schemas::of::<T>)
    }

    /// A response with a JSON document.
    #[must_use]
    pub fn response(
        self,
        status: u16,
        description: impl Into<Cow<'static, str>>,
        schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.empty(status, description).content(JSON, schema)
    }

    /// A response with the status 200 and a text of this content type.
    #[must_use]
    pub fn text(self, content_type: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        self.empty(200, description)
            .content(content_type, |_| json!({"type": "string"}))
    }

    /// A response without a body, unless `content` follows.
    #[must_use]
    pub fn empty(mut self, status: u16, description: impl Into<Cow<'static, str>>) -> Self {
        self.responses.push(Response {
            status,
            description: description.into(),
            content: Vec::new(),
            headers: Vec::new(),
        });
        self
    }

    /// Content of the last response.
    #[must_use]
    pub fn content(
        mut self,
        content_type: &'static str,
        schema: impl Fn(&mut Schemas) -> Value + Send + Sync + 'static,
    ) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.content.push((content_type, Box::new(schema)));
        }
        self
    }

    /// Headers of the last response, by their names in the table.
    #[must_use]
    pub fn headers(mut self, names: &[&'static str]) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers.extend(names);
        }
        self
    }

    /// Headers of all responses with a status of 2xx.
    #[must_use]
    pub fn headers_of_successes(mut self, names: &[&'static str]) -> Self {
        self.headers.extend(names);
        self
    }

    /// The path for the router, if its syntax differs or another route has the handler.
    #[must_use]
    pub fn routed_by(mut self, path: &'static str) -> Self {
        self.routed_by = Some(path);
        self
    }

    /// Errors with these statuses.
    #[must_use]
    pub fn errors(mut self, statuses: &[u16]) -> Self {
        self.errors.extend(statuses.iter().map(|status| (*status, None)));
        self
    }

    /// An error with a description of its own.
    #[must_use]
    pub fn error(mut self, status: u16, description: &'static str) -> Self {
        self.errors.push((status, Some(description)));
        self
    }

    /// The errors that the handler returns have no body.
    #[must_use]
    pub fn without_error_bodies(mut self) -> Self {
        self.has_error_bodies = false;
        self
    }

    /// The path, with parameters in braces.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The summary.
    pub fn summary(&self) -> &'static str {
        self.summary
    }

    /// What a request must have.
    pub fn requirement(&self) -> Requirement {
        self.requirement
    }

    /// Whether it changes something: it is audited, and not for the user who may only read.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Whether a standby answers it itself.
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// The description. `all`: the errors of the table, `error`: the schema of their documents.
    pub(super) fn document(&self, all: &[ErrorResponse], error: &Value, schemas: &mut Schemas) -> Value {
        let mut responses = Map::new();
        for common in all.iter().filter(|error| error.is_common) {
            responses.insert(common.key(), reference("responses", common.name));
        }
        for (status, description) in &self.errors {
            let known = all.iter().find(|error| error.status == Some(*status));
            let Some(known) = known else { continue };
            let text = description.unwrap_or(known.description);
            let response = if !self.has_error_bodies {
                json!({"description": text})
            } else if description.is_some() {
                known.document(text, error)
            } else {
                reference("responses", known.name)
            };
            responses.insert(status.to_string(), response);
        }
        for response in &self.responses {
            let common: &[&str] = if response.status < 300 { &self.headers } else { &[] };
            let document = response.document(common, schemas);
            responses.insert(response.status.to_string(), document);
        }
        let mut document = json!({"operationId": self.id, "summary": self.summary, "responses": responses});
        if let Some(tag) = self.tag {
            document["tags"] = json!([tag]);
        }
        if let Some(description) = self.description {
            document["description"] = json!(description);
        }
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|key| reference("parameters", key));
            document["parameters"] = parameters.collect();
        }
        if let Some(body) = &self.body {
            document["requestBody"] = json!({"required": true, "content": {JSON: {"schema": body(schemas)}}});
        }
        match self.requirement {
            Requirement::Nothing => document["security"] = json!([]),
            Requirement::NetworkOrCredentials => {}
            Requirement::Credentials | Requirement::CredentialsAlways => {
                document["security"] = json!([{"basic": []}]);
            }
        }
        document
    }
}

impl Response {
    fn document(&self, common_headers: &[&str], schemas: &mut Schemas) -> Value {
        let mut document = json!({"description": self.description});
        for (content_type, schema) in &self.content {
            document["content"][*content_type] = json!({"schema": schema(schemas)});
        }
        for name in self.headers.iter().chain(common_headers) {
            document["headers"][*name] = reference("headers", name);
        }
        document
    }
}

impl<S> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}
