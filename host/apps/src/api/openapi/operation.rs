//! Builds the description of paths and of their operations.

use serde_json::{Map, Value, json};

use super::parameters::CHANGE;

/// One method of a path: its parameters, its body and its responses.
pub(super) struct Operation {
    method: &'static str,
    parameters: Vec<Value>,
    members: Map<String, Value>,
    responses: Map<String, Value>,
    /// Whether the body is a definition, whose unknown fields are reported.
    has_definition: bool,
}

impl Operation {
    /// An operation with its unique id and a summary.
    pub(super) fn new(method: &'static str, id: &str, summary: &str) -> Self {
        let mut members = Map::new();
        members.insert("operationId".to_owned(), json!(id));
        members.insert("summary".to_owned(), json!(summary));
        Self {
            method,
            parameters: Vec::new(),
            members,
            responses: Map::new(),
            has_definition: false,
        }
    }

    pub(super) fn description(mut self, text: &str) -> Self {
        self.members.insert("description".to_owned(), json!(text));
        self
    }

    /// Adds parameters by their names in the components of the document.
    pub(super) fn with_parameters(mut self, names: &[&str]) -> Self {
        self.parameters.extend(names.iter().map(|name| parameter(name)));
        self
    }

    /// Adds the parameters of every change, and the statuses with which changes are rejected.
    pub(super) fn change(self) -> Self {
        self.with_parameters(&["force"])
            .with_parameters(&CHANGE)
            .with_errors(&[400, 403, 409, 503])
    }

    /// Adds the same for a deletion, which has `force` unless the parameter says otherwise.
    pub(super) fn deletion(self) -> Self {
        self.with_parameters(&["forceUnlessFalse"])
            .with_parameters(&CHANGE)
            .with_errors(&[400, 403, 409, 503])
    }

    /// Adds the JSON document that is the body of the request.
    pub(super) fn with_body(mut self, schema: &Value) -> Self {
        let body = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        self.members.insert("requestBody".to_owned(), body);
        self.with_errors(&[400, 422])
    }

    /// Adds a definition, or a part of one, that is the body of the request.
    pub(super) fn with_definition(mut self, schema: &Value) -> Self {
        self.has_definition = true;
        self.with_body(schema).with_parameters(&["strict"])
    }

    /// Adds a response with a JSON document.
    pub(super) fn with_response(self, status: u16, description: &str, schema: &Value) -> Self {
        let content = json!({"application/json": {"schema": schema}});
        self.with_response_content(status, description, content)
    }

    /// Adds a response with content of these types.
    pub(super) fn with_response_content(mut self, status: u16, description: &str, content: Value) -> Self {
        let mut response = json!({"description": description});
        if content != Value::Null {
            response["content"] = content;
        }
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Adds a response without a body.
    pub(super) fn with_empty_response(self, status: u16, description: &str) -> Self {
        self.with_response_content(status, description, Value::Null)
    }

    /// Adds headers to the response with this status, by their names in the components of the
    /// document.
    pub(super) fn headers(mut self, status: u16, names: &[&str]) -> Self {
        let headers = names.iter().map(|name| {
            let reference = json!({"$ref": format!("#/components/headers/{name}")});
            ((*name).to_owned(), reference)
        });
        let headers: Map<String, Value> = headers.collect();
        self.responses[&status.to_string()]["headers"] = json!(headers);
        self
    }

    /// Adds errors with these statuses.
    pub(super) fn with_errors(mut self, statuses: &[u16]) -> Self {
        for status in statuses {
            let reference = json!({"$ref": format!("#/components/responses/{}", error_name(*status))});
            self.responses.insert(status.to_string(), reference);
        }
        self
    }
}

/// The statuses of errors with the names and descriptions of their responses.
const ERRORS: [(u16, &str, &str); 7] = [
    (
        400,
        "BadRequest",
        "The body is not valid JSON, or a parameter has an invalid value.",
    ),
    (
        403,
        "Forbidden",
        "The maximum number of apps or deployments is reached, or the client may only read.",
    ),
    (404, "NotFound", "The resource does not exist."),
    (405, "MethodNotAllowed", "The path does not support the method."),
    (
        409,
        "Conflict",
        "A running deployment locks the resource, and `deployments` has its id; or the resource to be created \
         already exists, and the error has no member `deployments`.",
    ),
    (
        422,
        "Unprocessable",
        "The document has the wrong shape or violates rules. `details` has all problems with their paths.",
    ),
    (
        503,
        "Unavailable",
        "The store or a component did not answer. Nothing has changed.",
    ),
];

fn error_name(status: u16) -> &'static str {
    let known = ERRORS.iter().find(|(known, ..)| *known == status);
    known.map_or("Error", |(_, name, _)| name)
}

/// The responses that operations refer to. `error` is the schema of their documents.
pub(super) fn responses(error: &Value) -> Value {
    let response = |description: &str| {
        let content = json!({"application/json": {"schema": error}});
        json!({"description": description, "content": content})
    };
    let named = ERRORS.iter().map(|(status, name, description)| {
        let mut response = response(description);
        if *status == 503 {
            response["headers"] = json!({"Retry-After": {"$ref": "#/components/headers/Retry-After"}});
        }
        ((*name).to_owned(), response)
    });
    let mut responses: Map<String, Value> = named.collect();
    let other =
        "Any other error, such as 401 (credentials), 413 (a body that is too large) and 502 (no leader).";
    responses.insert("Error".to_owned(), response(other));
    responses.into()
}

fn parameter(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// All paths.
#[derive(Default)]
pub(super) struct Paths(Map<String, Value>);

impl Paths {
    /// Adds a path. Its parameters are the names in braces.
    pub(super) fn add<const N: usize>(&mut self, tag: &str, path: &str, operations: [Operation; N]) {
        let mut item = Map::new();
        let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let names: Vec<Value> = names.map(parameter).collect();
        if !names.is_empty() {
            item.insert("parameters".to_owned(), names.into());
        }
        for mut operation in operations {
            let successes = operation
                .responses
                .iter_mut()
                .filter(|(status, _)| status.starts_with('2'));
            for (_, response) in successes.filter(|_| operation.has_definition) {
                let reference = json!({"$ref": "#/components/headers/X-Transom-Unknown-Fields"});
                response["headers"]["X-Transom-Unknown-Fields"] = reference;
            }
            operation.responses.insert(
                "default".to_owned(),
                json!({"$ref": "#/components/responses/Error"}),
            );
            let mut members = operation.members;
            members.insert("tags".to_owned(), json!([tag]));
            if !operation.parameters.is_empty() {
                members.insert("parameters".to_owned(), operation.parameters.into());
            }
            members.insert("responses".to_owned(), operation.responses.into());
            item.insert(operation.method.to_owned(), members.into());
        }
        self.0.insert(path.to_owned(), item.into());
    }

    pub(super) fn finish(self) -> Value {
        self.0.into()
    }
}
