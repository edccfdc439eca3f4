//! Checks that the messages on the page about troubleshooting occur in the program.

use std::fs;
use std::path::Path;

use super::root;

const PAGE: &str = "docs/operations/troubleshooting.md";

/// All source text of the daemon, with literals that span lines joined, and without backticks.
fn sources() -> String {
    fn add(text: &mut String, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add(text, &path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text.push_str(&fs::read_to_string(path).expect("a file"));
            }
        }
    }
    let mut text = String::new();
    for entry in fs::read_dir(root().join("host")).expect("a folder") {
        add(&mut text, &entry.expect("an entry").path().join("src"));
    }
    let mut pieces = text.split("\\\n");
    let mut joined = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        joined.push_str(piece.trim_start());
    }
    joined.replace('`', "").replace("\\\"", "\"")
}

#[test]
fn messages_of_the_troubleshooting_page_are_in_the_code() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let sources = sources();
    let (mut missing, mut count) = (Vec::new(), 0);
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let symptom = line.split(" | ").next().unwrap_or_default();
        let spans = symptom.split('`').skip(1).step_by(2);
        // Shorter spans are keys, states and commands.
        for message in spans.filter(|span| span.split_whitespace().count() >= 3) {
            count += 1;
            let mut parts = message.split('…').map(|part| part.trim_matches([' ', ':']));
            if !parts.all(|part| sources.contains(part)) {
                missing.push(message);
            }
        }
    }
    assert!(missing.is_empty(), "{PAGE}: in no source: {missing:#?}");
    assert!(count >= 40, "only {count} messages were found");
}
