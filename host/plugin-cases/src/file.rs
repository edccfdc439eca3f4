//! Files of cases.

use serde_json::Value;

use crate::split_name;

/// Maximum number of cases in one file.
const MAX_CASES: usize = 1000;

/// The cases of a file, in its order. The world parses them when they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cases(pub Vec<NamedCase>);

/// A case of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCase {
    /// Its name, or `case` and its number.
    pub name: String,
    /// The case without its name.
    pub case: Value,
}

/// Why a file has no valid cases. Display names the place and the expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CasesError {
    /// The file is neither TOML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// The file has another structure.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// The found value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The file has no cases, or too many.
    #[error("{0} cases; expected 1 to {MAX_CASES}")]
    Number(usize),
}

impl Cases {
    /// Parses TOML: `[[case]]` tables, each with the keys of a `[[self-test]]` and an optional
    /// `name`.
    pub fn from_toml(document: &str) -> Result<Cases, CasesError> {
        let table: toml::Table = document
            .parse()
            .map_err(|error: toml::de::Error| CasesError::Syntax(error.to_string()))?;
        let value = toml_to_json("", toml::Value::Table(table))
            .map_err(|error| CasesError::Syntax(error.to_string()))?;
        let expected = "[[case]] tables and nothing else";
        let Value::Object(mut members) = value else {
            return Err(shape_error("something else", expected));
        };
        let cases = members.remove("case");
        if !members.is_empty() {
            let keys: Vec<String> = members.keys().map(|key| format!("`{key}`")).collect();
            return Err(shape_error(keys.join(", "), expected));
        }
        match cases {
            Some(Value::Array(cases)) => Cases::of(&cases),
            Some(_) | None => Err(shape_error("none of them", expected)),
        }
    }

    /// Parses JSON: a list of objects, each with the same keys.
    pub fn from_json(document: &str) -> Result<Cases, CasesError> {
        match serde_json::from_str(document) {
            Ok(Value::Array(cases)) => Cases::of(&cases),
            Ok(_) => Err(shape_error("another document", "a list of objects")),
            Err(error) => Err(CasesError::Syntax(error.to_string())),
        }
    }

    fn of(cases: &[Value]) -> Result<Cases, CasesError> {
        if cases.is_empty() || cases.len() > MAX_CASES {
            return Err(CasesError::Number(cases.len()));
        }
        if let Some(other) = cases.iter().find(|it| !it.is_object()) {
            return Err(shape_error(other.to_string(), "an object for each case"));
        }
        let named = cases.iter().zip(1..).map(|(case, number)| {
            let (name, case) = split_name(case);
            let name = name.unwrap_or_else(|| format!("case {number}"));
            NamedCase { name, case }
        });
        Ok(Cases(named.collect()))
    }
}

fn shape_error(found: impl Into<String>, expected: &'static str) -> CasesError {
    let found = found.into();
    CasesError::Shape { found, expected }
}

/// A number of a TOML document that JSON cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}; expected a finite number")]
pub struct NotFinite {
    /// The path of the key.
    pub key: String,
    /// The number.
    pub found: String,
}

/// Converts TOML to JSON; dates become strings. `path` is the key of the value, for the error.
pub fn toml_to_json(path: &str, value: toml::Value) -> Result<Value, NotFinite> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Float(number) if number.is_finite() => number.into(),
        toml::Value::Float(number) => {
            return Err(NotFinite {
                key: path.to_owned(),
                found: number.to_string(),
            });
        }
        toml::Value::Array(items) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| toml_to_json(&format!("{path}[{index}]"), item))
            .collect::<Result<_, _>>()?,
        toml::Value::Table(table) => Value::Object(
            table
                .into_iter()
                .map(|(key, item)| Ok((key.clone(), toml_to_json(&format!("{path}.{key}"), item)?)))
                .collect::<Result<_, NotFinite>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_parse_from_toml_and_json() {
        let cases =
            Cases::from_toml("[[case]]\nname = \"one\"\nexpect = { http = 200 }\n[[case]]\npath = \"/\"\n")
                .unwrap();
        let names: Vec<&str> = cases.0.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["one", "case 2"]);
        assert!(cases.0[0].case.get("name").is_none());
        let json = r#"[{"name": "one", "expect": {"http": 200}}, {"path": "/"}]"#;
        assert_eq!(Cases::from_json(json).unwrap(), cases);
    }

    #[test]
    fn cases_reject_invalid_files() {
        let too_many = format!("[{}]", vec!["{}"; MAX_CASES + 1].join(","));
        for (found, expected) in [
            (Cases::from_toml("x ="), "line 1"),
            (Cases::from_toml(""), "expected [[case]] tables"),
            (Cases::from_toml("case = 1"), "expected [[case]] tables"),
            (Cases::from_toml("[[case]]\n[[self-test]]\n"), "found `self-test`"),
            (Cases::from_toml("case = []"), "0 cases"),
            (Cases::from_json("{}"), "expected a list"),
            (Cases::from_json("[1]"), "an object for each case, found 1"),
            (Cases::from_json("["), "line 1"),
            (Cases::from_json(&too_many), "1001 cases; expected 1 to 1000"),
        ] {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
