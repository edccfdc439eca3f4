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
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a call after which the clock stops. Starting it again costs the next call a system
/// call.
const IDLE_TICKS: u32 = 250;
/// A stopped clock looks this often whether its engine still exists.
const LOOK: Duration = Duration::from_secs(1);

/// Starts the clock. Cheap to clone; the thread ends with the engine.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    calls: Arc<Calls>,
    thread: Thread,
}

/// How many calls began and ended so far.
#[derive(Debug, Default)]
struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
    stopped: AtomicBool,
}

/// A call in progress.
#[derive(Debug)]
pub(super) struct Ticking<'a>(&'a Calls);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

impl Clock {
    pub(super) fn start(engine: &Wasmtime) -> Result<Clock, Error> {
        let calls = Arc::<Calls>::default();
        let (engine, shared) = (engine.weak(), Arc::clone(&calls));
        let thread = thread::Builder::new()
            .name("plugin-clock".into())
            .spawn(move || tick(&engine, &shared))
            .map_err(Error::Thread)?;
        Ok(Clock {
            calls,
            thread: thread.thread().clone(),
        })
    }

    /// Runs the clock for a call.
    pub(super) fn run(&self) -> Ticking<'_> {
        self.calls.begun.fetch_add(1, SeqCst);
        // It sets this before it looks at `begun` for the last time.
        if self.calls.stopped.load(SeqCst) {
            self.thread.unpark();
        }
        Ticking(&self.calls)
    }
}

impl Calls {
    /// The calls begun, if none is in progress.
    fn idle_since(&self) -> Option<u64> {
        // In this order, a call that begins in between counts as one in progress.
        let ended = self.ended.load(SeqCst);
        (self.begun.load(SeqCst) == ended).then_some(ended)
    }
}

fn tick(engine: &EngineWeak, calls: &Calls) {
    let mut idle_since = None;
    let mut idle = 0;
    loop {
        thread::sleep(TICK);
        let Some(engine) = engine.upgrade() else {
            return;
        };
        engine.increment_epoch();
        drop(engine);
        let now = calls.idle_since();
        idle = if now.is_some() && now == idle_since {
            idle + 1
        } else {
            0
        };
        idle_since = now;
        if idle >= IDLE_TICKS {
            calls.stopped.store(true, SeqCst);
            if calls.idle_since() == now {
                thread::park_timeout(LOOK);
            }
            calls.stopped.store(false, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Waits until the clock runs, or has stopped.
    fn wait_until(clock: &Clock, stopped: bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while clock.calls.stopped.load(SeqCst) != stopped {
            assert!(Instant::now() < end, "stopped: {}", !stopped);
            thread::yield_now();
        }
    }

    #[test]
    fn clock_stops_without_calls_and_ends_with_its_engine() {
        let engine = Wasmtime::default();
        let clock = Clock::start(&engine).unwrap();
        wait_until(&clock, true);
        let call = clock.run();
        wait_until(&clock, false);
        drop(call);
        wait_until(&clock, true);
        drop(engine);
        // The thread has the only other one.
        let end = Instant::now() + Duration::from_secs(30);
        while Arc::strong_count(&clock.calls) > 1 {
            assert!(Instant::now() < end, "the thread does not end");
            clock.thread.unpark();
            thread::yield_now();
        }
    }
}
