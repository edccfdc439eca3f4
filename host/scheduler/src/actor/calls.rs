//! Concurrent calls to the master.

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use transom_cluster::Result;

/// Calls to the master that run concurrently.
const MAX_CONCURRENT_CALLS: usize = 8;

/// Makes calls concurrently, each given with its subject. Returns the subjects with the results;
/// `None`: the call was not made.
///
/// When a call finds that the master does not answer, no further call begins: each would wait until
/// its timeout, and all other work of the actor with it, even if another master leads by then.
pub(super) async fn make_calls<T>(
    calls: Vec<(T, BoxFuture<'_, Result<()>>)>,
) -> Vec<(T, Option<Result<()>>)> {
    let mut results = Vec::with_capacity(calls.len());
    let mut waiting = calls.into_iter();
    let mut running: FuturesUnordered<_> = waiting.by_ref().take(MAX_CONCURRENT_CALLS).map(run).collect();
    let mut master_answers = true;
    while let Some((subject, result)) = running.next().await {
        master_answers &= !result.as_ref().is_err_and(transom_cluster::Error::is_no_answer);
        results.push((subject, Some(result)));
        if master_answers {
            running.extend(waiting.next().map(run));
        }
    }
    results.extend(waiting.map(|(subject, _)| (subject, None)));
    results
}

async fn run<T>((subject, call): (T, BoxFuture<'_, Result<()>>)) -> (T, Result<()>) {
    (subject, call.await)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use transom_cluster::Error;

    use super::*;

    fn timed_out() -> Error {
        Error::TimedOut {
            address: "http://m:5050".to_owned(),
            call: "KILL".to_owned(),
            after: Duration::from_secs(30),
        }
    }

    fn rejected() -> Error {
        Error::Rejected {
            call: "KILL".to_owned(),
            status: 400,
            body: String::new(),
        }
    }

    /// Makes 100 calls, of which all but the first 20 fail. Returns how many were made.
    async fn made(error: fn() -> Error) -> usize {
        let calls = (0..100).map(|number| {
            let result = if number < 20 { Ok(()) } else { Err(error()) };
            (number, std::future::ready(result).boxed())
        });
        let results = make_calls(calls.collect()).await;
        assert_eq!(results.len(), 100);
        results.iter().filter(|(_, result)| result.is_some()).count()
    }

    #[tokio::test]
    async fn no_call_begins_when_the_master_does_not_answer() {
        assert_eq!(made(timed_out).await, 20 + MAX_CONCURRENT_CALLS);
    }

    #[tokio::test]
    async fn rejected_calls_do_not_end_the_others() {
        assert_eq!(made(rejected).await, 100);
    }
}
