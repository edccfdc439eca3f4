//! The README, examples and pages, run as they are written.

mod examples;
mod load_balancing;
mod migration;
mod readme;
mod several_daemons;

use std::path::Path;
use std::process::Command;

use transom_tests::process::binary;
use transom_tests::readme::blocks_in;

/// Runs a shell command with `transom` in its `PATH`, these variables and no others of Transom or
/// its predecessors. The command must succeed.
fn shell(dir: &Path, command: &str, variables: &[(&str, &str)]) -> String {
    let programs = binary().parent().expect("a folder").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(programs).chain(std::env::split_paths(&path));
    let output = Command::new("timeout")
        .args(["60", "bash", "-euc", command])
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::join_paths(path).expect("a PATH"))
        .env("HOME", dir)
        .envs(variables.iter().copied())
        .output()
        .expect("bash");
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The block of the page in this language that contains `part`.
fn block<'p>(page: &'p str, language: &str, part: &str) -> &'p str {
    let mut found = blocks_in(page, language);
    found.retain(|block| block.contains(part));
    assert_eq!(found.len(), 1, "{part}: {found:?}");
    found[0]
}

/// `text` with each printed part replaced by what this machine has.
fn on_this_machine(text: &str, parts: &[(&str, &str)]) -> String {
    parts.iter().fold(text.to_owned(), |text, (printed, own)| {
        assert!(text.contains(printed), "{printed} in {text}");
        text.replace(printed, own)
    })
}
