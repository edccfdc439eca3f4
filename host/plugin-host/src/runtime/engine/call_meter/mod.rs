//! Runs one call at a time in an instance and measures wall-clock time, processor time and memory.
//!
//! Processor time is the thread's own clock from the start to the end of each poll. It excludes
//! preemption, waits for the host, and other tasks between two polls; [`thread_cpu_clock`] gives
//! the exact rules.

mod thread_cpu_clock;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::poll_immediate;
use tokio::time::timeout;
use wasmtime::{Trap, WasmBacktrace};

use super::clock::Clock;
use thread_cpu_clock::CpuClock;
use transom_common::text::{clip, one_line};

use crate::{
    fault::{Fault, Frames},
    runtime::{
        executor::{self, CPU_BUDGET_BEFORE_DEMOTION},
        version_context::VersionContext,
    },
};

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) wall_clock: Duration,
    pub(crate) cpu: Duration,
}

/// What follows from the check of a call into the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostCallCheck {
    Continue,
    /// The poll has to end first, so that other tasks run.
    Yield,
    /// The guest has exceeded its processor time.
    Exhausted,
}

/// Duration of a poll after which the next call into the host ends it.
const MAX_POLL: Duration = Duration::from_millis(1);

/// Shared by an instance's store, which checks the budget during a call, and its task, which makes
/// the call.
#[derive(Debug)]
pub(super) struct CallMeter {
    clock: Clock,
    context: Arc<VersionContext>,
    /// The number of finished calls, and in `total` their processor time in nanoseconds.
    calls: AtomicU64,
    total: AtomicU64,
    /// Nanoseconds used by the current call up to the end of its last poll.
    used: AtomicU64,
    /// The start of the current poll.
    since: CpuClock,
    budget: AtomicU64,
    cpu_exhausted: AtomicBool,
    /// The limit that the guest exceeded. 0: none.
    memory_rejected: AtomicU64,
    table_rejected: AtomicU64,
}

impl CallMeter {
    pub(super) fn new(clock: &Clock, context: &Arc<VersionContext>) -> CallMeter {
        CallMeter {
            clock: clock.clone(),
            context: Arc::clone(context),
            calls: AtomicU64::new(0),
            total: AtomicU64::new(0),
            used: AtomicU64::new(0),
            since: CpuClock::default(),
            budget: AtomicU64::new(0),
            cpu_exhausted: AtomicBool::new(false),
            memory_rejected: AtomicU64::new(0),
            table_rejected: AtomicU64::new(0),
        }
    }

    /// Runs one call. Dropping the future leaves an instance that cannot be called again.
    pub(super) async fn run<T>(
        &self,
        allowance: Allowance,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> Result<T, Fault> {
        self.begin(allowance.cpu);
        let _call = self.clock.begin_call();
        let _charge = CpuCharge(self);
        let mut call = pin!(call);
        let metered = poll_fn(|context| {
            self.since.start();
            let poll = call.as_mut().poll(context);
            self.used.store(self.used_nanos(), Relaxed);
            poll
        });
        let mut metered = pin!(metered);
        // Most calls end in their first poll and need no timer.
        let outcome = match poll_immediate(&mut metered).await {
            Some(ended) => Ok(ended),
            None => timeout(allowance.wall_clock, metered).await,
        };
        if !matches!(outcome, Ok(Ok(_))) {
            // A failed call needs a new instance; demote the task so repeated failures do not
            // starve others.
            executor::demote_current_task();
        }
        match outcome {
            // The result was read from the guest's memory after the last check.
            Ok(Ok(value)) if self.used.load(Relaxed) <= self.budget.load(Relaxed) => Ok(value),
            Ok(Ok(_)) => Err(Fault::CpuExhausted(allowance.cpu, Frames::default())),
            Ok(Err(error)) => Err(self.fault(&error, allowance)),
            Err(_elapsed) => Err(Fault::TimedOut(allowance.wall_clock)),
        }
    }

    /// The number of finished calls, and their processor time.
    pub(super) fn usage(&self) -> (u64, Duration) {
        let nanos = self.total.load(Relaxed);
        (self.calls.load(Relaxed), Duration::from_nanos(nanos))
    }

    fn begin(&self, cpu: Duration) {
        self.used.store(0, Relaxed);
        self.budget
            .store(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.cpu_exhausted.store(false, Relaxed);
        self.memory_rejected.store(0, Relaxed);
        self.table_rejected.store(0, Relaxed);
    }

    /// Called at every tick during a poll. False: the guest has exceeded its processor time.
    pub(super) fn within_budget(&self) -> bool {
        let used = self.used_nanos();
        if Duration::from_nanos(used) > CPU_BUDGET_BEFORE_DEMOTION {
            executor::demote_current_task();
        }
        let is_within_budget = used <= self.budget.load(Relaxed);
        if !is_within_budget {
            self.cpu_exhausted.store(true, Relaxed);
        }
        is_within_budget
    }

    /// Called at every call of the guest into the host. A poll that has run for [`MAX_POLL`] ends
    /// here, because host calls in sequence do not reach a check of the engine.
    pub(super) fn check_host_call(&self) -> HostCallCheck {
        if self.since.elapsed() < MAX_POLL {
            HostCallCheck::Continue
        } else if self.within_budget() {
            HostCallCheck::Yield
        } else {
            HostCallCheck::Exhausted
        }
    }

    pub(super) fn reject_memory(&self, limit: u64) {
        self.memory_rejected.store(limit, Relaxed);
    }

    pub(super) fn reject_table(&self, limit: u64) {
        self.table_rejected.store(limit, Relaxed);
    }

    fn used_nanos(&self) -> u64 {
        self.used.load(Relaxed) + self.since.used()
    }

    fn fault(&self, error: &wasmtime::Error, allowance: Allowance) -> Fault {
        let (memory, table) = (
            self.memory_rejected.load(Relaxed),
            self.table_rejected.load(Relaxed),
        );
        if self.cpu_exhausted.load(Relaxed) && matches!(error.downcast_ref(), Some(Trap::Interrupt)) {
            Fault::CpuExhausted(allowance.cpu, frames(error))
        } else if memory > 0 {
            Fault::OutOfMemory(memory, "bytes of memory (limits.memory)", frames(error))
        } else if table > 0 {
            Fault::OutOfMemory(table, "elements of a table (limits.table)", frames(error))
        } else {
            Fault::Trapped(self.cause(error), frames(error))
        }
    }

    /// Returns the engine's error text, or a text that names the exceeded setting.
    fn cause(&self, error: &wasmtime::Error) -> String {
        let cause = one_line(&error.root_cause().to_string());
        if cause.ends_with(OUTPUT_SPENT) {
            let max_bytes = self.context.limits.output;
            return format!("it returned more than {max_bytes} bytes in one call (limits.output)");
        }
        cause
    }
}

/// The end of the engine's error text for exceeded output. The engine has no error type for it.
const OUTPUT_SPENT: &str = "fuel allocated for hostcalls has been exhausted";

/// Adds the processor time of a call to the totals when the call ends or is cancelled.
struct CpuCharge<'a>(&'a CallMeter);

impl Drop for CpuCharge<'_> {
    fn drop(&mut self) {
        let used = self.0.used.load(Relaxed);
        self.0.calls.fetch_add(1, Relaxed);
        self.0.total.fetch_add(used, Relaxed);
        self.0.context.metrics.add_cpu(Duration::from_nanos(used));
    }
}

/// Maximum frames of a backtrace: an endless recursion fills the stack.
const FRAMES: usize = 32;

/// Maximum bytes of the name of a function or module, which the component chooses.
const MAX_NAME_BYTES: usize = 200;

fn shown_name(name: &str) -> String {
    one_line(&clip(name, MAX_NAME_BYTES))
}

/// The guest's stack. Functions have names unless the author stripped them.
fn frames(error: &wasmtime::Error) -> Frames {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else {
        return Frames::default();
    };
    let lines = trace.frames().iter().take(FRAMES).map(|frame| {
        let function = frame
            .func_name()
            .map_or_else(|| format!("function {}", frame.func_index()), shown_name);
        let module = frame.module().name().map(shown_name).unwrap_or_default();
        let at = frame.module_offset().unwrap_or_default();
        format!("{function} ({module}+{at:#x})")
    });
    lines.collect()
}
