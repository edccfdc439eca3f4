//! Runs a manifest's `[[self-test]]` cases on a trial instance, and the cases of
//! `transom plugin test`.
//!
//! A case is a call of the plugin's world and the expected answer ([`transom_plugin_cases`]). It runs under the
//! plugin's limits, on an instance that was described and configured. There is no input or output,
//! because the case contains the answers to a probe's steps. One unexpected answer rejects the
//! component.
//!
//! A case is parsed once ([`Testable::prepare_case`]) and can be executed repeatedly
//! ([`Testable::execute`]). Answers have the same form as the expected keys, so that they can be
//! compared, shown and written back to the file.

mod bootstrap;
mod events;
mod matcher;
mod probe;
mod test_instance;

use std::sync::Arc;

use serde::{Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use transom_common::text::one_line;
use transom_plugin_cases::{Answer, check, parse, split_name};

use crate::runtime::engine::{Instance, Reply, World};

pub(crate) use matcher::CaseAgents;
pub use probe::RequestedStep;
pub(crate) use probe::requested_step;
pub(crate) use test_instance::TestInstance;

/// A world that can be tested.
pub(crate) trait Testable: World {
    /// A case as its author wrote it.
    type Case: DeserializeOwned + Send;
    /// The parsed case.
    type Question: Send + Sync;
    /// The instance's result.
    type Output: Send;

    /// Parses a case. `agents`: the agents of a recorded call, if the case does not list them. The
    /// error names the mistake in the case.
    fn prepare_case(case: Self::Case, agents: Option<&Arc<CaseAgents>>)
    -> Result<PreparedCase<Self>, String>;

    /// Executes the case on an instance, as the instance's task would in service. The error is the
    /// reason why there is no answer.
    fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<Self::Shared>,
        question: &Self::Question,
    ) -> impl Future<Output = Result<Self::Output, String>> + Send;

    /// Converts a result into the form of the expected keys.
    fn to_answer(question: &Self::Question, found: Self::Output) -> Answer;

    /// Reduces an answer to the expected keys.
    fn project(found: Answer, _expected: &Answer) -> Answer {
        found
    }
}

/// A parsed case.
pub(crate) struct PreparedCase<W: Testable> {
    pub(crate) question: W::Question,
    /// The expected answer. `None` if the case has no expectation.
    pub(crate) expected: Option<Answer>,
}

impl<W: Testable> PreparedCase<W> {
    /// Parses a case, without its `name`.
    pub(crate) fn parse(case: &Value) -> Result<PreparedCase<W>, String> {
        PreparedCase::parse_with(case, None)
    }

    /// Parses a recorded call, whose agents are not part of the case.
    pub(crate) fn recorded(
        case: &Map<String, Value>,
        agents: Option<&Arc<CaseAgents>>,
    ) -> Result<PreparedCase<W>, String> {
        PreparedCase::parse_with(case, agents)
    }

    fn parse_with<'a>(
        case: impl Deserializer<'a, Error = serde_json::Error>,
        agents: Option<&Arc<CaseAgents>>,
    ) -> Result<PreparedCase<W>, String> {
        W::prepare_case(parse(case)?, agents)
    }

    /// Executes the case and discards the answer, for measurements.
    pub(crate) async fn run(
        &self,
        instance: &mut Instance<W>,
        shared: &Arc<W::Shared>,
    ) -> Result<(), String> {
        W::execute(instance, shared, &self.question).await.map(drop)
    }

    /// Executes the case, and returns the answer reduced to the expected keys.
    pub(crate) async fn execute(
        &self,
        instance: &mut Instance<W>,
        shared: &Arc<W::Shared>,
    ) -> Result<Answer, String> {
        let found = W::execute(instance, shared, &self.question).await?;
        let found = W::to_answer(&self.question, found);
        Ok(match &self.expected {
            Some(expected) => W::project(found, expected),
            None => found,
        })
    }
}

/// Why a test failed. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("self-test {number} of {of}{}: {message}", .name.as_ref().map(|it| format!(" ({it})")).unwrap_or_default())]
pub(crate) struct SelfTestFailure {
    number: usize,
    of: usize,
    name: Option<String>,
    message: String,
}

/// Runs all tests, in order, until one fails.
pub(crate) async fn run<W: Testable>(
    instance: &mut Instance<W>,
    tests: &[Value],
) -> Result<(), SelfTestFailure> {
    let shared = Arc::default();
    for (index, test) in tests.iter().enumerate() {
        let (name, test) = split_name(test);
        run_one(instance, &shared, &test)
            .await
            .map_err(|message| SelfTestFailure {
                number: index + 1,
                of: tests.len(),
                name,
                message: one_line(&message),
            })?;
    }
    Ok(())
}

async fn run_one<W: Testable>(
    instance: &mut Instance<W>,
    shared: &Arc<W::Shared>,
    test: &Value,
) -> Result<(), String> {
    let prepared = PreparedCase::<W>::parse(test)?;
    let found = prepared.execute(instance, shared).await?;
    let PreparedCase { question, expected } = prepared;
    // The guest resources of this test are dropped before the next test.
    drop(question);
    W::drop_orphans(instance, shared)
        .await
        .map_err(|fault| fault.to_error("it").to_string())?;
    check(&found, expected.as_ref())
}

/// Runs a call on an instance, as the instance's task would in service.
async fn ask<W: World, T>(
    instance: &mut Instance<W>,
    shared: &Arc<W::Shared>,
    call: impl FnOnce(Reply<T>) -> W::Call,
) -> Result<T, String> {
    let (reply, mut answer) = oneshot::channel();
    // A fault is also part of the reply.
    let _ = W::run(instance, shared, call(reply)).await;
    match answer.try_recv() {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}
