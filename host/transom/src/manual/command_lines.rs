//! Checks that the program accepts every `transom …` command line of the manual.

use clap::CommandFactory;

use super::blocks::blocks;
use super::{Page, pages};
use crate::cli::CommandLine;

/// Tokens that end a command in a shell.
const SEPARATORS: &[&str] = &["|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "<<END"];

/// The command lines of a page that call `transom`, with their places: all lines of `sh` blocks, and
/// lines after a prompt in `text` blocks.
fn command_lines(page: &Page) -> Vec<(String, Vec<String>)> {
    let mut command_lines = Vec::new();
    for block in blocks(page) {
        let text = block.text.replace("\\\n", " ");
        for line in text.lines() {
            let line = match block.language.as_str() {
                "sh" => line,
                "text" if line.starts_with("$ ") => &line[2..],
                _ => continue,
            };
            // A line with an open quote cannot be split: it is part of a longer text in the block.
            for words in shlex::split(line)
                .map(|words| transom_calls(&words))
                .unwrap_or_default()
            {
                command_lines.push((format!("{}: {line}", block.location), words));
            }
        }
    }
    command_lines
}

/// The calls of `transom` in the words of a line. A call is at the beginning of a command, possibly
/// after variables, or in a command substitution.
fn transom_calls(words: &[String]) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let (mut expects_command, mut in_call) = (true, false);
    for word in words {
        let is_program = word == "transom" || word.ends_with("/transom");
        if SEPARATORS.contains(&word.as_str()) {
            (expects_command, in_call) = (true, false);
        } else if in_call {
            let argument = word.trim_end_matches([')', ';']);
            calls
                .last_mut()
                .expect("a call was begun")
                .push(argument.to_owned());
            in_call = argument == word;
            expects_command = !in_call;
        } else if expects_command && is_program || word.ends_with("$(transom") {
            calls.push(vec!["transom".to_owned()]);
            in_call = true;
        } else {
            expects_command &= word.contains('=');
        }
    }
    calls
}

#[test]
fn calls_are_found_among_other_words() {
    for (line, expected) in [
        ("transom plugin list", vec!["transom plugin list"]),
        ("A=b target/debug/transom fw list && ls", vec!["transom fw list"]),
        (
            "(umask 077 && transom fw list > f) && kubectl get nodes",
            vec!["transom fw list"],
        ),
        (
            "id=$(transom apps show a); transom apps list | wc",
            vec!["transom apps show a", "transom apps list"],
        ),
        ("systemctl start transom", vec![]),
        ("cargo test -p transom manual", vec![]),
    ] {
        let words = shlex::split(line).expect("words");
        let actual: Vec<String> = transom_calls(&words).iter().map(|call| call.join(" ")).collect();
        assert_eq!(actual, expected, "{line}");
    }
}

#[test]
fn command_lines_of_the_manual_are_accepted() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (location, words) in pages().iter().flat_map(command_lines) {
        count += 1;
        if let Err(error) = CommandLine::command().try_get_matches_from(&words)
            && error.use_stderr()
        {
            let text = error.to_string();
            problems.push(format!(
                "{location}\n    {}",
                text.lines().next().unwrap_or_default()
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 50, "only {count} command lines were found");
}
