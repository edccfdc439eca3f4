//! The machine of a daemon, and its process there.

use std::time::Duration;

use jiff::SignedDuration;
use transom_plugin_host::simulation::ScriptedPlugins;

use crate::candidate::Board;
use crate::process::Process;
use crate::run::STEP;
use crate::zones::ZoneCheck;

/// A daemon's machine.
pub(crate) struct Machine {
    pub(crate) host: String,
    pub(crate) address: String,
    /// How far its clock is wrong.
    pub(crate) offset: SignedDuration,
    pub(crate) shown: ZoneCheck,
    /// `None` while it is killed.
    pub(crate) process: Option<Process>,
    pub(crate) is_paused: bool,
    /// How long its process has not run.
    pub(crate) missed: Duration,
    pub(crate) starts: u32,
    pub(crate) board: Board,
    pub(crate) plugins: ScriptedPlugins,
    /// Whether its term had time left by its own clock when it last ran.
    pub(crate) acts: bool,
    /// Whether it lost its term in the last step, rather than gave it up.
    pub(crate) has_lost: bool,
}

impl Machine {
    pub(crate) fn new(host: String) -> Self {
        Self {
            address: format!("{host}:8080"),
            host,
            offset: SignedDuration::ZERO,
            shown: ZoneCheck::default(),
            process: None,
            is_paused: false,
            missed: Duration::ZERO,
            starts: 0,
            board: Board::default(),
            plugins: ScriptedPlugins::default(),
            acts: false,
            has_lost: false,
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && !self.is_paused
    }

    /// Lets its process run for a step, unless it is paused.
    pub(crate) fn turn(&mut self) {
        let Some(process) = &self.process else {
            self.missed = Duration::ZERO;
            return;
        };
        if self.is_paused {
            self.missed += STEP;
            return;
        }
        let missed = std::mem::take(&mut self.missed);
        if !missed.is_zero() {
            process.skip(missed);
        }
        let board = &self.board;
        self.acts = process.run(STEP, || {
            board.with(|observed| {
                let term = observed.term.as_ref();
                term.is_some_and(|term| !term.remaining().is_zero())
            })
        });
    }
}
