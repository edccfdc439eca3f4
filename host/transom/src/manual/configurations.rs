//! Checks that every configuration and every JSON document of the manual is valid.

use std::fs;
use transom_config::{Overrides, SECTIONS};

use super::blocks::blocks;
use super::pages;

#[test]
fn configurations_of_the_manual_are_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("transom.toml");
    let (mut problems, mut count) = (Vec::new(), 0);
    for block in pages().iter().flat_map(blocks).filter(|it| it.language == "toml") {
        let table: toml::Table = match toml::from_str(&block.text) {
            Ok(table) => table,
            Err(error) => {
                problems.push(format!("{}: {}", block.location, error.message()));
                continue;
            }
        };
        // Other TOML documents are manifests of plugins, or another program's configuration.
        if !table.keys().any(|key| SECTIONS.contains(&key.as_str())) {
            continue;
        }
        count += 1;
        fs::write(&file, &block.text).expect("written");
        if let Err(error) = transom_config::load(Some(&file), Overrides::default()) {
            problems.push(format!("{}: {error}", block.location));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 15, "only {count} configurations were found");
}

#[test]
fn json_documents_of_the_manual_are_valid() {
    let (mut problems, mut count) = (Vec::new(), 0);
    for block in pages().iter().flat_map(blocks).filter(|it| it.language == "json") {
        count += 1;
        if let Err(error) = serde_json::from_str::<serde_json::Value>(&block.text) {
            problems.push(format!("{}: {error}", block.location));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 5, "only {count} documents were found");
}
