//! Generated files that are checked in.

use std::fs;
use std::path::Path;

/// Compares a file of the repository with its generated text. With `TRANSOM_UPDATE=1` it writes the
/// file instead.
#[track_caller]
pub fn assert_checked_in(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("TRANSOM_UPDATE").is_some_and(|update| update == "1") {
        fs::write(&path, generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = found.lines().zip(generated.lines()).enumerate();
    let differing = lines.find(|(_, (found, generated))| found != generated);
    assert!(
        found == generated,
        "{file} is not what the code generates: write it with TRANSOM_UPDATE=1 and review the change. The first \
         difference: {differing:?}"
    );
}
