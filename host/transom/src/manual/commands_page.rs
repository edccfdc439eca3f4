//! `docs/reference/commands.md`: the help of every command, as the program prints it.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use super::compare;
use crate::cli::CommandLine;

const INTRODUCTION: &str = "\
# Commands

What `transom COMMAND --help` prints, for every command. `transom completions SHELL` prints completions for a shell,
`transom man COMMAND` a man page, from the same source.
";

/// Adds a command and its subcommands.
fn add(text: &mut String, command: &Command, names: &str) {
    let help = command
        .clone()
        .bin_name(names)
        .term_width(100)
        // The values of environment variables on this machine are not printed.
        .mut_args(|argument| argument.hide_env_values(true))
        .render_long_help()
        .to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let level = "#".repeat(1 + names.split(' ').count().min(3));
    let _ = write!(text, "\n{level} {names}\n\n```text\n{}\n```\n", help.join("\n"));
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            add(text, inner, &format!("{names} {}", inner.get_name()));
        }
    }
}

#[test]
fn commands_page_is_what_the_program_prints() {
    let mut command = CommandLine::command();
    command.build();
    let mut text = INTRODUCTION.to_owned();
    add(&mut text, &command, "transom");
    compare("docs/reference/commands.md", &text);
}
