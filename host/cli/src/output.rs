//! The output of a command: a table for people or JSON for programs.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Row, Table, presets};
use serde::Serialize;
pub use transom_config::print_note;
use transom_plugin_host::{printable, printable_json};

/// The value of `--output`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// Human-readable table.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Prints a line to standard output. A closed pipe is an error, with which the command ends.
pub fn print_line(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Prints `rows` as a table under `headings`, or `document` as JSON.
pub fn print<T: Serialize>(
    output: Output,
    document: &T,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            let text = serde_json::to_string_pretty(document)?;
            writeln!(out, "{}", printable_json(&text))?;
        }
        Output::Table => writeln!(out, "{}", table(headings, rows))?,
    }
    Ok(())
}

/// `rows` as a table under `headings` in capitals. Control characters are escaped, because cells may
/// contain text of a guest or a client.
pub fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let headings: Vec<_> = headings.iter().map(|heading| heading.to_uppercase()).collect();
    table_with_headings(headings, rows)
}

/// A table with unchanged headings, for columns whose names are specified.
pub fn table_with_headings(headings: impl Into<Row>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    table.trim_fmt()
}

/// Prints `document` as JSON, or `text`, whose lines are escaped.
pub fn print_text<T: Serialize>(output: Output, document: &T, text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            let json = serde_json::to_string_pretty(document)?;
            writeln!(out, "{}", printable_json(&json))?;
        }
        Output::Table => {
            for line in text.lines() {
                writeln!(out, "{}", printable(line))?;
            }
        }
    }
    Ok(())
}

/// Creates a new file that only its owner may read, because of the secrets in it.
pub fn create_new(file: &Path) -> anyhow::Result<File> {
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    options.with_context(|| format!("cannot create {}", file.display()))
}

/// Writes a new file that only its owner may read.
pub fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut output = create_new(file)?;
    let written = output.write_all(text.as_bytes()).and_then(|()| output.sync_all());
    written.with_context(|| format!("cannot write {}", file.display()))
}
