//! Guest scheduling: short calls run on the caller's runtime; calls over 2 ms of processor time
//! move to a low-priority runtime.
//!
//! Guests yield every millisecond, but a millisecond delays other tasks, and an endless guest takes
//! it again and again. A task whose call exceeds [`CPU_BUDGET_BEFORE_DEMOTION`] therefore continues
//! on threads of low priority, which get the processor time that no other thread needs. So does a
//! task whose call failed, because it has to create a new instance. The whole task moves, in the
//! middle of the call; it returns after [`QUICK_POLLS_BEFORE_RETURN`] short polls, so that a guest
//! that spins in every call does not start each of them at normal priority.

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

use super::thread_priority::lower_thread_priority;

/// Processor time after which a call continues at low priority; enough to evaluate ten thousand
/// agents.
pub(crate) const CPU_BUDGET_BEFORE_DEMOTION: Duration = Duration::from_millis(2);
/// Short polls at low priority after which a task returns to normal priority.
const QUICK_POLLS_BEFORE_RETURN: u32 = 16;

thread_local! {
    /// Whether the task that is being polled should continue at low priority.
    static SHOULD_DEMOTE: Cell<bool> = const { Cell::new(false) };
}

/// Requests, from within a poll, that the current task continues at low priority.
pub(crate) fn demote_current_task() {
    SHOULD_DEMOTE.set(true);
}

/// Why [`run_blocking`] has no result. Display is for an operator.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum BlockingTaskError {
    #[error("internal error in the plugin host (task panicked); please report it")]
    Panicked,
    #[error("the daemon is stopping")]
    Stopped,
}

/// Runs blocking work outside the runtime's threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingTaskError> {
    let done = tokio::task::spawn_blocking(work).await;
    // The runtime drops queued work when it shuts down.
    done.map_err(|error| {
        if error.is_panic() {
            BlockingTaskError::Panicked
        } else {
            BlockingTaskError::Stopped
        }
    })
}

/// Whether admissions take precedence over other work of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The daemon already serves calls: admissions and their compilations run at low priority.
    Background,
    /// An operator waits for the admission, or the daemon does not serve calls yet.
    Interactive,
}

/// Runs guest tasks at two priorities. Cheap to clone; the low-priority runtime ends with the last
/// clone.
#[derive(Clone, Debug)]
pub(crate) struct GuestExecutor {
    normal: Handle,
    low_priority: Arc<LowPriorityRuntime>,
}

#[derive(Debug)]
struct LowPriorityRuntime(Option<Runtime>);

impl Drop for LowPriorityRuntime {
    fn drop(&mut self) {
        // This may run within a task, which must not block: `shutdown_background` does not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Handles of both runtimes, for a task that changes its priority.
#[derive(Clone, Debug)]
struct RuntimeHandles {
    normal: Handle,
    low_priority: Handle,
}

type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollOutcome {
    Done,
    /// The task continues at the other priority.
    ChangePriority,
}

impl GuestExecutor {
    /// The current runtime runs tasks at normal priority.
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

    /// Runs a task that calls guests; `tracker` waits for it at either priority.
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

    /// Runs a task, including its blocking work, at low priority until it ends.
    pub(crate) fn spawn_low(&self, tracker: &TaskTracker, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(low_priority) = &self.low_priority.0 {
            tracker.spawn_on(work, low_priority.handle());
        }
    }
}

impl RuntimeHandles {
    fn run_at_normal_priority(self, mut work: BoxedTask) {
        let normal = self.normal.clone();
        normal.spawn(async move {
            let demoted = poll_fn(|context| match poll_once(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(PollOutcome::Done),
                (Poll::Pending, true) => Poll::Ready(PollOutcome::ChangePriority),
                (Poll::Pending, false) => Poll::Pending,
            });
            if demoted.await == PollOutcome::ChangePriority {
                self.run_at_low_priority(work);
            }
        });
    }

    fn run_at_low_priority(self, mut work: BoxedTask) {
        let low_priority = self.low_priority.clone();
        low_priority.spawn(async move {
            let mut quick_polls = 0;
            let restored = poll_fn(|context| match poll_once(&mut work, context) {
                (Poll::Ready(()), _) => Poll::Ready(PollOutcome::Done),
                (Poll::Pending, true) => {
                    quick_polls = 0;
                    Poll::Pending
                }
                (Poll::Pending, false) => {
                    quick_polls += 1;
                    if quick_polls < QUICK_POLLS_BEFORE_RETURN {
                        Poll::Pending
                    } else {
                        Poll::Ready(PollOutcome::ChangePriority)
                    }
                }
            });
            if restored.await == PollOutcome::ChangePriority {
                self.run_at_normal_priority(work);
            }
        });
    }
}

/// Polls once, and returns whether the task should continue at low priority.
fn poll_once(work: &mut BoxedTask, context: &mut std::task::Context<'_>) -> (Poll<()>, bool) {
    SHOULD_DEMOTE.set(false);
    let poll = work.as_mut().poll(context);
    (poll, SHOULD_DEMOTE.get())
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::{super::thread_priority::NICENESS, *};

    /// Name and priority of the current thread.
    fn thread_name_and_priority() -> String {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let priority = rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        format!("{name} {priority}")
    }

    #[test]
    fn task_is_demoted_after_its_budget_and_returns_when_quick() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("normal")
            .enable_all()
            .build()
            .unwrap();
        let process_priority = rustix::process::getpriority_process(None).unwrap();
        let (normal, low_priority) = (
            format!("normal {process_priority}"),
            format!("plugin-low {}", process_priority + NICENESS),
        );
        let (sender, reports) = mpsc::channel();
        let tracker = TaskTracker::new();
        let executor = runtime.block_on(async { GuestExecutor::new().unwrap() });
        executor.spawn(&tracker, async move {
            sender.send(thread_name_and_priority()).unwrap();
            // A task stays at normal priority by default.
            tokio::task::yield_now().await;
            sender.send(thread_name_and_priority()).unwrap();
            demote_current_task();
            tokio::task::yield_now().await;
            sender.send(thread_name_and_priority()).unwrap();
            for _ in 1..QUICK_POLLS_BEFORE_RETURN {
                tokio::task::yield_now().await;
            }
            sender.send(thread_name_and_priority()).unwrap();
            tokio::task::yield_now().await;
            sender.send(thread_name_and_priority()).unwrap();
        });
        tracker.close();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), tracker.wait())
                .await
                .expect("the task ends at either priority");
        });
        let lanes: Vec<String> = reports.iter().collect();
        assert_eq!(
            lanes,
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
    fn blocking_work_of_low_priority_has_the_priority_of_its_runtime() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let process_priority = rustix::process::getpriority_process(None).unwrap();
        let (sender, reports) = mpsc::channel();
        runtime.block_on(async {
            let executor = GuestExecutor::new().unwrap();
            let tracker = TaskTracker::new();
            executor.spawn_low(&tracker, async move {
                run_blocking(move || sender.send(thread_name_and_priority()).unwrap())
                    .await
                    .unwrap();
            });
            tracker.close();
            tracker.wait().await;
        });
        let lanes: Vec<String> = reports.iter().collect();
        assert_eq!(lanes, [format!("plugin-low {}", process_priority + NICENESS)]);
    }

    #[test]
    fn executor_can_be_dropped_within_a_task() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let executor = GuestExecutor::new().unwrap();
            let tracker = TaskTracker::new();
            executor.spawn(&tracker, std::future::pending());
            let task_executor = executor.clone();
            executor.spawn(&tracker, async move {
                demote_current_task();
                tokio::task::yield_now().await;
                drop(task_executor);
            });
            drop(executor);
        });
    }
}
