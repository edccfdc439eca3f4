//! A run with its connections and its results so far.

use crate::{
    agent,
    client::{self, Request, Response},
    compare::{self, Differences},
    documents,
    recording::Recordings,
    scheduler,
};
use serde_json::Value;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// An error that prevents a run, or the comparison of a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder does not contain the recordings.
    #[error("{} holds no recordings: there is no INDEX.md", .0.display())]
    NoRecordings(PathBuf),
    /// A recording cannot be read.
    #[error("cannot read the recording {}", path.display())]
    Recording {
        /// Path of the recording.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The exchange with the master or an agent failed.
    #[error("an exchange failed")]
    Exchange(#[from] client::Error),
    /// An earlier step did not provide what this step needs.
    #[error("{0}")]
    Missing(String),
}

/// The result of one comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The recording.
    pub recording: String,
    /// The name of the request or the expected event.
    pub step: String,
    /// The differences; empty if there are none.
    pub differences: Vec<String>,
    /// Differences of the master's build, which do not count.
    pub build_differences: Vec<String>,
}

/// Replays all recordings against a master.
pub async fn replay(master: SocketAddr, fixtures: &Path) -> Result<Vec<Outcome>, Error> {
    let recordings = Recordings::open(fixtures)?;
    client::exchange(master, &Request::get("/health")).await?;
    let mut run = Run {
        master,
        recordings,
        outcomes: Vec::new(),
    };
    documents::without_frameworks(&mut run).await;
    documents::unusual_requests(&mut run).await;
    if let Err(error) = scheduler::replay(&mut run).await {
        run.fail("1-main", "the scheduler's part", &error);
    }
    agent::unusual_requests(&mut run).await;
    Ok(run.outcomes)
}

/// The state of a run.
pub(crate) struct Run {
    pub(crate) master: SocketAddr,
    pub(crate) recordings: Recordings,
    outcomes: Vec<Outcome>,
}

impl Run {
    fn record(&mut self, recording: &str, step: &str, differences: Differences) {
        self.outcomes.push(Outcome {
            recording: recording.to_owned(),
            step: step.to_owned(),
            differences: differences.counted,
            build_differences: differences.of_build,
        });
    }

    /// Adds the outcome of a step that could not be executed.
    pub(crate) fn fail(&mut self, recording: &str, step: &str, error: &dyn std::error::Error) {
        let mut why = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            why = format!("{why}: {error}");
            source = error.source();
        }
        let mut differences = Differences::default();
        differences.push(why);
        self.record(recording, step, differences);
    }

    /// Sends a request to the master and compares the answer.
    pub(crate) async fn ask(&mut self, recording: &str, request: &Request) {
        self.ask_at(self.master, recording, request).await;
    }

    /// Sends a request to any address and compares the answer.
    pub(crate) async fn ask_at(&mut self, addr: SocketAddr, recording: &str, request: &Request) {
        let step = format!("{} {}", request.method, request.target);
        match client::exchange(addr, request).await {
            Ok(answer) => self.compare(recording, &step, &answer),
            Err(error) => self.fail(recording, &step, &error),
        }
    }

    /// Compares an answer with a `.raw` recording.
    pub(crate) fn compare(&mut self, recording: &str, step: &str, answer: &Response) {
        match self.recordings.answer(recording) {
            Ok(recorded) => self.record(recording, step, compare::answers(&recorded, answer)),
            Err(error) => self.fail(recording, step, &error),
        }
    }

    /// Compares the head of a stream with its recording.
    pub(crate) fn compare_head(&mut self, recording: &str, answer: &Response) {
        match self.recordings.head(recording) {
            Ok(recorded) => self.record(recording, "head of the stream", compare::heads(&recorded, answer)),
            Err(error) => self.fail(recording, "head of the stream", &error),
        }
    }

    /// Compares two heads.
    pub(crate) fn compare_heads(&mut self, recording: &str, recorded: &Response, answer: &Response) {
        self.record(recording, "head of the stream", compare::heads(recorded, answer));
    }

    /// Compares a JSON value with its recording.
    pub(crate) fn compare_json(&mut self, recording: &str, step: &str, recorded: &Value, live: &Value) {
        let (recorded, live) = (compare::without_races(recorded), compare::without_races(live));
        let mut differences = Differences::default();
        compare::shapes(&recorded, &live, "", &mut differences);
        self.record(recording, step, differences);
    }

    /// Compares an event, including those values that have a fixed set.
    pub(crate) fn compare_event(&mut self, recording: &str, step: &str, recorded: &Value, live: &Value) {
        let (recorded, live) = (&compare::without_races(recorded), &compare::without_races(live));
        let mut differences = Differences::default();
        compare::shapes(recorded, live, "", &mut differences);
        for pointer in [
            "/type",
            "/update/status/state",
            "/update/status/source",
            "/update/status/reason",
        ] {
            let (expected, found) = (recorded.pointer(pointer), live.pointer(pointer));
            if expected != found {
                differences.push(format!("{pointer}: expected {expected:?}, found {found:?}"));
            }
        }
        for pointer in ["/update/status/message", "/error/message"] {
            let text = |event: &Value| {
                event
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .map(compare::without_ids)
            };
            let (expected, found) = (text(recorded), text(live));
            // Available resources and paths differ between clusters, so the text after them is not
            // compared.
            let prefix = |text: &Option<String>| {
                text.as_deref()
                    .map(|text| text.split(['/', '[']).next().unwrap_or_default().to_owned())
            };
            let amounts = expected
                .as_deref()
                .is_some_and(|text| text.starts_with("Total resources"));
            if !amounts && prefix(&expected) != prefix(&found) {
                differences.push(format!("{pointer}: expected {expected:?}, found {found:?}"));
            }
        }
        self.record(recording, step, differences);
    }
}
