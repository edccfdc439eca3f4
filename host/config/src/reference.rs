//! The reference of all settings, for `transom config reference` and `docs/reference/settings.md`:
//! keys, types, defaults and meanings are those of the structs, as their JSON schema has them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use schemars::{Schema, schema_for};
use serde_json::{Map, Value, json};

use super::settings::{SECTIONS, Settings};
use super::{aliases, kubernetes};

/// The text above the sections.
const INTRODUCTION: &str = "\
# Settings

Every key of the configuration file, by section. `transom config reference` prints this page, and with `--output json`
the file's JSON schema, for editors; `transom config check` prints the effective value of each key and its source.
The names of other programs that `apps` and `workflow` accept for some of their keys are not listed.

* A key is set in the file (`[apps]`, then `port = 8080`) or by its variable. A variable overrides the file. In a
  variable lists and tables are written as in TOML, on one line: `TRANSOM_APPS_TRUSTED_NETWORKS='[\"10.0.0.0/8\"]'`. A
  table below a section has one variable for all of it: `TRANSOM_APPS_CHECKS='{exec_from=\"daemon\"}'`.
* Where a key has several variables, `TRANSOM_…` overrides the others; of these, the first one in the table is used.
* A section `apps`, `discovery`, `kubernetes` or `workflow` enables its service, even if the section is empty.
* `settings_version`, above all sections, is the version of the format of the file; if it is missing, it is 1. A daemon
  rejects a version that is higher than its own.
* An unknown key is an error that names the nearest known one. Relative paths are relative to the folder of the file.
* A key with an empty default has no value until you set it. Secrets are masked wherever settings are shown.
";

/// The JSON schema of the configuration file.
pub fn schema() -> Schema {
    let mut schema = schema_for!(Settings);
    // `[kubernetes.NAME]` has the same keys.
    if let Some(others) = schema.pointer_mut("/$defs/Kubernetes/additionalProperties") {
        *others = json!({"$ref": "#/$defs/Kubernetes"});
    }
    schema
}

/// How a key's value is written: any text, or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Plain,
    Secret,
}

/// The keys whose values are texts, each with the path of its table.
static TEXTS: LazyLock<Vec<(String, String, TextKind)>> = LazyLock::new(|| {
    let rows = sections().into_iter().flat_map(|section| {
        let path = section.path;
        section.rows.into_iter().map(move |row| (path.clone(), row))
    });
    let texts = rows.filter_map(|(path, row)| match row.kind.as_str() {
        "text" => Some((path, row.key, TextKind::Plain)),
        "secret" => Some((path, row.key, TextKind::Secret)),
        _ => None,
    });
    texts.collect()
});

/// Whether a key of a section is a text. A key of `[kubernetes]` may have the name of an instance
/// before it.
pub(super) fn text_kind(section: &str, key: &str) -> Option<TextKind> {
    let is_of_instance = |name: &str| {
        let prefix = key.strip_suffix(name);
        section == "kubernetes" && prefix.is_some_and(|prefix| prefix.ends_with('_'))
    };
    let texts = TEXTS.iter().filter(|(path, ..)| path == section);
    let matching = texts.filter(|(_, name, _)| name == key || is_of_instance(name));
    matching
        .max_by_key(|(_, name, _)| name.len())
        .map(|(.., kind)| *kind)
}

/// Whether the key at this path is a secret, of any table in its section.
pub(super) fn is_secret(path: &[String]) -> bool {
    let (Some(section), Some(key)) = (path.first(), path.last()) else {
        return false;
    };
    let section = if section == kubernetes::INSTANCES {
        "kubernetes"
    } else {
        section
    };
    TEXTS.iter().any(|(table, name, kind)| {
        let of_section = table.split(['.', '[']).next() == Some(section);
        *kind == TextKind::Secret && name == key && of_section
    })
}

/// The reference as Markdown.
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for section in sections() {
        let level = "#".repeat(2 + section.path.matches('.').count().min(2));
        let _ = write!(text, "\n{level} {}\n\n{}\n", section.path, section.meaning);
        if section.rows.is_empty() {
            continue;
        }
        text += "\n| key | type | default | variables | meaning |\n|---|---|---|---|---|\n";
        for row in &section.rows {
            let cells = [&row.kind, &row.default, &row.variables, &row.meaning];
            let _ = write!(text, "| `{}` |", row.key);
            for cell in cells {
                let space = if cell.is_empty() { "" } else { " " };
                let _ = write!(text, "{space}{} |", cell.replace('|', "\\|"));
            }
            text.push('\n');
        }
    }
    text
}

/// A table of the configuration file.
struct Section {
    path: String,
    meaning: String,
    rows: Vec<Row>,
}

/// The row of a key.
struct Row {
    key: String,
    kind: String,
    default: String,
    variables: String,
    meaning: String,
}

/// All tables, each before its nested tables.
fn sections() -> Vec<Section> {
    let root = schema().to_value();
    let definitions = Definitions(root["$defs"].as_object().cloned().unwrap_or_default());
    let mut sections = Vec::new();
    for &name in SECTIONS {
        let (table, _) = definitions.resolve(&root["properties"][name]);
        definitions.add(&mut sections, name, &table, &Value::Null);
    }
    sections
}

/// The schemas that are referred to by `$ref`.
struct Definitions(Map<String, Value>);

impl Definitions {
    /// Resolves a reference or an optional schema; returns the schema, and whether it is optional.
    fn resolve(&self, schema: &Value) -> (Value, bool) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.trim_start_matches("#/$defs/");
            return (self.0.get(name).cloned().unwrap_or_default(), false);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let mut non_null = choices.iter().filter(|choice| choice["type"] != "null");
            if let (Some(choice), None) = (non_null.next(), non_null.next()) {
                return (self.resolve(choice).0, true);
            }
        }
        (schema.clone(), false)
    }

    /// Adds a table and its nested tables. `defaults`: the defaults of the table as a whole.
    fn add(&self, sections: &mut Vec<Section>, path: &str, table: &Value, defaults: &Value) {
        let (mut rows, mut subtables) = (Vec::new(), Vec::new());
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let (schema, _) = self.resolve(property);
            let default = property.get("default").unwrap_or(&defaults[key]);
            let full_key = format!("{path}.{key}");
            if is_table(&schema) {
                subtables.push((full_key, schema, default.clone()));
                continue;
            }
            let (items, _) = self.resolve(&schema["items"]);
            if is_table(&items) {
                subtables.push((format!("{path}.{key}[]"), items, Value::Null));
            }
            let required = table["required"].as_array();
            let is_required = required.is_some_and(|names| names.iter().any(|name| name == key));
            rows.push(Row {
                key: key.clone(),
                kind: self.kind(&schema),
                default: match default {
                    Value::Null if is_required => "required".to_owned(),
                    Value::Null => String::new(),
                    _ if schema["format"] == "secret" => "not shown".to_owned(),
                    default => format!("`{default}`"),
                },
                variables: variables(path, key),
                meaning: self.meaning(property),
            });
        }
        sections.push(Section {
            path: path.to_owned(),
            meaning: one_line(&table["description"]),
            rows,
        });
        for (path, schema, default) in subtables {
            self.add(sections, &path, &schema, &default);
        }
    }

    /// The type of a value, as the reference shows it.
    fn kind(&self, schema: &Value) -> String {
        let choices = choices(schema);
        if !choices.is_empty() {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
            return names.join(" or ");
        }
        if let Some(alternatives) = schema["anyOf"].as_array() {
            let kinds: Vec<String> = alternatives
                .iter()
                .map(|one| self.kind(&self.resolve(one).0))
                .collect();
            return kinds.join(" or ");
        }
        let name = match &schema["type"] {
            Value::Array(names) => names.iter().find(|name| *name != "null"),
            name => Some(name),
        };
        match name.and_then(Value::as_str).unwrap_or_default() {
            "array" => {
                let (items, _) = self.resolve(&schema["items"]);
                format!("list of {}", self.kind(&items))
            }
            "object" if is_table(schema) => "tables".to_owned(),
            "object" => {
                let values = self.kind(&self.resolve(&schema["additionalProperties"]).0);
                format!("table: name to {values}")
            }
            "integer" => "integer".to_owned(),
            "number" => "number".to_owned(),
            "boolean" => "boolean".to_owned(),
            _ => match schema["format"].as_str() {
                Some("ip") => "address".to_owned(),
                Some(format) => format.to_owned(),
                None => "text".to_owned(),
            },
        }
    }

    /// The comment of a field, with the comments of its possible values.
    fn meaning(&self, property: &Value) -> String {
        let mut meaning = one_line(&property["description"]);
        let (schema, _) = self.resolve(property);
        let (items, _) = self.resolve(&schema["items"]);
        for (name, text) in choices(&schema).into_iter().chain(choices(&items)) {
            if !text.is_empty() {
                let _ = write!(meaning, " `{name}`: {text}");
            }
        }
        meaning
    }
}

/// Whether a schema is that of a table with fixed keys.
fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object()
}

/// The possible values of a setting, each with its comment.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let mut choices = Vec::new();
    for one in schema["oneOf"].as_array().into_iter().flatten() {
        let names = one["enum"].as_array().into_iter().flatten();
        for name in names.chain(one.get("const")).filter_map(Value::as_str) {
            choices.push((name.to_owned(), one_line(&one["description"])));
        }
    }
    let names = schema["enum"].as_array().into_iter().flatten();
    choices.extend(
        names
            .filter_map(Value::as_str)
            .map(|name| (name.to_owned(), String::new())),
    );
    choices
}

/// The variables that set a key, in the order of precedence.
fn variables(section: &str, key: &str) -> String {
    if section.contains('.') {
        return String::new();
    }
    let variable = format!("TRANSOM_{section}_{key}").to_ascii_uppercase();
    let full_key = format!("{section}.{key}");
    let mut names = vec![variable];
    names.extend(aliases::variables_of(&full_key).map(str::to_owned));
    if section == "kubernetes" {
        names.extend(kubernetes::variables_of(key).map(str::to_owned));
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn one_line(text: &Value) -> String {
    let words: Vec<&str> = text.as_str().unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_type_and_a_meaning() {
        let mut problems = Vec::new();
        for section in sections() {
            if section.meaning.is_empty() {
                problems.push(format!("`{}` has no comment", section.path));
            }
            for row in section.rows {
                if row.meaning.is_empty() || row.kind.is_empty() {
                    problems.push(format!(
                        "`{}.{}` has no comment that says its meaning",
                        section.path, row.key
                    ));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn schema_has_sections_of_instances() {
        let schema = schema().to_value();
        let reference = json!({"$ref": "#/$defs/Kubernetes"});
        assert_eq!(schema["$defs"]["Kubernetes"]["additionalProperties"], reference);
        assert_eq!(schema["$defs"]["Apps"]["additionalProperties"], false);
    }

    #[test]
    fn every_key_of_the_effective_settings_is_in_the_reference() {
        let settings = Settings {
            apps: Some(super::super::Apps::default()),
            discovery: Some(super::super::Discovery::default()),
            kubernetes: Some(super::super::Kubernetes::default()),
            workflow: Some(super::super::Workflow::default()),
            ..Settings::default()
        };
        let keys: Vec<String> = sections()
            .iter()
            .flat_map(|section| {
                section
                    .rows
                    .iter()
                    .map(|row| format!("{}.{}", section.path, row.key))
            })
            .collect();
        let rows = super::super::rows(&settings, &figment::Figment::new()).expect("rows");
        let missing: Vec<&str> = rows
            .iter()
            .map(|row| row.key.as_str())
            // It is in no section; the introduction describes it.
            .filter(|key| *key != "settings_version")
            .filter(|key| !keys.iter().any(|known| known == key))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(keys.len() > 200, "{}", keys.len());
    }
}
