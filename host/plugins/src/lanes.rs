//! Where guests run: what ends soon runs where it was asked, what goes on and on runs on threads of low priority.
//!
//! Guests give way every millisecond, but a millisecond is long for those who wait behind one, and a guest that never ends takes
//! it again and again. So a call that has used more than [`SOON`] of the processor goes on in the slow lane: threads of their own, which the
//! operating system gives what nobody else wants. The daemon's ports and other plugins hardly notice it, and it loses nothing on a
//! machine that has time for it. So does a task whose guest failed: its instance has to be made anew. It is the whole task around the call that moves, in the middle of it; it comes back when it has been
//! quick for a while, so that what spins in every call does not begin each of them in the fast lane.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;

/// Processor time after which a call goes on in the slow lane. Ten thousand agents are evaluated within it.
pub(crate) const SOON: Duration = Duration::from_millis(2);
/// Times that a task has to have been quick in the slow lane to come back.
const QUICK: u32 = 16;
/// Added to the daemon's own niceness: about a tenth of its weight where both want the processor.
const NICENESS: i32 = 10;

thread_local! {
    /// Whether the guest that is being polled has used more than [`SOON`] in its call.
    static LINGERS: Cell<bool> = const { Cell::new(false) };
}

/// Said from within a poll, by what watches a guest's use of the processor.
pub(crate) fn linger() {
    LINGERS.set(true);
}

/// Why there is no outcome of what was done [`aside`]. Display is for an operator.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Unfinished {
    #[error("looking at it failed within the plugin host, which is a mistake there")]
    Broke,
    #[error("the daemon is stopping")]
    Stopped,
}

/// Does what takes the processor or the disk for long outside the runtime's own threads.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let done = tokio::task::spawn_blocking(work).await;
    // The runtime drops work when it goes down.
    done.map_err(|error| {
        if error.is_panic() {
            Unfinished::Broke
        } else {
            Unfinished::Stopped
        }
    })
}

/// The threads there are. Cheap to clone; the slow lane ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    fast: Handle,
    slow: Arc<Slow>,
}

#[derive(Debug)]
struct Slow(Option<Runtime>);

impl Drop for Slow {
    fn drop(&mut self) {
        // Without waiting: this may be within a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where a task goes on when it leaves a lane.
#[derive(Clone, Debug)]
struct Ways {
    fast: Handle,
    slow: Handle,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Done,
    /// It belongs into the other lane.
    Moves,
}

impl Lanes {
    /// The runtime that this is called in is the fast lane.
    pub(crate) fn new() -> io::Result<Lanes> {
        let slow = Builder::new_multi_thread()
            .thread_name("plugin-slow")
            .worker_threads(std::thread::available_parallelism().map_or(2, usize::from))
            .on_thread_start(yield_to_others)
            .enable_all()
            .build()?;
        Ok(Lanes {
            fast: Handle::current(),
            slow: Arc::new(Slow(Some(slow))),
        })
    }

    /// Runs a task that enters guests; `tracker` waits for it, whichever lane it is in.
    pub(crate) fn spawn(&self, tracker: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        let awaited = tracker.token();
        let work = Box::pin(async move {
            work.await;
            drop(awaited);
        });
        if let Some(slow) = &self.slow.0 {
            Ways {
                fast: self.fast.clone(),
                slow: slow.handle().clone(),
            }
            .in_the_fast_lane(work);
        }
    }
}

impl Ways {
    fn in_the_fast_lane(self, mut work: Work) {
        let fast = self.fast.clone();
        fast.spawn(async move {
            let lingers = poll_fn(|context| match poll(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(Left::Done),
                (Poll::Pending, true) => Poll::Ready(Left::Moves),
                (Poll::Pending, false) => Poll::Pending,
            });
            if lingers.await == Left::Moves {
                self.in_the_slow_lane(work);
            }
        });
    }

    fn in_the_slow_lane(self, mut work: Work) {
        let slow = self.slow.clone();
        slow.spawn(async move {
            let mut quick = 0;
            let recovers = poll_fn(|context| match poll(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(Left::Done),
                (Poll::Pending, true) => {
                    quick = 0;
                    Poll::Pending
                }
                (Poll::Pending, false) => {
                    quick += 1;
                    if quick < QUICK {
                        Poll::Pending
                    } else {
                        Poll::Ready(Left::Moves)
                    }
                }
            });
            if recovers.await == Left::Moves {
                self.in_the_fast_lane(work);
            }
        });
    }
}

/// Polls once, and says whether a guest lingered meanwhile.
fn poll(work: &mut Work, context: &mut std::task::Context<'_>) -> (Poll<()>, bool) {
    LINGERS.set(false);
    let poll = work.as_mut().poll(context);
    (poll, LINGERS.get())
}

/// Has the operating system prefer other threads to this one. Where it does not take that, lanes are threads like any other.
pub(crate) fn yield_to_others() {
    let thread = rustix::thread::gettid();
    let lowered = rustix::process::getpriority_process(Some(thread))
        .and_then(|now| rustix::process::setpriority_process(Some(thread), now + NICENESS));
    if let Err(error) = lowered {
        tracing::debug!(%error, "a thread's priority stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    /// The lane of whoever asks.
    fn lane() -> String {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let priority = rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        format!("{name} {priority}")
    }

    #[test]
    fn what_lingers_moves_and_comes_back() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fast")
            .enable_all()
            .build()
            .unwrap();
        let own = rustix::process::getpriority_process(None).unwrap();
        let (fast, slow) = (format!("fast {own}"), format!("plugin-slow {}", own + NICENESS));
        let (seen, lanes_seen) = mpsc::channel();
        let tracker = TaskTracker::new();
        let lanes = runtime.block_on(async { Lanes::new().unwrap() });
        lanes.spawn(&tracker, async move {
            seen.send(lane()).unwrap();
            // Quick as long as nobody says otherwise.
            tokio::task::yield_now().await;
            seen.send(lane()).unwrap();
            linger();
            tokio::task::yield_now().await;
            seen.send(lane()).unwrap();
            for _ in 1..QUICK {
                tokio::task::yield_now().await;
            }
            seen.send(lane()).unwrap();
            tokio::task::yield_now().await;
            seen.send(lane()).unwrap();
        });
        tracker.close();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), tracker.wait())
                .await
                .expect("it ends, wherever it is");
        });
        let seen: Vec<String> = lanes_seen.iter().collect();
        assert_eq!(seen, [fast.clone(), fast.clone(), slow.clone(), slow, fast]);
    }

    #[test]
    fn lanes_can_end_within_a_task() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let lanes = Lanes::new().unwrap();
            let tracker = TaskTracker::new();
            lanes.spawn(&tracker, std::future::pending());
            let held = lanes.clone();
            lanes.spawn(&tracker, async move {
                linger();
                tokio::task::yield_now().await;
                drop(held);
            });
            drop(lanes);
        });
    }
}
