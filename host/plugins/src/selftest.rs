//! What a manifest's `[[self-test]]` asks of a trial instance before it may serve, and what `transom plugin test` asks of one.
//!
//! A case is a question of the plugin's world, recorded, and the answer that is expected. It is asked under the plugin's own limits,
//! of an instance that was described and configured, and reaches nothing: a probe's steps are answered from the case. One answer that
//! is not as expected refuses the component.
//!
//! A case is read once ([`Testable::prepared`]) and can be put as often as wanted ([`Testable::execute`]). What was found has the form of the keys
//! that say what is expected, so that it can be compared with them, shown beside them, and written in their place.

mod bootstrap;
mod events;
mod matcher;
mod probe;

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    engine::{Instance, Reply, World},
    text::one_line,
};

/// What is expected of a case, or was found: the keys `expect` and `refused`.
pub(crate) type Answer = Map<String, Value>;

/// A world that can be tested.
pub(crate) trait Testable: World {
    /// A case as its author wrote it.
    type Case: DeserializeOwned + Send;
    /// The same, made ready to be put.
    type Question: Send + Sync;
    /// What the instance answered.
    type Found: Send;

    /// The error says what is wrong with the case.
    fn prepare_case(case: Self::Case) -> Result<PreparedCase<Self>, String>;

    /// Asks the instance, as its owner would: `shared` is what that one keeps beside it. The error says why there is no answer.
    fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<Self::Shared>,
        question: &Self::Question,
    ) -> impl Future<Output = Result<Self::Found, String>> + Send;

    /// An answer in the form of the expectations.
    fn to_answer(question: &Self::Question, found: Self::Found) -> Answer;

    /// As much of what was found as the expectation speaks of.
    fn project(found: Answer, _expected: &Answer) -> Answer {
        found
    }
}

/// A case, read.
pub(crate) struct PreparedCase<W: Testable> {
    pub(crate) question: W::Question,
    /// None: the case does not say.
    pub(crate) expected: Option<Answer>,
}

impl<W: Testable> PreparedCase<W> {
    /// Reads a case. Its `name` is for its readers, and the host's callers take it out before.
    pub(crate) fn read(case: &Value) -> Result<PreparedCase<W>, String> {
        let case = serde_path_to_error::deserialize(case).map_err(|error| {
            let path = error.path().to_string();
            format!("`{path}`: {}", error.into_inner())
        })?;
        W::prepare_case(case)
    }

    /// Puts it, and says what was found as far as the case asks for it.
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

/// Why a test was not passed. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("self-test {number} of {of}{}: {message}", .name.as_ref().map(|it| format!(" ({it})")).unwrap_or_default())]
pub(crate) struct Failed {
    number: usize,
    of: usize,
    name: Option<String>,
    message: String,
}

/// Runs all of them, in order, until one is not passed.
pub(crate) async fn run<W: Testable>(instance: &mut Instance<W>, tests: &[Value]) -> Result<(), Failed> {
    let shared = Arc::default();
    for (index, test) in tests.iter().enumerate() {
        let (name, test) = named(test);
        one(instance, &shared, &test).await.map_err(|message| Failed {
            number: index + 1,
            of: tests.len(),
            name,
            message: one_line(&message),
        })?;
    }
    Ok(())
}

async fn one<W: Testable>(
    instance: &mut Instance<W>,
    shared: &Arc<W::Shared>,
    test: &Value,
) -> Result<(), String> {
    let prepared = PreparedCase::<W>::read(test)?;
    let found = prepared.execute(instance, shared).await?;
    let PreparedCase { question, expected } = prepared;
    // What was held for it goes before the next.
    drop(question);
    W::drop_orphans(instance, shared)
        .await
        .map_err(|fault| fault.to_error("it").to_string())?;
    match expected {
        Some(expected) if found == expected => Ok(()),
        Some(expected) => Err(differs(&found, &expected)),
        None => Err(format!(
            "it does not say what is expected; found {}",
            text(&found)
        )),
    }
}

/// A case's name for people, and the rest of it.
pub(crate) fn named(case: &Value) -> (Option<String>, Value) {
    let mut case = case.clone();
    let name = match case.as_object_mut().map(|it| it.remove("name")) {
        Some(Some(Value::String(name))) => Some(one_line(&name)),
        _ => None,
    };
    (name, case)
}

/// Both, in words.
pub(crate) fn differs(found: &Answer, expected: &Answer) -> String {
    format!("found {}, expected {}", text(found), text(expected))
}

/// As short as it can be said: what `expect` is, where there is nothing else.
pub(crate) fn text(answer: &Answer) -> String {
    match answer.get("expect") {
        Some(expect) if answer.len() == 1 => expect.to_string(),
        _ => Value::Object(answer.clone()).to_string(),
    }
}

/// An answer of one key.
fn answer(key: &str, value: impl Serialize) -> Answer {
    // Numbers, texts and what consists of them have a JSON form.
    let value = serde_json::to_value(value).unwrap_or_default();
    Map::from_iter([(key.to_owned(), value)])
}

/// Asks the instance, as its owner would.
async fn ask<W: World, T>(
    instance: &mut Instance<W>,
    shared: &Arc<W::Shared>,
    call: impl FnOnce(Reply<T>) -> W::Call,
) -> Result<T, String> {
    let (reply, mut answer) = oneshot::channel();
    // A fault is in the answer as well.
    let _ = W::run(instance, shared, call(reply)).await;
    match answer.try_recv() {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it was not answered".to_owned()),
    }
}
