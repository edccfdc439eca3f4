//! Removes secrets from the files of the archive: secrets of the configuration wherever they occur, and
//! in documents the values that are secrets by their place or name.

use serde_json::Value;

const MASK: &str = "********";
/// A shorter secret of the configuration is not searched for: elsewhere the same text may be something
/// else. It is only masked where the configuration itself is printed.
const MIN_LENGTH: usize = 4;
/// Values below these keys are masked: environments of tasks often contain passwords.
const PLACES: &[&str] = &["env", "environment", "secrets", "cmd", "args", "uris"];
/// A key that contains one of these words names a secret.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "authorization",
    "apikey",
];

/// The secrets of a configuration.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        let long = |secret: &String| secret.len() >= MIN_LENGTH;
        Self(secrets.into_iter().filter(long).collect())
    }

    /// Masks the secrets in a text, both as they are and as JSON escapes them.
    pub(super) fn masked(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = text.replace(secret, MASK);
            let quoted = Value::String(secret.clone()).to_string();
            let escaped = &quoted[1..quoted.len() - 1];
            if escaped != secret {
                text = text.replace(escaped, MASK);
            }
        }
        text
    }
}

/// Masks environments, commands, and values whose keys name secrets in a document.
pub(super) fn document(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.to_ascii_lowercase().replace(['_', '-'], "");
                if PLACES.contains(&key.as_str()) || WORDS.iter().any(|word| key.contains(word)) {
                    all(value);
                } else {
                    document(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(document),
        _ => {}
    }
}

/// Masks every string and number.
fn all(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(all),
        Value::Array(items) => items.iter_mut().for_each(all),
        Value::String(_) | Value::Number(_) => *value = MASK.into(),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_as_they_are_and_as_json_escapes_them() {
        let secrets = Secrets::new(vec!["pa\"ss".to_owned(), "abc".to_owned()]);
        assert_eq!(
            secrets.masked(r#"{"a": "pa\"ss"} pa"ss abc"#),
            r#"{"a": "********"} ******** abc"#
        );
    }

    #[test]
    fn environments_and_values_whose_keys_name_secrets_are_masked() {
        let mut actual = json!({
            "id": "/web", "env": {"DB": "hunter2", "N": 1}, "args": ["--pw", "x"],
            "container": {"api_Token": "t", "image": "i", "enabled": true},
            "list": [{"userPassword": "p"}],
        });
        document(&mut actual);
        let expected = json!({
            "id": "/web", "env": {"DB": MASK, "N": MASK}, "args": [MASK, MASK],
            "container": {"api_Token": MASK, "image": "i", "enabled": true},
            "list": [{"userPassword": MASK}],
        });
        assert_eq!(actual, expected);
    }
}
