//! The clock that interrupts guests: a thread that advances the engine's epoch every millisecond while
//! guests are called, and otherwise sleeps.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

use wasmtime::{Engine as Wasmtime, EngineWeak};

use crate::error::Error;

/// Interval of guest interruptions.
const TICK_INTERVAL: Duration = Duration::from_millis(1);
/// Ticks without a call after which the clock stops. Starting it again costs the next call a system
/// call.
const IDLE_TICKS: u32 = 250;
/// How often a stopped clock checks whether its engine still exists.
const ENGINE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The clock of an engine. Cheap to clone; its thread ends with the engine.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    calls: Arc<CallCounts>,
    thread: Thread,
}

/// How many calls began and ended so far, and whether the clock has stopped.
#[derive(Debug, Default)]
struct CallCounts {
    begun: AtomicU64,
    ended: AtomicU64,
    stopped: AtomicBool,
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct CallInProgress<'a>(&'a CallCounts);

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

impl Clock {
    pub(super) fn start(engine: &Wasmtime) -> Result<Clock, Error> {
        Clock::start_with(engine, ENGINE_CHECK_INTERVAL)
    }

    fn start_with(engine: &Wasmtime, engine_check: Duration) -> Result<Clock, Error> {
        let calls = Arc::<CallCounts>::default();
        let (engine, shared) = (engine.weak(), Arc::clone(&calls));
        let thread = thread::Builder::new()
            .name("plugin-clock".into())
            .spawn(move || run_ticks(&engine, &shared, engine_check))
            .map_err(Error::Thread)?;
        Ok(Clock {
            calls,
            thread: thread.thread().clone(),
        })
    }

    /// Keeps the clock running during a call.
    pub(super) fn begin_call(&self) -> CallInProgress<'_> {
        self.calls.begun.fetch_add(1, SeqCst);
        // The clock's thread sets `stopped` before it reads `begun` for the last time, so that it either
        // counts this call or is woken here.
        if self.calls.stopped.load(SeqCst) {
            self.thread.unpark();
        }
        CallInProgress(&self.calls)
    }
}

impl CallCounts {
    /// The number of calls so far. None while a call is in progress.
    fn count_if_idle(&self) -> Option<u64> {
        // `ended` is read first, so that a call that begins between the two reads counts as one in
        // progress.
        let ended = self.ended.load(SeqCst);
        (self.begun.load(SeqCst) == ended).then_some(ended)
    }
}

fn run_ticks(engine: &EngineWeak, calls: &CallCounts, engine_check: Duration) {
    let mut count = None;
    let mut idle_ticks = 0;
    loop {
        thread::sleep(TICK_INTERVAL);
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.increment_epoch();
        drop(engine);
        let now = calls.count_if_idle();
        let idle = now.is_some() && now == count;
        idle_ticks = if idle { idle_ticks + 1 } else { 0 };
        count = now;
        if idle_ticks >= IDLE_TICKS {
            calls.stopped.store(true, SeqCst);
            if calls.count_if_idle() == now {
                thread::park_timeout(engine_check);
            }
            calls.stopped.store(false, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn wait_until(what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < end, "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn clock_runs_during_calls_only() {
        let engine = Wasmtime::default();
        // The engine check is too rare to wake the clock within the test. Only a call does.
        let clock = Clock::start_with(&engine, Duration::from_hours(1)).unwrap();
        let stopped = || clock.calls.stopped.load(SeqCst);
        for _ in 0..3 {
            wait_until("the clock stops", stopped);
            let call = clock.begin_call();
            wait_until("the clock runs", || !stopped());
            drop(call);
        }
    }

    #[test]
    fn stopped_clock_ends_with_its_engine() {
        let engine = Wasmtime::default();
        let clock = Clock::start_with(&engine, Duration::from_millis(10)).unwrap();
        wait_until("the clock stops", || clock.calls.stopped.load(SeqCst));
        drop(engine);
        wait_until("the thread ends", || Arc::strong_count(&clock.calls) == 1);
    }
}
