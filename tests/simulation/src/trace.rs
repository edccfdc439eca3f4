//! What happened in a simulation, and its digest.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// The number of last events that a violation is shown with.
const MAX_SHOWN: usize = 40;

/// The number of last events about one subject.
const MAX_ABOUT: usize = 100;

/// All events of a run: their digest and their number, and the last ones as text.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// A job or an app; only events about it are kept as text.
    about: Option<String>,
    /// Called with the text of each event.
    sink: Option<fn(&str)>,
    digest: Sha256,
    events: u64,
    last: VecDeque<String>,
}

impl Trace {
    pub(crate) fn new(about: Option<String>, sink: Option<fn(&str)>) -> Self {
        Self {
            about,
            sink,
            ..Self::default()
        }
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, at: Duration, event: &str) {
        let line = format!("{:>12.2} s  {event}", at.as_secs_f64());
        if let Some(sink) = self.sink {
            sink(&line);
        }
        self.digest.update(line.as_bytes());
        self.digest.update(b"\n");
        self.events += 1;
        let max_shown = match &self.about {
            Some(about)
                if !event
                    .split([' ', ':', '/', ',', '.', '?'])
                    .any(|word| word == about) =>
            {
                return;
            }
            Some(_) => MAX_ABOUT,
            None => MAX_SHOWN,
        };
        if self.last.len() == max_shown {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The last events, oldest first.
    pub(crate) fn last(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }

    /// The digest of all events, in hexadecimal digits.
    pub(crate) fn digest(self) -> String {
        let mut text = String::new();
        for byte in self.digest.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}
