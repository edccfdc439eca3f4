//! Compares the manual with the program: pages that are generated from the code, and the commands and
//! configurations that pages contain.
//!
//! With `TRANSOM_UPDATE=1` the tests write the generated pages again.

mod blocks;
mod command_lines;
mod commands_page;
mod configurations;
mod messages;

use std::fs;
use std::path::{Path, PathBuf};

use transom_scheduler::{Reason, ReasonWords};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page by its path in the repository, with its text.
type Page = (String, String);

/// All pages of the manual, and the documentation in the repository's root.
fn pages() -> Vec<Page> {
    let mut files = vec![
        "README.md".into(),
        "CONTRIBUTING.md".into(),
        "ARCHITECTURE.md".into(),
    ];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(root().join(file)).expect("a page");
            (file.display().to_string(), text)
        })
        .collect()
}

/// Compares a page with the generated text, or writes it with `TRANSOM_UPDATE=1`.
fn compare(page: &str, printed: &str) {
    let path = root().join(page);
    if std::env::var_os("TRANSOM_UPDATE").is_some() {
        fs::write(&path, printed).expect("written");
        return;
    }
    let actual = fs::read_to_string(&path).unwrap_or_default();
    let differs = printed
        .lines()
        .zip(actual.lines().chain(std::iter::repeat("")))
        .position(|(printed, actual)| printed != actual);
    assert!(
        actual == printed,
        "{page} is not what the code prints, from line {}: run this test with TRANSOM_UPDATE=1",
        differs.unwrap_or_else(|| printed.lines().count()) + 1
    );
}

/// The page of all reasons for waiting.
fn reasons_page() -> String {
    let head = "# Reasons for waiting

Why instances and jobs are not launched, as `/v2/queue` (with `embed=reasons`: `words`), `/v0/queue` and `/v1/overview`
report it. The sentence of a reason about offers follows a number: \"2 of 3 offers have too few CPUs\". `offer`: an offer
is not used. `delay`: the launch is delayed on purpose. `obstacle`: no offer is matched, so nothing is launched.

A test compares this page with the code.

| reason | kind | sentence | advice |
|---|---|---|---|
";
    let rows: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| {
            let ReasonWords {
                sentence,
                advice,
                kind,
                ..
            } = reason.words();
            let kind = serde_json::to_value(kind).expect("a kind");
            let kind = kind.as_str().expect("a text");
            format!("| `{}` | {kind} | {sentence} | {advice} |\n", reason.as_str())
        })
        .collect();
    head.to_owned() + &rows.concat()
}

#[test]
fn reasons_page_is_what_the_code_prints() {
    compare("docs/reference/reasons.md", &reasons_page());
}

#[test]
fn settings_page_is_what_the_code_prints() {
    compare("docs/reference/settings.md", &transom_config::reference());
}
