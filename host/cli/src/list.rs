//! Lists: tables that fit a terminal, and the same list with all columns, as JSON, or as names.
//!
//! Every command that prints a list prints it here. A table has short ids and ages, and at most the
//! width of the terminal or 80 columns; texts are cut with `…` first, then names at their beginning.

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use transom_plugin_host::printable;

use crate::output::{self, Output};
use crate::overview::rounded_duration;

/// The width of tables where standard output is no terminal.
const WIDTH: usize = 80;
/// The narrowest column of texts, and of names.
const MIN_TEXT: usize = 12;
const MIN_NAME: usize = 16;

/// The value of `--output` of a command that prints a list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// Table that fits a terminal: short ids, ages, cut texts.
    #[default]
    Table,
    /// Table with all columns, whole ids and texts, and times.
    Wide,
    /// One JSON document.
    Json,
    /// Only the names or whole ids, one on each line.
    Name,
}

/// The options of a command that prints a list.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Daemon and output")]
pub(crate) struct ListOptions {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Print no headings.
    #[arg(long)]
    no_headers: bool,
}

/// When a column is shown, and how it is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Column {
    /// Never cut.
    Fixed(&'static str),
    /// Cut at its beginning, if cut texts do not suffice.
    Name(&'static str),
    /// Cut at its end.
    Text(&'static str),
    /// Only in wide tables.
    Wide(&'static str),
}

impl Column {
    pub(crate) fn heading(self) -> &'static str {
        let (Self::Fixed(heading) | Self::Name(heading) | Self::Text(heading) | Self::Wide(heading)) = self;
        heading
    }
}

/// A value in both kinds of table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) short: String,
    pub(crate) whole: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        let text = text.into();
        Self {
            short: text.clone(),
            whole: text,
        }
    }
}

impl Cell {
    pub(crate) fn new(short: impl Into<String>, whole: impl Into<String>) -> Self {
        Self {
            short: short.into(),
            whole: whole.into(),
        }
    }

    /// The age of what happened at this time, a timestamp of the API.
    pub(crate) fn age(time: Option<&str>, now: Timestamp) -> Self {
        let Some(time) = time else {
            return Self::from("-");
        };
        match time.parse::<Timestamp>() {
            Ok(at) => {
                let seconds = u64::try_from(now.duration_since(at).as_secs()).unwrap_or_default();
                Self::new(rounded_duration(seconds), time)
            }
            Err(_) => Self::from(time),
        }
    }
}

impl ListOptions {
    /// The format of what a command prints that is not a list.
    pub(crate) fn output(self) -> Output {
        match self.output {
            Format::Json => Output::Json,
            _ => Output::Table,
        }
    }

    /// Prints a list in the chosen format; `name` is the column of names or ids.
    pub(crate) fn print<T: Serialize>(
        self,
        document: &T,
        columns: &[Column],
        name: usize,
        rows: Vec<Vec<Cell>>,
    ) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        match self.output {
            Format::Json => {
                drop(out);
                return output::print(Output::Json, document, &[], []);
            }
            Format::Name => {
                for cell in rows.iter().filter_map(|row| row.get(name)) {
                    writeln!(out, "{}", printable(&cell.whole))?;
                }
            }
            Format::Table | Format::Wide => {
                let text = table(columns, rows, self.output == Format::Wide, width());
                let text = match text.split_once('\n') {
                    Some((_, rows)) if self.no_headers => rows,
                    None if self.no_headers => return Ok(()),
                    _ => &text,
                };
                writeln!(out, "{text}")?;
            }
        }
        Ok(())
    }
}

/// The width of the terminal, or that of tables elsewhere.
fn width() -> usize {
    let size = io::stdout().is_terminal().then(crossterm::terminal::size);
    match size {
        Some(Ok((columns, _))) if columns > 0 => usize::from(columns),
        _ => WIDTH,
    }
}

/// A table of at most `width` characters, or with everything.
fn table(columns: &[Column], rows: Vec<Vec<Cell>>, is_wide: bool, width: usize) -> String {
    let shown: Vec<usize> = (0..columns.len())
        .filter(|index| is_wide || !matches!(columns[*index], Column::Wide(_)))
        .collect();
    let headings: Vec<&str> = shown.iter().map(|index| columns[*index].heading()).collect();
    let mut cells: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| {
            let mut row: Vec<_> = row.into_iter().map(Some).collect();
            let mut take = |index: usize| row.get_mut(index).and_then(Option::take).unwrap_or_default();
            shown
                .iter()
                .map(|index| {
                    let cell = take(*index);
                    let text = if is_wide { cell.whole } else { cell.short };
                    printable(&text).into_owned()
                })
                .collect()
        })
        .collect();
    if !is_wide {
        let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        // Each column has a space at both sides.
        let mut excess = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(width);
        for (is_text, minimum) in [(true, MIN_TEXT), (false, MIN_NAME)] {
            let mut candidates: Vec<usize> = (0..shown.len())
                .filter(|index| match columns[shown[*index]] {
                    Column::Text(_) => is_text,
                    Column::Name(_) => !is_text,
                    _ => false,
                })
                .collect();
            while excess > 0 {
                // The widest column gives first.
                candidates.retain(|index| widths[*index] > minimum.max(headings[*index].len()));
                let Some(widest) = candidates.iter().copied().max_by_key(|index| widths[*index]) else {
                    break;
                };
                widths[widest] -= 1;
                excess -= 1;
            }
        }
        for row in &mut cells {
            for (position, cell) in row.iter_mut().enumerate() {
                let from_start = matches!(columns[shown[position]], Column::Name(_));
                *cell = cut(cell, widths[position], from_start);
            }
        }
    }
    output::table(&headings, cells)
}

/// Cuts a text to `width` characters.
fn cut(text: &str, width: usize, from_start: bool) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    if from_start {
        let end: String = text.chars().skip(length - kept).collect();
        format!("…{end}")
    } else {
        let start: String = text.chars().take(kept).collect();
        format!("{start}…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::Name("id"),
        Column::Fixed("age"),
        Column::Text("reason"),
        Column::Wide("version"),
    ];

    fn rows(id: &str, reason: &str) -> Vec<Vec<Cell>> {
        let now = "2026-01-01T01:00:00Z".parse().expect("a time");
        let age = Cell::age(Some("2026-01-01T00:00:00Z"), now);
        vec![vec![Cell::from(id), age, reason.into(), "v1".into()]]
    }

    #[test]
    fn table_fits_its_width_and_the_wide_one_has_everything() {
        let (id, reason) = (format!("/{}/web", "group".repeat(20)), "because ".repeat(20));
        let table_of = |wide| table(COLUMNS, rows(&id, &reason), wide, 80);
        let text = table_of(false);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(
            text.contains("/web ") && text.contains('…') && text.contains("60 min"),
            "{text}"
        );
        assert!(!text.contains("v1"));
        let wide = table_of(true);
        for part in [id.as_str(), reason.trim_end(), "v1", "2026-01-01T00:00:00Z"] {
            assert!(wide.contains(part), "{part}: {wide}");
        }
        let narrow = table(COLUMNS, rows("/a", "short"), false, 80);
        assert!(narrow.contains("/a") && narrow.contains("short") && !narrow.contains('…'));
    }

    #[test]
    fn texts_are_cut_before_names_and_escapes_are_counted() {
        let text = table(
            COLUMNS,
            rows("/shop/group/web", &"\u{1b}[31m".repeat(20)),
            false,
            40,
        );
        assert!(
            text.contains("/shop/group/web") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        // A table whose columns cannot be cut any more is wider.
        assert!(table(COLUMNS, rows("/a", "b"), false, 1).contains("/a"));
    }
}
