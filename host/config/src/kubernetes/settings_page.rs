//! Compares `docs/framework-settings.md` with the settings: keys and meanings are those of the structs,
//! variables those of the table in [`variables`], defaults those of the code.

use serde_json::Value;

use super::{Kubernetes, variables};

const PAGE: &str = include_str!("../../../../docs/framework-settings.md");
/// The source files with the structs of the section. The fields' comments are the meanings on the page.
const SOURCES: [&str; 2] = [include_str!("mod.rs"), include_str!("autoscale.rs")];

/// A field of a struct, with its comment in one line.
struct Field {
    name: String,
    kind: String,
    meaning: String,
}

/// The fields of a struct that are keys; `None` if no source contains the struct.
fn fields(name: &str) -> Option<Vec<Field>> {
    let head = format!("struct {name} {{\n");
    let (_, body) = SOURCES.iter().find_map(|source| source.split_once(&head))?;
    let (body, _) = body.split_once("\n}").expect("its end");
    let (mut fields, mut comment, mut is_key) = (Vec::new(), Vec::new(), true);
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line == "#[serde(skip)]" {
            is_key = false;
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": "))
        {
            let meaning = std::mem::take(&mut comment).join(" ");
            if std::mem::replace(&mut is_key, true) {
                fields.push(Field {
                    name: name.to_owned(),
                    kind: kind.trim_end_matches(',').to_owned(),
                    meaning,
                });
            }
        }
    }
    Some(fields)
}

/// Adds the rows of a struct, and of the structs in it.
fn add_rows(rows: &mut Vec<(String, String)>, name: &str, prefix: &str, defaults: &Value) {
    for Field { name, kind, meaning } in fields(name).expect("a struct in the sources") {
        let (key, default) = (format!("{prefix}{name}"), &defaults[&name]);
        assert!(
            !meaning.is_empty(),
            "`{key}` has no comment that says its meaning"
        );
        if fields(&kind).is_some() {
            add_rows(rows, &kind, &format!("{key}."), default);
            continue;
        }
        assert!(!default.is_object(), "{kind} is in none of SOURCES");
        let names: Vec<String> = variables::names_of(&key)
            .map(|name| format!("`{name}`"))
            .collect();
        let default = match default {
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let row = format!("| `{key}` | {} | {default} | {meaning} |", names.join(", "));
        // An empty cell is written as one blank.
        let row = row.replace("|  |", "| |").replace("|  |", "| |");
        rows.push((key, row));
    }
}

#[test]
fn settings_page_has_a_row_for_each_key() {
    let defaults = serde_json::to_value(Kubernetes::default()).expect("JSON");
    let mut rows = Vec::new();
    add_rows(&mut rows, "Kubernetes", "", &defaults);
    let keys: Vec<&str> = rows.iter().map(|(key, _)| key.as_str()).collect();
    for key in defaults.as_object().expect("an object").keys() {
        let nested = format!("{key}.");
        let has_row = |row: &&str| row == key || row.starts_with(&nested);
        assert!(keys.iter().any(has_row), "`{key}` is in none of SOURCES");
    }

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
