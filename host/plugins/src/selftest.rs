//! What a manifest's `[[self-test]]` asks of a trial instance before it may serve.
//!
//! A test is a question of the plugin's world, recorded, and the answer that is expected. It is asked under the plugin's own limits,
//! of the instance that was described and configured, and reaches nothing: a probe's steps are answered from the test. One answer that
//! is not as expected refuses the component.

mod bootstrap;
mod events;
mod matcher;
mod probe;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    engine::{
        Live, Reply, World,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    text::one_line,
};

/// A world that can be tested.
pub(crate) trait Tested: World {
    /// A test as the manifest has it.
    type Test: DeserializeOwned + Send + Sync;

    /// Runs one. The error says what was found and what was expected.
    fn run_test(live: &mut Live<Self>, test: Self::Test) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why a test was not passed. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("self-test {number} of {of}: {message}")]
pub(crate) struct Failed {
    number: usize,
    of: usize,
    message: String,
}

/// Runs all of them, in order, until one is not passed.
pub(crate) async fn run<W: Tested>(live: &mut Live<W>, tests: &[Value]) -> Result<(), Failed> {
    for (index, test) in tests.iter().enumerate() {
        let done = match read::<W::Test>(test) {
            Ok(test) => W::run_test(live, test).await,
            Err(message) => Err(message),
        };
        done.map_err(|message| Failed {
            number: index + 1,
            of: tests.len(),
            message: one_line(&message),
        })?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(test: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(test).map_err(|error| {
        let path = error.path().to_string();
        format!("`{path}`: {}", error.into_inner())
    })
}

/// Asks the instance, as its owner would.
async fn ask<W: World, T>(live: &mut Live<W>, job: impl FnOnce(Reply<T>) -> W::Job) -> Result<T, String> {
    let (reply, mut answer) = oneshot::channel();
    // A fault is in the answer as well.
    let _ = W::run(live, &Arc::default(), job(reply)).await;
    match answer.try_recv() {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it was not answered".to_owned()),
    }
}

/// Compares, and says both.
fn expect<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("found {found:?}, expected {expected:?}"))
    }
}

impl Tested for Probe {
    type Test = probe::Test;

    async fn run_test(live: &mut Live<Self>, test: Self::Test) -> Result<(), String> {
        probe::run(live, test).await
    }
}

impl Tested for Matcher {
    type Test = matcher::Test;

    async fn run_test(live: &mut Live<Self>, test: Self::Test) -> Result<(), String> {
        matcher::run(live, test).await
    }
}

impl Tested for Filter {
    type Test = events::Test;

    async fn run_test(live: &mut Live<Self>, test: Self::Test) -> Result<(), String> {
        events::run(live, test).await
    }
}

impl Tested for Bootstrap {
    type Test = bootstrap::Test;

    async fn run_test(live: &mut Live<Self>, test: Self::Test) -> Result<(), String> {
        bootstrap::run(live, test).await
    }
}
