//! Terminal colours, if the output is a terminal.

use std::io::IsTerminal;

/// Whether text has colours.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Style {
    colours: bool,
}

impl Style {
    /// Without colours.
    pub const PLAIN: Self = Self { colours: false };

    /// Colours if standard output is a terminal, unless `NO_COLOR` is set.
    pub fn of_standard_output() -> Self {
        let rejected = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            colours: std::io::stdout().is_terminal() && !rejected,
        }
    }

    /// The text, in bold where colours are shown.
    pub fn bold(self, text: &str) -> String {
        self.within("1", text)
    }

    /// The text, in red where colours are shown.
    pub fn red(self, text: &str) -> String {
        self.within("31;1", text)
    }

    /// The text, in yellow where colours are shown.
    pub fn yellow(self, text: &str) -> String {
        self.within("33;1", text)
    }

    /// The text, in green where colours are shown.
    pub fn green(self, text: &str) -> String {
        self.within("32;1", text)
    }

    fn within(self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
