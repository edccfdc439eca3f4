//! The OpenAPI document of a table.

use serde_json::{Map, Value, json};

use super::{Schemas, Table, parameters_in};
use crate::Requirement;

pub(super) const JSON: &str = "application/json";

/// The texts of a document that belong to no route.
#[derive(Debug)]
pub struct Info {
    /// The name of the API.
    pub title: &'static str,
    /// The version of the API.
    pub version: &'static str,
    /// What holds for all routes.
    pub description: &'static str,
    /// The schema of the JSON documents of errors.
    pub error: fn(&mut Schemas) -> Value,
    /// The errors to which routes refer by their statuses.
    pub errors: &'static [ErrorResponse],
    /// The headers of responses: name, description and type.
    pub headers: &'static [(&'static str, &'static str, &'static str)],
}

/// An error.
#[derive(Debug)]
pub struct ErrorResponse {
    /// `None` for all statuses that are not listed.
    pub(super) status: Option<u16>,
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    content_types: &'static [&'static str],
    headers: &'static [&'static str],
    pub(super) is_common: bool,
}

impl ErrorResponse {
    /// An error with a JSON document: its status, its name in the document, and when it is returned.
    pub const fn new(status: u16, name: &'static str, description: &'static str) -> Self {
        Self {
            status: Some(status),
            name,
            description,
            content_types: &[JSON],
            headers: &[],
            is_common: false,
        }
    }

    /// All errors that a route does not list.
    pub const fn other(name: &'static str, description: &'static str) -> Self {
        Self {
            status: None,
            is_common: true,
            ..Self::new(0, name, description)
        }
    }

    /// The same, returned by every route.
    #[must_use]
    pub const fn common(self) -> Self {
        Self {
            is_common: true,
            ..self
        }
    }

    /// The same with content of these types; what is not JSON is text.
    #[must_use]
    pub const fn of_types(self, content_types: &'static [&'static str]) -> Self {
        Self {
            content_types,
            ..self
        }
    }

    /// The same with headers.
    #[must_use]
    pub const fn with_headers(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }

    pub(super) fn key(&self) -> String {
        let status = self.status.map(|status| status.to_string());
        status.unwrap_or_else(|| "default".to_owned())
    }

    /// The response with a description.
    pub(super) fn document(&self, description: &str, error: &Value) -> Value {
        let mut document = json!({"description": description});
        for content_type in self.content_types {
            let text = || json!({"type": "string"});
            let schema = if *content_type == JSON {
                error.clone()
            } else {
                text()
            };
            document["content"][*content_type] = json!({"schema": schema});
        }
        for name in self.headers {
            document["headers"][*name] = reference("headers", name);
        }
        document
    }
}

/// A reference to a component of the document.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

impl<S> Table<S> {
    /// The OpenAPI document.
    pub fn document(&self) -> Value {
        let (info, mut schemas) = (&self.info, Schemas::default());
        let error = (info.error)(&mut schemas);
        let mut paths = Map::new();
        for route in &self.routes {
            let item = paths.entry(&*route.path).or_insert_with(|| json!({}));
            let names = parameters_in(&route.path);
            let names: Vec<Value> = names.map(|name| reference("parameters", name)).collect();
            if !names.is_empty() {
                item["parameters"] = names.into();
            }
            item[route.method.as_str().to_lowercase()] = route.document(info.errors, &error, &mut schemas);
        }
        let responses = info.errors.iter().map(|one| {
            let response = one.document(one.description, &error);
            (one.name.to_owned(), response)
        });
        let responses: Map<String, Value> = responses.collect();
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|parameter| (parameter.key.to_owned(), parameter.document()));
        let headers = info.headers.iter().map(|(name, description, kind)| {
            let header = json!({"description": description, "schema": {"type": kind}});
            ((*name).to_owned(), header)
        });
        let mut document = json!({
            "openapi": "3.1.0",
            "info": {"title": info.title, "version": info.version, "description": info.description},
            "paths": paths,
            "components": {
                "schemas": schemas.finish(),
                "parameters": parameters.collect::<Map<String, Value>>(),
                "headers": headers.collect::<Map<String, Value>>(),
                "responses": responses,
            },
        });
        if self
            .routes
            .iter()
            .any(|route| route.requirement != Requirement::Nothing)
        {
            // Credentials are needed only if the port is configured with some.
            document["security"] = json!([{}, {"basic": []}]);
            document["components"]["securitySchemes"] = json!({"basic": {"type": "http", "scheme": "basic"}});
        }
        document
    }
}

/// Formats a document with indentation and a final line break.
pub fn text(document: &Value) -> String {
    format!("{document:#}\n")
}
