//! The process of a daemon: its tasks, and the clock that they see.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{advance, sleep};

/// A process. Dropping it kills it: its tasks end at the await where they are.
#[derive(Debug)]
pub(crate) struct Process(Runtime);

impl Process {
    /// Starts a process that runs `program`. Its clock stands still outside [`Process::run`].
    pub(crate) fn start(program: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        runtime.spawn(program);
        Ok(Self(runtime))
    }

    /// Starts a task beside the program.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Lets the tasks run for `time`, then calls `observe` at the time that the process sees.
    pub(crate) fn run<T>(&self, time: Duration, observe: impl FnOnce() -> T) -> T {
        self.0.block_on(async {
            // Virtual time: this takes as long as the tasks compute.
            sleep(time).await;
            observe()
        })
    }

    /// Sets the clock forward: the process did not run for `time`, and has not noticed it.
    pub(crate) fn skip(&self, time: Duration) {
        self.0.block_on(advance(time));
    }
}
