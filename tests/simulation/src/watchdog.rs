//! Ends a simulation in which a daemon never comes to rest: virtual time stands still then, so that no
//! check is reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Watches the steps of a simulation, in real time, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    steps: Arc<AtomicU64>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Calls `report` with the number of the last step if none follows within `limit`.
    pub(crate) fn start(limit: Duration, report: impl Fn(u64) + Send + 'static) -> Self {
        let steps = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = mpsc::channel();
        let seen = Arc::clone(&steps);
        let thread = thread::spawn(move || {
            let mut last = 0;
            while stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                let now = seen.load(Ordering::Relaxed);
                if now == last {
                    return report(now);
                }
                last = now;
            }
        });
        Self {
            steps,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// A step begins.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.stop = None;
        // It reports nothing any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulation_that_stands_still_is_reported() {
        let (reports, reported) = mpsc::channel();
        let watchdog = Watchdog::start(Duration::from_millis(10), move |step| {
            let _ = reports.send(step);
        });
        watchdog.step();
        watchdog.step();
        assert_eq!(reported.recv(), Ok(2));
        drop(watchdog);
        assert!(reported.recv().is_err(), "once");
    }
}
