//! How far a component got on its way to serving: what `check` shows, and what nobody else looks at.

use std::time::{Duration, Instant};

use serde::Serialize;

/// What a component goes through, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stage {
    /// The manifest is there and says what it says in known words.
    Manifest,
    /// It is no larger than `limits.size`.
    Size,
    /// It is the one that the manifest pins.
    Digest,
    /// One of the keys that have to have signed it did, where there are any.
    Signature,
    /// It is a component and compiles.
    Compile,
    /// It exports what its world asks for.
    World,
    /// It imports nothing that is not there or was withdrawn.
    Imports,
    /// The pool has room for what it consists of, and its limits for what it begins with.
    Resources,
    /// It links: its functions have the types that they should.
    Link,
    /// An instance of it starts.
    Trial,
    /// It describes itself.
    Describe,
    /// The manifest's `[config]` passes the schema that it stated.
    Schema,
    /// It takes its configuration.
    Configure,
    /// It answers the manifest's self-tests as expected.
    SelfTests,
}

/// One stage that was entered.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) stage: Stage,
    /// What was found there, in a few words; may be empty.
    pub(crate) note: String,
    pub(crate) took: Duration,
}

/// The stages entered so far. The last one is under way, or is where the component was refused.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<Step>,
    begun: Option<Instant>,
}

impl Steps {
    /// Enters a stage; the one before it was passed.
    pub(crate) fn begin(&mut self, stage: Stage) {
        self.close();
        self.begun = Some(Instant::now());
        self.done.push(Step {
            stage,
            note: String::new(),
            took: Duration::ZERO,
        });
    }

    /// Says what was found at the present stage.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        if let Some(step) = self.done.last_mut() {
            step.note = note.into();
        }
    }

    fn close(&mut self) {
        if let (Some(step), Some(begun)) = (self.done.last_mut(), self.begun.take()) {
            step.took = begun.elapsed();
        }
    }

    pub(crate) fn into_steps(mut self) -> Vec<Step> {
        self.close();
        self.done
    }
}
