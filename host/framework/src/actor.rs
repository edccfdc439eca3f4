//! Requests to an actor.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{mpsc, oneshot};
use transom_common::error_chain;
use transom_store::typed;
use transom_web::ApiError;

/// The channel of a reply; `E` is the error of the service.
pub type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// Why an actor did not carry out a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ActorError {
    /// The store did not accept the change, or not in time; it is unknown whether an unavailable
    /// store applied it.
    #[error("the state store did not confirm the change")]
    Store(#[source] Arc<typed::Error>),
    /// This daemon is stopping, or is no longer the leader.
    #[error("this daemon is stopping, or is no longer the leader")]
    Stopped,
    /// The request timed out, and may still be carried out.
    #[error("the request timed out")]
    TimedOut,
}

impl From<typed::Error> for ActorError {
    fn from(error: typed::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// 503 with `Retry-After`; 422 for a change that no store accepts.
impl From<ActorError> for ApiError {
    fn from(error: ActorError) -> Self {
        if let ActorError::Store(error) = &error
            && let typed::Error::Store(transom_store::Error::TooLarge { .. }) = &**error
        {
            let text =
                format!("The change is too large and was not made: {error}. Divide it into smaller ones.");
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, text);
        }
        if let ActorError::Store(error) = &error {
            tracing::error!(error = error_chain(&**error), "storing a change failed");
        }
        Self::unavailable(match error {
            ActorError::Store(_) => {
                "The state store did not confirm the change. Check it before you try again."
            }
            ActorError::Stopped => "This daemon is stopping, or is no longer the leader. Try again later.",
            ActorError::TimedOut => {
                "The change timed out and may still be applied. Check before you try again."
            }
        })
    }
}

/// Sends a request to an actor and waits for its reply.
///
/// # Errors
/// The error that the actor replied with, [`ActorError::Stopped`] if the actor has ended, or
/// [`ActorError::TimedOut`] after `timeout`.
pub async fn ask<C, T, E: From<ActorError>>(
    actor: &mpsc::Sender<C>,
    timeout: Duration,
    command_for: impl FnOnce(Reply<T, E>) -> C,
) -> Result<T, E> {
    let (reply, answer) = oneshot::channel();
    let exchange = async {
        let sent = actor.send(command_for(reply)).await;
        sent.map_err(|_| ActorError::Stopped)?;
        answer.await.map_err(|_| ActorError::Stopped)?
    };
    tokio::time::timeout(timeout, exchange)
        .await
        .unwrap_or_else(|_| Err(ActorError::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Request = Reply<u32, ActorError>;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn change_that_no_store_accepts_is_rejected_with_the_limit() {
        let too_large = |size| transom_store::Error::TooLarge {
            what: "a batch, in changes,".to_owned(),
            size,
            limit: 65_536,
        };
        let answer = ApiError::from(ActorError::from(typed::Error::from(too_large(100_003))));
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let (message, limit) = (answer.message(), "100003, at most 65536");
        assert!(
            message.contains("not made") && message.contains(limit),
            "{message}"
        );
        let timeout = typed::Error::Timeout { timeout: TIMEOUT };
        assert_eq!(ApiError::from(ActorError::from(timeout)).status(), 503);
    }

    #[tokio::test(start_paused = true)]
    async fn ask_returns_the_reply_or_an_error() {
        let (actor, mut requests) = mpsc::channel::<Request>(1);
        let (answer, ()) = tokio::join!(ask(&actor, TIMEOUT, |reply| reply), async {
            let _ = requests.recv().await.unwrap().send(Ok(7));
        });
        assert_eq!(answer.unwrap(), 7);

        let (answer, ()) = tokio::join!(ask(&actor, TIMEOUT, |reply| reply), async {
            drop(requests.recv().await);
        });
        assert!(matches!(answer, Err(ActorError::Stopped)), "{answer:?}");

        let answer = ask(&actor, TIMEOUT, |reply: Request| reply).await;
        assert!(matches!(answer, Err(ActorError::TimedOut)), "{answer:?}");

        drop(requests);
        let answer = ask(&actor, TIMEOUT, |reply: Request| reply).await;
        assert!(matches!(answer, Err(ActorError::Stopped)), "{answer:?}");
    }
}
