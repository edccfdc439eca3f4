//! The parameters of routes.

use serde_json::{Value, json};

/// A parameter of a path, a query or a header.
#[derive(Debug)]
pub struct Parameter {
    /// Its key in the table, unique there.
    pub(super) key: &'static str,
    /// The name in requests.
    pub(super) name: &'static str,
    pub(super) location: &'static str,
    pub(super) spans: bool,
    pub(super) description: &'static str,
    pub(super) values: Values,
}

/// The values of a parameter.
#[derive(Debug)]
pub enum Values {
    /// A boolean, with its default.
    Flag(bool),
    /// Any text.
    Text,
    /// A text with a pattern.
    Pattern(&'static str),
    /// A text, shown with examples.
    Examples(&'static [&'static str]),
    /// One of these texts. A path with another one has no route.
    OneOf(&'static [&'static str]),
    /// A whole number, with its minimum.
    From(u32),
    /// A whole number, with its default and its maximum.
    UpTo(u64, u64),
    /// A text; the parameter may be repeated.
    List,
    /// One of these texts; the parameter may be repeated.
    ListOf(&'static [&'static str]),
    /// Values with this schema, which is a JSON document.
    Schema(fn() -> Value),
}

impl Values {
    fn schema(&self) -> Value {
        match self {
            Self::Flag(default) => json!({"type": "boolean", "default": default}),
            Self::Text => json!({"type": "string"}),
            Self::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            Self::Examples(examples) => json!({"type": "string", "examples": examples}),
            Self::OneOf(values) => json!({"type": "string", "enum": values}),
            Self::From(least) => json!({"type": "integer", "minimum": least}),
            Self::UpTo(default, max) => json!({"type": "integer", "default": default, "maximum": max}),
            Self::List => json!({"type": "array", "items": {"type": "string"}}),
            Self::ListOf(values) => json!({"type": "array", "items": {"type": "string", "enum": values}}),
            Self::Schema(schema) => schema(),
        }
    }
}

impl Parameter {
    const fn new(
        location: &'static str,
        key: &'static str,
        description: &'static str,
        values: Values,
    ) -> Self {
        Self {
            key,
            name: key,
            location,
            spans: false,
            description,
            values,
        }
    }

    /// A segment of the path.
    pub const fn path(name: &'static str, description: &'static str, values: Values) -> Self {
        Self::new("path", name, description, values)
    }

    /// One or several segments of the path.
    pub const fn span(name: &'static str, description: &'static str) -> Self {
        Self {
            spans: true,
            ..Self::new("path", name, description, Values::Text)
        }
    }

    /// A parameter of the query.
    pub const fn query(name: &'static str, description: &'static str, values: Values) -> Self {
        Self::new("query", name, description, values)
    }

    /// A header of the request.
    pub const fn header(name: &'static str, description: &'static str, values: Values) -> Self {
        Self::new("header", name, description, values)
    }

    /// The same with a key that is not the name in requests, because several parameters have it.
    #[must_use]
    pub const fn keyed(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    pub(super) fn document(&self) -> Value {
        let mut document = json!({
            "name": self.name, "in": self.location, "description": self.description, "schema": self.values.schema(),
        });
        if self.location == "path" {
            document["required"] = json!(true);
        }
        document
    }
}
