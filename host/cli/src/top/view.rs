//! The view of `top`: the tables of the overview, sorted and filtered, and the reaction to keys. Pure:
//! it makes no input or output.

use std::cmp::Ordering;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use transom_plugin_host::printable;

use crate::output::table;
use crate::overview::{Overview, Severity};
use crate::status::sections::{self, Section};
use crate::status::style::Style;
use crate::status::text;

/// The maximum number of characters of a filter.
const MAX_FILTER: usize = 100;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyEffect {
    Draw,
    Quit,
}

#[derive(Debug, Default)]
pub(super) struct View {
    overview: Option<Overview>,
    /// The error of the last refresh, if it failed.
    failure: Option<String>,
    filter: String,
    /// Whether keys are typed into the filter.
    typing: bool,
    paused: bool,
    /// The column by which tables are sorted; `None`: the order of the daemon.
    column: Option<usize>,
    reversed: bool,
    /// The first line that is shown below the header.
    scroll: usize,
    /// The number of lines below the header that fit on the screen.
    page: usize,
}

impl View {
    pub(super) fn new(filter: &str) -> Self {
        Self {
            filter: filter.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn show(&mut self, overview: Overview) {
        self.overview = Some(overview);
        self.failure = None;
    }

    /// Records a failed refresh. The last overview stays on the screen.
    pub(super) fn show_failure(&mut self, error: String) {
        self.failure = Some(error);
    }

    pub(super) fn overview(&self) -> Option<&Overview> {
        self.overview.as_ref()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn handle_key(&mut self, key: KeyEvent) -> KeyEffect {
        if key.kind == KeyEventKind::Release {
            return KeyEffect::Draw;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return KeyEffect::Quit,
            code if self.typing => self.edit_filter(code),
            KeyCode::Char('q') => return KeyEffect::Quit,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.column = Some(self.column.map_or(0, |column| (column + 1) % 5)),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::PageDown => self.scroll += self.page,
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        KeyEffect::Draw
    }

    fn edit_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(char) if self.filter.chars().count() < MAX_FILTER => self.filter.push(char),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.scroll = 0;
    }

    /// Exactly `height` lines of at most `width` characters.
    pub(super) fn lines(&mut self, width: usize, height: usize) -> Vec<String> {
        let mut lines = vec![self.header(), self.status_line()];
        let body = self.body();
        self.page = height.saturating_sub(lines.len()).max(1);
        self.scroll = self.scroll.min(body.len().saturating_sub(self.page));
        lines.extend(body.into_iter().skip(self.scroll).take(self.page));
        lines.resize(height, String::new());
        let clip = |line: String| line.chars().take(width).collect();
        lines.into_iter().map(clip).collect()
    }

    fn header(&self) -> String {
        match &self.overview {
            Some(overview) => text::header(overview, Style::PLAIN),
            None => "no answer yet".to_owned(),
        }
    }

    fn status_line(&self) -> String {
        let mut parts = Vec::new();
        if let Some(failure) = &self.failure {
            parts.push(format!("STALE: {}", printable(failure)));
        }
        if self.paused {
            parts.push("PAUSED (space continues)".to_owned());
        }
        if self.typing || !self.filter.is_empty() {
            let cursor = if self.typing { "_" } else { "" };
            parts.push(format!("filter: {}{cursor}", printable(&self.filter)));
        }
        if let Some(column) = self.column {
            let order = if self.reversed { ", reversed" } else { "" };
            parts.push(format!("sorted by column {}{order}", column + 1));
        }
        if parts.is_empty() {
            parts.push("q quit, space pause, / filter, s sort, r reverse".to_owned());
        }
        parts.join("; ")
    }

    fn body(&self) -> Vec<String> {
        let Some(overview) = &self.overview else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let problems = overview.problems.iter();
        let problems = problems.filter(|one| self.matches(&[one.source.clone(), one.message.clone()]));
        for problem in problems {
            let severity = match problem.severity {
                Severity::Error => "ERROR",
                Severity::Warning => "WARNING",
            };
            let (source, message) = (printable(&problem.source), printable(&problem.message));
            lines.push(format!("{severity} {source}: {message}"));
            if !problem.advice.is_empty() {
                lines.push(format!("  {}", printable(&problem.advice)));
            }
        }
        for section in [
            sections::services(overview),
            sections::waiting(overview),
            sections::deployments(overview),
            sections::parts(overview),
            sections::cluster(overview),
        ] {
            let (headings, rows) = self.filtered_and_sorted(section);
            if !rows.is_empty() {
                lines.push(String::new());
                lines.extend(table(headings, rows).lines().map(str::to_owned));
            }
        }
        lines
    }

    /// The rows of a table that match the filter, in the chosen order.
    fn filtered_and_sorted(&self, (headings, mut rows): Section) -> Section {
        rows.retain(|row| self.matches(row));
        if let Some(column) = self.column {
            rows.sort_by(|a, b| compare(a.get(column), b.get(column)));
        }
        if self.reversed {
            rows.reverse();
        }
        (headings, rows)
    }

    fn matches(&self, cells: &[String]) -> bool {
        let filter = self.filter.to_lowercase();
        cells.iter().any(|cell| cell.to_lowercase().contains(&filter))
    }
}

/// Compares two cells: numbers by value, and before text.
fn compare(a: Option<&String>, b: Option<&String>) -> Ordering {
    let number = |cell: Option<&String>| {
        let first = cell?.split_whitespace().next()?;
        first.parse::<f64>().ok()
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let waiting = |name: &str, instances: u64| json!({"name": name, "instances": instances});
        let services = json!([{
            "name": "apps", "ready": true,
            "waiting": [waiting("/b", 10), waiting("/a\u{1b}[31m", 9), waiting("/c", 100)],
        }]);
        let problems = json!([{"severity": "error", "source": "store", "message": "gone", "advice": ""}]);
        let document = json!({"version": "1", "hostname": "h", "services": services, "problems": problems});
        let mut view = View::new("");
        view.show(serde_json::from_value(document).expect("an overview"));
        view
    }

    fn press_keys(view: &mut View, keys: &str) -> KeyEffect {
        let mut effect = KeyEffect::Draw;
        for char in keys.chars() {
            let code = if char == '\n' {
                KeyCode::Enter
            } else {
                KeyCode::Char(char)
            };
            effect = view.handle_key(code.into());
        }
        effect
    }

    /// The names in the table of waiting apps, in the order of its rows.
    fn rows(view: &mut View) -> Vec<String> {
        let lines = view.lines(120, 60);
        let rows = lines
            .iter()
            .map(|line| line.trim_start())
            .filter(|line| line.starts_with('/'));
        rows.map(|line| line.chars().take(2).collect()).collect()
    }

    #[test]
    fn rows_are_sorted_by_the_chosen_column_and_reversed() {
        let mut view = view();
        assert_eq!(rows(&mut view), ["/b", "/a", "/c"]);
        press_keys(&mut view, "s");
        assert_eq!(rows(&mut view), ["/a", "/b", "/c"]);
        press_keys(&mut view, "ss");
        assert_eq!(rows(&mut view), ["/a", "/b", "/c"], "by number, not by text");
        press_keys(&mut view, "r");
        assert_eq!(rows(&mut view), ["/c", "/b", "/a"]);
    }

    #[test]
    fn filter_hides_rows_until_it_is_dropped() {
        let mut view = view();
        assert_eq!(press_keys(&mut view, "/C"), KeyEffect::Draw);
        assert!(view.lines(120, 60)[1].contains("filter: C_"));
        // While the filter is typed, command keys are text.
        press_keys(&mut view, "q\n");
        assert!(rows(&mut view).is_empty());
        view.handle_key(KeyCode::Esc.into());
        assert_eq!(rows(&mut view).len(), 3);
    }

    #[test]
    fn screen_is_filled_and_lines_are_clipped_and_escaped() {
        let mut view = view();
        for (width, height) in [(120, 60), (10, 5), (1, 1), (0, 0)] {
            let lines = view.lines(width, height);
            assert_eq!(lines.len(), height);
            assert!(lines.iter().all(|line| line.chars().count() <= width));
            assert!(!lines.iter().any(|line| line.contains('\u{1b}')));
        }
        view.show_failure("timeout".to_owned());
        assert!(view.lines(80, 30)[1].contains("STALE: timeout"));
        for _ in 0..500 {
            view.handle_key(KeyCode::Down.into());
            view.lines(80, 8);
        }
        assert!(
            view.lines(80, 8).iter().any(|line| line.contains("/c")),
            "the end"
        );
        view.handle_key(KeyCode::Home.into());
        assert_eq!(view.lines(80, 8)[2], "ERROR store: gone", "problems are first");
    }

    #[test]
    fn keys_pause_and_quit() {
        let mut view = view();
        press_keys(&mut view, " ");
        assert!(view.is_paused() && view.lines(80, 8)[1].contains("PAUSED"));
        assert_eq!(press_keys(&mut view, "q"), KeyEffect::Quit);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press_keys(&mut view, "/");
        assert_eq!(view.handle_key(control), KeyEffect::Quit);
    }
}
