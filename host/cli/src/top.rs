//! `transom top`: the overview of a running daemon, live.

mod screen;
mod session;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use crossterm::event::EventStream;
use tokio::signal::unix::{SignalKind, signal};

use super::status::style::Style;
use super::status::{self, text};
use crate::admin_port::Connection;
use screen::Screen;
use view::View;

/// Timeout of a refresh.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Show the state of a running daemon, and refresh it.
///
/// Keys: `q` quit, space pause, `/` filter rows (Enter keeps the filter, Escape removes it), `s` sort
/// by the next column, `r` reverse, arrows and page keys scroll. If the output is not a terminal, the
/// state is printed once, as by `transom status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom top\n  \
    transom top --interval 1 --filter shop\n  \
    transom top --once")]
pub struct Top {
    #[command(flatten)]
    connection: Connection,
    /// Seconds between refreshes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Show only rows that contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print the state once and exit.
    #[arg(long)]
    once: bool,
}

impl Top {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let mut view = View::new(&self.filter);
        // The first request is made before the screen opens, so that invalid options and an unreachable
        // daemon are reported as by other commands.
        view.show(self.fetch().await?);
        if self.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            if let Some(overview) = view.overview() {
                let mut out = io::stdout().lock();
                write!(out, "{}", text::of(overview, Style::of_standard_output()))?;
                out.flush()?;
                return status::failed(overview);
            }
            return Ok(());
        }
        let mut screen = Screen::open()?;
        let ended = self.follow(&mut view, &mut screen).await;
        drop(screen);
        ended
    }

    /// Refreshes and draws until the user quits, or SIGTERM or SIGHUP arrives.
    async fn follow(&self, view: &mut View, screen: &mut Screen) -> anyhow::Result<()> {
        let interval = Duration::from_secs(self.interval);
        let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (fetch, draw) = (|| self.fetch(), |view: &mut View| screen.draw(view));
        tokio::select! {
            ended = session::run(view, interval, fetch, EventStream::new(), draw) => ended,
            _ = terminate.recv() => Ok(()),
            _ = hang_up.recv() => Ok(()),
        }
    }

    async fn fetch(&self) -> anyhow::Result<crate::overview::Overview> {
        let body = self.connection.get_text(&["v1", "overview"], TIMEOUT).await?;
        status::read(&body)
    }
}
