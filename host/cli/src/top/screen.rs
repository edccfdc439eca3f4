//! The terminal: switches to the alternate screen while `top` runs, and restores the terminal
//! afterwards.

use std::io::{self, Stdout, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};

use super::view::View;

/// The alternate screen. Dropping this restores the terminal, also after a panic.
pub(super) struct Screen {
    out: Stdout,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let mut screen = Self { out: io::stdout() };
        execute!(screen.out, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Overwrites the lines one by one, which avoids flicker.
    pub(super) fn draw(&mut self, view: &mut View) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let lines = view.lines(usize::from(width), usize::from(height));
        for (row, line) in (0..height).zip(lines) {
            queue!(
                self.out,
                MoveTo(0, row),
                Print(line),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error cannot be reported any more.
        let _ = execute!(self.out, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
