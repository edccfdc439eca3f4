//! The schemas of the documents that an API sends, from the types that it serializes.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// Collects the schemas that are referred to.
#[derive(Debug)]
pub struct Schemas(SchemaGenerator);

impl Default for Schemas {
    fn default() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings.transforms = vec![Box::new(RecursiveTransform(clean_up))];
        });
        Self(settings.into_generator())
    }
}

impl Schemas {
    /// A reference to the schema of a type, or the schema itself if it has no name.
    pub fn of<T: JsonSchema>(&mut self) -> Value {
        let mut schema = self.0.subschema_for::<T>();
        RecursiveTransform(clean_up).transform(&mut schema);
        schema.to_value()
    }

    /// All schemas by name.
    pub fn finish(mut self) -> Map<String, Value> {
        self.0.take_definitions(true)
    }
}

/// Removes what holds for the Rust type but not for the documents. A member that is omitted when it
/// is empty is never null, and the default values are those of stored records. Joins the lines of
/// descriptions, which are wrapped as comments are.
fn clean_up(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        let names = required.as_array();
        names.is_some_and(|names| names.iter().any(|one| one == name))
    };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(members) = property.as_object_mut() {
            members.remove("default");
        }
        if !is_required(name) {
            without_null(property);
        }
    }
}

/// Removes `null` from the types of a schema.
fn without_null(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if let Some(types) = members.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            members["type"] = only.clone();
        }
    }
    let Some(Value::Array(mut any)) = members.remove("anyOf") else {
        return;
    };
    any.retain(|schema| schema["type"] != "null");
    match <[Value; 1]>::try_from(any) {
        Ok([Value::Object(only)]) => members.extend(only),
        Ok(other) => drop(members.insert("anyOf".to_owned(), Value::from(other.to_vec()))),
        Err(any) => drop(members.insert("anyOf".to_owned(), any.into())),
    }
}
