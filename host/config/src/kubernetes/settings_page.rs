//! Compares `docs/framework-settings.md` with the settings: keys, meanings and defaults are those of the
//! structs, variables those of the table in [`variables`].

use serde_json::Value;

use super::variables;
use crate::Kubernetes;

const PAGE: &str = include_str!("../../../../docs/framework-settings.md");

/// Adds the rows of a table, and of the tables in it.
fn add_rows(rows: &mut Vec<(String, String)>, root: &Value, table: &Value, prefix: &str, defaults: &Value) {
    for (name, field) in table["properties"].as_object().expect("a table") {
        let (key, default) = (format!("{prefix}{name}"), &defaults[name]);
        if default.is_object() {
            let nested = field["$ref"].as_str().and_then(|name| root.pointer(&name[1..]));
            add_rows(
                rows,
                root,
                nested.expect("its schema"),
                &format!("{key}."),
                default,
            );
            continue;
        }
        let words: Vec<&str> = field["description"]
            .as_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let names: Vec<String> = variables::names_of(&key)
            .map(|name| format!("`{name}`"))
            .collect();
        let default = match default {
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let row = format!(
            "| `{key}` | {} | {default} | {} |",
            names.join(", "),
            words.join(" ")
        );
        // An empty cell is written as one blank.
        let row = row.replace("|  |", "| |").replace("|  |", "| |");
        rows.push((key, row));
    }
}

#[test]
fn settings_page_has_a_row_for_each_key() {
    let defaults = serde_json::to_value(Kubernetes::default()).expect("JSON");
    let schema = schemars::schema_for!(Kubernetes).to_value();
    let mut rows = Vec::new();
    add_rows(&mut rows, &schema, &schema, "", &defaults);
    let keys: Vec<&str> = rows.iter().map(|(key, _)| key.as_str()).collect();

    let key_of = |row: &str| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let mut problems = Vec::new();
    for (key, row) in &rows {
        let on_page: Vec<&str> = PAGE
            .lines()
            .filter(|line| key_of(line).as_ref() == Some(key))
            .collect();
        if on_page != [row] {
            problems.push(format!(
                "`{key}` is on the page as {on_page:#?}; paste this row:\n{row}"
            ));
        }
    }
    let unknown = PAGE
        .lines()
        .filter_map(key_of)
        .filter(|key| !keys.contains(&key.as_str()));
    problems.extend(unknown.map(|key| format!("`{key}` is on the page and is no key; remove its row")));
    assert!(
        problems.is_empty(),
        "docs/framework-settings.md:\n{}",
        problems.join("\n")
    );
}
