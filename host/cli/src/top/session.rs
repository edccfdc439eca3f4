//! The session of `top`: handles keys, requests and drawing concurrently, so that a slow daemon does
//! not delay the reaction to a key.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use crossterm::event::Event;
use futures::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::view::{KeyEffect, View};
use crate::exit;
use crate::overview::Overview;

/// Refreshes and draws until the user quits or the stream of keys ends. At most one request is in
/// flight, and `interval` passes between its answer and the next request.
pub(super) async fn run<F>(
    view: &mut View,
    interval: Duration,
    mut fetch: impl FnMut() -> F,
    mut keys: impl Stream<Item = io::Result<Event>> + Unpin,
    mut draw: impl FnMut(&mut View) -> io::Result<()>,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<Overview>>,
{
    let mut request = pin!(None);
    let mut next = Instant::now() + interval;
    loop {
        draw(view)?;
        tokio::select! {
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) => match view.handle_key(key) {
                    KeyEffect::Quit => return Ok(()),
                    KeyEffect::Draw => {}
                },
                // The terminal was resized, so the view is drawn again.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            answer = await_request(request.as_mut()) => {
                match answer {
                    Ok(overview) => view.show(overview),
                    Err(error) => view.show_failure(exit::first_line(&error)),
                }
                request.set(None);
                next = Instant::now() + interval;
            }
            () = sleep_until(next), if request.is_none() && !view.is_paused() => request.set(Some(fetch())),
        }
        if view.is_paused() {
            // The answer would change the paused tables. The next request is sent when the user
            // continues.
            request.set(None);
        }
    }
}

/// Waits for the answer to the request in flight; never returns without one.
async fn await_request<F: Future>(request: Pin<&mut Option<F>>) -> F::Output {
    match request.as_pin_mut() {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use crossterm::event::KeyCode;
    use serde_json::json;
    use tokio::sync::{mpsc, oneshot, watch};
    use tokio::time::timeout;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);
    /// With Tokio's paused clock, time advances only while all tasks are idle.
    const TIMEOUT: Duration = Duration::from_mins(1);

    fn overview(hostname: &str) -> Overview {
        let waiting = |name: &str| json!({"name": name, "instances": 1});
        let services = json!([{"name": "apps", "ready": true, "waiting": [waiting("/b"), waiting("/a")]}]);
        let document = json!({"version": "1", "hostname": hostname, "services": services});
        serde_json::from_value(document).expect("an overview")
    }

    /// A stand-in for the user, and for a daemon whose answers the test sends.
    struct TestSession {
        /// The requests, each with the sender of its answer.
        requests: mpsc::UnboundedReceiver<oneshot::Sender<Overview>>,
        keys: mpsc::UnboundedSender<io::Result<Event>>,
        /// The lines on the screen.
        screen: watch::Receiver<Vec<String>>,
    }

    impl TestSession {
        fn press(&self, key: char) {
            let event = Event::Key(KeyCode::Char(key).into());
            self.keys.send(Ok(event)).expect("a session");
        }

        async fn request(&mut self) -> oneshot::Sender<Overview> {
            let request = timeout(TIMEOUT, self.requests.recv()).await;
            request.expect("a request").expect("a session")
        }

        async fn wait_until_shown(&mut self, description: &str, is_shown: impl Fn(&[String]) -> bool) {
            let result = self.screen.wait_for(|lines| is_shown(lines));
            let result = timeout(TIMEOUT, result).await.map(|result| result.is_ok());
            assert_eq!(result, Ok(true), "{description}: {:?}", self.screen.borrow());
        }
    }

    /// Runs a session until `test` and the session have ended.
    async fn session<T: Future<Output = ()>>(test: impl FnOnce(TestSession) -> T) {
        let (request_sender, requests) = mpsc::unbounded_channel();
        let (keys, pressed) = mpsc::unbounded_channel();
        let (drawn, screen) = watch::channel(Vec::new());
        let pressed = futures::stream::unfold(pressed, async |mut pressed| {
            let event = pressed.recv().await?;
            Some((event, pressed))
        });
        let mut view = View::new("");
        view.show(overview("first"));
        let test_session = TestSession {
            requests,
            keys,
            screen,
        };
        let fetch = || {
            let (answer, answered) = oneshot::channel();
            request_sender.send(answer).expect("a test");
            async { answered.await.context("no answer") }
        };
        let draw = |view: &mut View| {
            drawn.send_replace(view.lines(120, 40));
            Ok(())
        };
        let running = run(&mut view, INTERVAL, fetch, Box::pin(pressed), draw);
        let (ended, ()) = tokio::join!(timeout(TIMEOUT, running), test(test_session));
        ended.expect("the session ends").expect("no error");
    }

    fn row(lines: &[String], name: &str) -> Option<usize> {
        lines.iter().position(|line| line.contains(name))
    }

    #[tokio::test(start_paused = true)]
    async fn keys_act_while_the_daemon_does_not_answer() {
        session(async |mut test_session| {
            let mut request = test_session.request().await;
            let requested_at = Instant::now();
            test_session
                .wait_until_shown("the order of the daemon", |lines| {
                    row(lines, "/b") < row(lines, "/a")
                })
                .await;
            test_session.press('s');
            test_session
                .wait_until_shown("rows by name", |lines| row(lines, "/a") < row(lines, "/b"))
                .await;
            test_session.press('q');
            // The session drops the pending request.
            request.closed().await;
            assert_eq!(requested_at.elapsed(), Duration::ZERO);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_shown_and_the_next_request_follows_after_the_interval() {
        session(async |mut test_session| {
            let request = test_session.request().await;
            tokio::time::advance(10 * INTERVAL).await;
            let answered = Instant::now();
            request.send(overview("second")).expect("a session");
            test_session
                .wait_until_shown("the answer", |lines| lines[0].contains("second"))
                .await;
            drop(test_session.request().await);
            assert!(answered.elapsed() >= INTERVAL);
            test_session
                .wait_until_shown("the failure", |lines| lines[1].contains("STALE: no answer"))
                .await;
            test_session.press('q');
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn pause_drops_the_request_and_continuing_sends_another() {
        session(async |mut test_session| {
            let mut request = test_session.request().await;
            let requested_at = Instant::now();
            test_session.press(' ');
            request.closed().await;
            test_session.press(' ');
            let request = test_session.request().await;
            assert_eq!(requested_at.elapsed(), Duration::ZERO);
            test_session.press('q');
            drop(request);
        })
        .await;
    }
}
