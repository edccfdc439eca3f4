//! Protobuf messages in JSON: the fields of a message, their kinds, and which are required.
//!
//! The cluster manager parses JSON into protobuf messages, and its errors follow from that: unknown
//! fields are ignored, an unknown enum value reads as absent, a wrong type is reported with its
//! field, missing required fields with their path. [`read`] does the same for the tables in
//! [`super::messages`].

use base64::Engine;
use serde_json::{Map, Value};

/// The kind of a field.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Bytes,
    /// Numbers are stored as floats, so that `64` is shown as `64.0`.
    Float,
    Int,
    Bool,
    /// An enum with these values. Any other value reads as absent.
    Enum(&'static [&'static str]),
    Message(&'static Message),
    /// Kept unchanged: this cluster only shows it and never acts on it.
    Any,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) repeated: bool,
}

/// A message with its fields.
pub(crate) struct Message {
    pub(crate) fields: &'static [Field],
}

/// A message with these fields.
pub(crate) const fn message(fields: &'static [Field]) -> Message {
    Message { fields }
}

/// An optional field.
pub(crate) const fn opt(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: false,
        repeated: false,
    }
}

/// A required field.
pub(crate) const fn req(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: true,
        repeated: false,
    }
}

/// A repeated field.
pub(crate) const fn rep(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: false,
        repeated: true,
    }
}

/// Parses a request body from JSON text to a message. The error is the body of the 400 response and
/// contains `call` as the name of the message.
pub(crate) fn read_body(message: &Message, call: &str, body: &[u8]) -> Result<Value, String> {
    let value = parse(body).map_err(|error| format!("Failed to parse body into JSON: {error}"))?;
    read(message, value).map_err(|what| format!("Failed to convert JSON into {call} protobuf: {what}"))
}

/// Parses the body of an older route to a message. Its errors do not name the call.
pub(crate) fn read_plain(message: &Message, body: &[u8]) -> Result<Value, String> {
    match parse(body)? {
        value @ Value::Object(_) => read(message, value),
        _ => Err(UNEXPECTED.to_owned()),
    }
}

/// Parses the body of an older route to a list of messages.
pub(crate) fn read_plain_list(message: &Message, body: &[u8]) -> Result<Vec<Value>, String> {
    match parse(body)? {
        Value::Array(items) => items.into_iter().map(|item| read(message, item)).collect(),
        _ => Err(UNEXPECTED.to_owned()),
    }
}

/// The error if the body of an older route has the wrong JSON type.
const UNEXPECTED: &str = "Unexpected JSON type parsed";

fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| syntax_error(body, &error))
}

/// A syntax error in the format of the real parser: the rest of the line from the position of the
/// error.
fn syntax_error(body: &[u8], error: &serde_json::Error) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text
        .lines()
        .nth(error.line().saturating_sub(1))
        .unwrap_or_default();
    let near: String = line.chars().skip(error.column().saturating_sub(1)).collect();
    let near = if error.is_eof() { "" } else { &near };
    format!("syntax error at line {} near: {near}", error.line().max(1))
}

/// Parses a message from JSON. Unknown fields are dropped, and a missing required field is an error.
pub(crate) fn read(message: &Message, value: Value) -> Result<Value, String> {
    let Value::Object(object) = value else {
        return Err("Expecting a JSON object".to_owned());
    };
    let read = convert(message, object)?;
    let mut missing = Vec::new();
    find_missing(message, &read, "", &mut missing);
    if missing.is_empty() {
        Ok(Value::Object(read))
    } else {
        Err(format!("Missing required fields: {}", missing.join(", ")))
    }
}

fn convert(message: &Message, mut object: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut read = Map::new();
    for field in message.fields {
        let Some(value) = object.remove(field.name) else {
            continue;
        };
        let value = if field.repeated {
            let Value::Array(items) = value else {
                return Err(unexpected(field, &value));
            };
            let items: Vec<Value> = items
                .into_iter()
                .map(|item| convert_one(field, item))
                .filter_map(Result::transpose)
                .collect::<Result<_, _>>()?;
            Some(Value::Array(items))
        } else {
            convert_one(field, value)?
        };
        if let Some(value) = value {
            read.insert(field.name.to_owned(), value);
        }
    }
    Ok(read)
}

/// Converts one value to its kind; `None` for values that read as absent.
fn convert_one(field: &Field, value: Value) -> Result<Option<Value>, String> {
    match (field.kind, value) {
        (Kind::Message(message), Value::Object(object)) => {
            convert(message, object).map(|read| Some(Value::Object(read)))
        }
        (Kind::Any, value)
        | (Kind::Text, value @ Value::String(_))
        | (Kind::Bool, value @ Value::Bool(_)) => Ok(Some(value)),
        (Kind::Int, Value::Number(number)) => Ok(Some(match number.as_f64() {
            Some(float) if !number.is_i64() && !number.is_u64() => Value::from(float as i64),
            _ => Value::Number(number),
        })),
        (Kind::Float, Value::Number(number)) => Ok(number.as_f64().map(Value::from)),
        (Kind::Enum(known), Value::String(text)) => {
            Ok(known.contains(&text.as_str()).then_some(Value::String(text)))
        }
        (Kind::Bytes, Value::String(text)) => match base64::engine::general_purpose::STANDARD.decode(&text) {
            Ok(_) => Ok(Some(Value::String(text))),
            Err(error) => Err(format!(
                "Failed to base64 decode bytes field '{}': {}",
                field.name,
                base64_complaint(&error, &text)
            )),
        },
        (_, value) => Err(unexpected(field, &value)),
    }
}

fn base64_complaint(error: &base64::DecodeError, text: &str) -> String {
    match error {
        base64::DecodeError::InvalidByte(at, _) => {
            format!(
                "Invalid character '{}'",
                text.get(*at..)
                    .and_then(|rest| rest.chars().next())
                    .unwrap_or('?')
            )
        }
        other => other.to_string(),
    }
}

fn unexpected(field: &Field, value: &Value) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("Not expecting a JSON {kind} for field '{}'", field.name)
}

fn find_missing(message: &Message, object: &Map<String, Value>, at: &str, missing: &mut Vec<String>) {
    for field in message.fields {
        match (object.get(field.name), field.kind) {
            (None, _) if field.required => missing.push(format!("{at}{}", field.name)),
            (Some(Value::Object(inner)), Kind::Message(message)) => {
                find_missing(message, inner, &format!("{at}{}.", field.name), missing);
            }
            (Some(Value::Array(items)), Kind::Message(message)) => {
                for (index, item) in items.iter().enumerate() {
                    if let Value::Object(inner) = item {
                        find_missing(message, inner, &format!("{at}{}[{index}].", field.name), missing);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages;
    use super::*;
    use serde_json::json;

    fn rejection(body: &str) -> String {
        read_body(&messages::SCHEDULER_CALL, "Call", body.as_bytes()).unwrap_err()
    }

    #[test]
    fn rejections_have_the_recorded_messages() {
        let cases = [
            (
                "{not json",
                "Failed to parse body into JSON: syntax error at line 1 near: not json",
            ),
            (
                "",
                "Failed to parse body into JSON: syntax error at line 1 near: ",
            ),
            (
                "{",
                "Failed to parse body into JSON: syntax error at line 1 near: ",
            ),
            (
                "[]",
                "Failed to convert JSON into Call protobuf: Expecting a JSON object",
            ),
            (
                r#"{"type":"REVIVE","framework_id":"x"}"#,
                "Failed to convert JSON into Call protobuf: Not expecting a JSON string for field 'framework_id'",
            ),
            (
                r#"{"type":"KILL","kill":{}}"#,
                "Failed to convert JSON into Call protobuf: Missing required fields: kill.task_id",
            ),
            (
                r#"{"type":"SUBSCRIBE","subscribe":{"framework_info":{"name":"x"}}}"#,
                "Failed to convert JSON into Call protobuf: Missing required fields: subscribe.framework_info.user",
            ),
            (
                r#"{"type":"ACKNOWLEDGE","acknowledge":{"uuid":"!!!!"}}"#,
                "Failed to convert JSON into Call protobuf: Failed to base64 decode bytes field 'uuid': Invalid character '!'",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(rejection(body), expected, "body {body}");
        }
    }

    #[test]
    fn unknown_fields_and_enum_values_read_as_absent_and_numbers_as_floats() {
        let body = br#"{"type":"FROB","frob":1,"decline":{"offer_ids":[{"value":"o","x":1}],"filters":{"refuse_seconds":5}}}"#;
        let read = read_body(&messages::SCHEDULER_CALL, "Call", body).unwrap();
        assert_eq!(
            read,
            json!({"decline": {"offer_ids": [{"value": "o"}], "filters": {"refuse_seconds": 5.0}}})
        );
    }
}
