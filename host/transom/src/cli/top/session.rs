//! The session of `top`: handles keys, requests and drawing concurrently, so that a slow daemon does
//! not delay the reaction to a key.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use crossterm::event::Event;
use futures::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::view::{After, View};
use crate::admin::overview::document::Overview;

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
                Some(Ok(Event::Key(key))) => match view.press(key) {
                    After::Quit => return Ok(()),
                    After::Draw => {}
                },
                // The terminal was resized, so the view is drawn again.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            answer = answer(request.as_mut()) => {
                match answer {
                    Ok(overview) => view.show(overview),
                    Err(error) => view.failed(format!("{error:#}")),
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
async fn answer<F: Future>(request: Pin<&mut Option<F>>) -> F::Output {
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
    struct Stand {
        /// The requests, each with the sender of its answer.
        requests: mpsc::UnboundedReceiver<oneshot::Sender<Overview>>,
        keys: mpsc::UnboundedSender<io::Result<Event>>,
        /// The lines on the screen.
        screen: watch::Receiver<Vec<String>>,
    }

    impl Stand {
        fn press(&self, key: char) {
            let event = Event::Key(KeyCode::Char(key).into());
            self.keys.send(Ok(event)).expect("a session");
        }

        async fn request(&mut self) -> oneshot::Sender<Overview> {
            let request = timeout(TIMEOUT, self.requests.recv()).await;
            request.expect("a request").expect("a session")
        }

        async fn until_shown(&mut self, what: &str, shown: impl Fn(&[String]) -> bool) {
            let seen = self.screen.wait_for(|lines| shown(lines));
            let seen = timeout(TIMEOUT, seen).await.map(|seen| seen.is_ok());
            assert_eq!(seen, Ok(true), "{what}: {:?}", self.screen.borrow());
        }
    }

    /// Runs a session until `test` and the session have ended.
    async fn session<T: Future<Output = ()>>(test: impl FnOnce(Stand) -> T) {
        let (asked, requests) = mpsc::unbounded_channel();
        let (keys, pressed) = mpsc::unbounded_channel();
        let (drawn, screen) = watch::channel(Vec::new());
        let pressed = futures::stream::unfold(pressed, async |mut pressed| {
            let event = pressed.recv().await?;
            Some((event, pressed))
        });
        let mut view = View::new("");
        view.show(overview("first"));
        let stand = Stand {
            requests,
            keys,
            screen,
        };
        let fetch = || {
            let (answer, answered) = oneshot::channel();
            asked.send(answer).expect("a test");
            async { answered.await.context("no answer") }
        };
        let draw = |view: &mut View| {
            drawn.send_replace(view.lines(120, 40));
            Ok(())
        };
        let running = run(&mut view, INTERVAL, fetch, Box::pin(pressed), draw);
        let (ended, ()) = tokio::join!(timeout(TIMEOUT, running), test(stand));
        ended.expect("the session ends").expect("no error");
    }

    fn row(lines: &[String], name: &str) -> Option<usize> {
        lines.iter().position(|line| line.contains(name))
    }

    #[tokio::test(start_paused = true)]
    async fn keys_act_while_the_daemon_does_not_answer() {
        session(async |mut stand| {
            let mut request = stand.request().await;
            let asked = Instant::now();
            stand
                .until_shown("the order of the daemon", |lines| {
                    row(lines, "/b") < row(lines, "/a")
                })
                .await;
            stand.press('s');
            stand
                .until_shown("rows by name", |lines| row(lines, "/a") < row(lines, "/b"))
                .await;
            stand.press('q');
            // The session drops the pending request.
            request.closed().await;
            assert_eq!(asked.elapsed(), Duration::ZERO);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn answer_is_shown_and_the_next_request_follows_after_the_interval() {
        session(async |mut stand| {
            let request = stand.request().await;
            tokio::time::advance(10 * INTERVAL).await;
            let answered = Instant::now();
            request.send(overview("second")).expect("a session");
            stand
                .until_shown("the answer", |lines| lines[0].contains("second"))
                .await;
            drop(stand.request().await);
            assert!(answered.elapsed() >= INTERVAL);
            stand
                .until_shown("the failure", |lines| lines[1].contains("STALE: no answer"))
                .await;
            stand.press('q');
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn pause_drops_the_request_and_continuing_sends_another() {
        session(async |mut stand| {
            let mut request = stand.request().await;
            let asked = Instant::now();
            stand.press(' ');
            request.closed().await;
            stand.press(' ');
            let request = stand.request().await;
            assert_eq!(asked.elapsed(), Duration::ZERO);
            stand.press('q');
            drop(request);
        })
        .await;
    }
}
