//! Where guests run: what ends soon runs where it was asked, what goes on and on runs on threads of low priority.
//!
//! Guests give way every millisecond, but a millisecond is long for those who wait behind one, and a guest that never ends takes
//! it again and again. So a call that has used more than [`CPU_BUDGET_BEFORE_DEMOTION`] of the processor goes on in the slow lane: threads of their own, which the
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
pub(crate) const CPU_BUDGET_BEFORE_DEMOTION: Duration = Duration::from_millis(2);
/// Times that a task has to have been quick in the slow lane to come back.
const QUICK_POLLS_BEFORE_RETURN: u32 = 16;
/// Added to the daemon's own niceness: about a tenth of its weight where both want the processor.
const NICENESS: i32 = 10;

thread_local! {
    /// Whether the guest that is being polled has used more than [`CPU_BUDGET_BEFORE_DEMOTION`] in its call.
    static DEMOTE: Cell<bool> = const { Cell::new(false) };
}

/// Said from within a poll, by what watches a guest's use of the processor.
pub(crate) fn demote_current_task() {
    DEMOTE.set(true);
}

/// Why there is no outcome of what was done [`run_blocking`]. Display is for an operator.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum BlockingTaskError {
    #[error("looking at it failed within the plugin host, which is a mistake there")]
    Panicked,
    #[error("the daemon is stopping")]
    Stopped,
}

/// Does what takes the processor or the disk for long outside the runtime's own threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingTaskError> {
    let done = tokio::task::spawn_blocking(work).await;
    // The runtime drops work when it goes down.
    done.map_err(|error| {
        if error.is_panic() {
            BlockingTaskError::Panicked
        } else {
            BlockingTaskError::Stopped
        }
    })
}

/// The threads there are. Cheap to clone; the slow lane ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct GuestExecutor {
    normal: Handle,
    low_priority: Arc<LowPriorityRuntime>,
}

#[derive(Debug)]
struct LowPriorityRuntime(Option<Runtime>);

impl Drop for LowPriorityRuntime {
    fn drop(&mut self) {
        // Without waiting: this may be within a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Where a task goes on when it leaves a lane.
#[derive(Clone, Debug)]
struct RuntimeHandles {
    normal: Handle,
    low_priority: Handle,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// It belongs into the other lane.
    ChangePriority,
}

impl GuestExecutor {
    /// The runtime that this is called in is the fast lane.
    pub(crate) fn new() -> io::Result<GuestExecutor> {
        let low_priority = Builder::new_multi_thread()
            .thread_name("plugin-low")
            .worker_threads(std::thread::available_parallelism().map_or(2, usize::from))
            .on_thread_start(lower_thread_priority)
            .enable_all()
            .build()?;
        Ok(GuestExecutor {
            normal: Handle::current(),
            low_priority: Arc::new(LowPriorityRuntime(Some(low_priority))),
        })
    }

    /// Runs a task that enters guests; `tracker` waits for it, whichever lane it is in.
    pub(crate) fn spawn(&self, tracker: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        let awaited = tracker.token();
        let work = Box::pin(async move {
            work.await;
            drop(awaited);
        });
        if let Some(low_priority) = &self.low_priority.0 {
            RuntimeHandles {
                normal: self.normal.clone(),
                low_priority: low_priority.handle().clone(),
            }
            .run_at_normal_priority(work);
        }
    }
}

impl RuntimeHandles {
    fn run_at_normal_priority(self, mut work: Work) {
        let normal = self.normal.clone();
        normal.spawn(async move {
            let demoted = poll_fn(|context| match poll(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(Step::Done),
                (Poll::Pending, true) => Poll::Ready(Step::ChangePriority),
                (Poll::Pending, false) => Poll::Pending,
            });
            if demoted.await == Step::ChangePriority {
                self.run_at_low_priority(work);
            }
        });
    }

    fn run_at_low_priority(self, mut work: Work) {
        let low_priority = self.low_priority.clone();
        low_priority.spawn(async move {
            let mut quick = 0;
            let restored = poll_fn(|context| match poll(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(Step::Done),
                (Poll::Pending, true) => {
                    quick = 0;
                    Poll::Pending
                }
                (Poll::Pending, false) => {
                    quick += 1;
                    if quick < QUICK_POLLS_BEFORE_RETURN {
                        Poll::Pending
                    } else {
                        Poll::Ready(Step::ChangePriority)
                    }
                }
            });
            if restored.await == Step::ChangePriority {
                self.run_at_normal_priority(work);
            }
        });
    }
}

/// Polls once, and says whether a guest lingered meanwhile.
fn poll(work: &mut Work, context: &mut std::task::Context<'_>) -> (Poll<()>, bool) {
    DEMOTE.set(false);
    let poll = work.as_mut().poll(context);
    (poll, DEMOTE.get())
}

/// Has the operating system prefer other threads to this one. Where it does not take that, lanes are threads like any other.
pub(crate) fn lower_thread_priority() {
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
            .thread_name("normal")
            .enable_all()
            .build()
            .unwrap();
        let own = rustix::process::getpriority_process(None).unwrap();
        let (normal, low_priority) = (format!("normal {own}"), format!("plugin-low {}", own + NICENESS));
        let (seen, reports) = mpsc::channel();
        let tracker = TaskTracker::new();
        let executor = runtime.block_on(async { GuestExecutor::new().unwrap() });
        executor.spawn(&tracker, async move {
            seen.send(lane()).unwrap();
            // Quick as long as nobody says otherwise.
            tokio::task::yield_now().await;
            seen.send(lane()).unwrap();
            demote_current_task();
            tokio::task::yield_now().await;
            seen.send(lane()).unwrap();
            for _ in 1..QUICK_POLLS_BEFORE_RETURN {
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
        let seen: Vec<String> = reports.iter().collect();
        assert_eq!(
            seen,
            [
                normal.clone(),
                normal.clone(),
                low_priority.clone(),
                low_priority,
                normal
            ]
        );
    }

    #[test]
    fn lanes_can_end_within_a_task() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let executor = GuestExecutor::new().unwrap();
            let tracker = TaskTracker::new();
            executor.spawn(&tracker, std::future::pending());
            let held = executor.clone();
            executor.spawn(&tracker, async move {
                demote_current_task();
                tokio::task::yield_now().await;
                drop(held);
            });
            drop(executor);
        });
    }
}
