#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use super::{document, text};

/// With `TRANSOM_UPDATE=1` the test rewrites the file.
#[test]
fn checked_in_document_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/apps.openapi.json");
    let generated = text(&document());
    if std::env::var_os("TRANSOM_UPDATE").is_some_and(|update| update == "1") {
        fs::write(&path, &generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let lines = found.lines().zip(generated.lines()).enumerate();
    let differing = lines
        .into_iter()
        .find(|(_, (found, generated))| found != generated);
    assert!(
        found == generated,
        "docs/apps.openapi.json is not what the types of the API say; write it with `TRANSOM_UPDATE=1 cargo test -p \
         transom-apps openapi` and review the change. The first difference: {differing:?}"
    );
}
