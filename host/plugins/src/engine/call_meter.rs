//! One call at a time into an instance, under a watch: wall clock, processor time, memory.
//!
//! Processor time is the thread's own clock, from when the runtime starts polling the call to when it stops. What the operating system
//! gave to others meanwhile, what was spent waiting for the host and what other tasks used between two polls is not charged: [`thread_cpu_clock`] says
//! how exactly.

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

use tokio::time::timeout;
use wasmtime::{Trap, WasmBacktrace};

use thread_cpu_clock::CpuClock;

use crate::{
    executor::{self, CPU_BUDGET_BEFORE_DEMOTION},
    fault::{Fault, Frames},
    text::one_line,
    version_context::VersionContext,
};

/// What one call may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) wall_clock: Duration,
    pub(crate) cpu: Duration,
}

/// Shared by an instance's store, which is asked inside the call, and by its owner, who makes the call.
#[derive(Debug)]
pub(super) struct CallMeter {
    context: Arc<VersionContext>,
    /// Of all calls that are over: how many, and the nanoseconds they used.
    calls: AtomicU64,
    total: AtomicU64,
    /// Nanoseconds used by the present call up to the last time that its polling stopped.
    used: AtomicU64,
    /// When the present poll began.
    since: CpuClock,
    budget: AtomicU64,
    cpu_exhausted: AtomicBool,
    /// The limits that the guest ran into, when it did. 0: it did not.
    memory_refused: AtomicU64,
    table_refused: AtomicU64,
}

impl CallMeter {
    pub(super) fn new(context: &Arc<VersionContext>) -> CallMeter {
        CallMeter {
            context: Arc::clone(context),
            calls: AtomicU64::new(0),
            total: AtomicU64::new(0),
            used: AtomicU64::new(0),
            since: CpuClock::default(),
            budget: AtomicU64::new(0),
            cpu_exhausted: AtomicBool::new(false),
            memory_refused: AtomicU64::new(0),
            table_refused: AtomicU64::new(0),
        }
    }

    /// Makes one call. Dropping the future half-way leaves an instance that cannot be entered.
    pub(super) async fn run<T>(
        &self,
        allowance: Allowance,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> Result<T, Fault> {
        self.begin(allowance.cpu);
        let _charge = CpuCharge(self);
        let mut call = pin!(call);
        let metered = poll_fn(|context| {
            self.since.start();
            let poll = call.as_mut().poll(context);
            self.used.store(self.used_nanos(), Relaxed);
            poll
        });
        let outcome = timeout(allowance.wall_clock, metered).await;
        if !matches!(outcome, Ok(Ok(_))) {
            // What fails again and again needs a new instance each time; that is nobody's haste.
            executor::demote_current_task();
        }
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.fault(&error, allowance)),
            Err(_elapsed) => Err(Fault::TimedOut(allowance.wall_clock)),
        }
    }

    /// How many calls are over, and what they used of a processor.
    pub(super) fn usage(&self) -> (u64, Duration) {
        let nanos = self.total.load(Relaxed);
        (self.calls.load(Relaxed), Duration::from_nanos(nanos))
    }

    fn begin(&self, cpu: Duration) {
        self.used.store(0, Relaxed);
        self.budget
            .store(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.cpu_exhausted.store(false, Relaxed);
        self.memory_refused.store(0, Relaxed);
        self.table_refused.store(0, Relaxed);
    }

    /// Asked at every tick, while the call is being polled. False: the guest has used up what it had.
    pub(super) fn within_budget(&self) -> bool {
        let used = self.used_nanos();
        if Duration::from_nanos(used) > CPU_BUDGET_BEFORE_DEMOTION {
            executor::demote_current_task();
        }
        let fine = used <= self.budget.load(Relaxed);
        if !fine {
            self.cpu_exhausted.store(true, Relaxed);
        }
        fine
    }

    pub(super) fn refuse_memory(&self, limit: u64) {
        self.memory_refused.store(limit, Relaxed);
    }

    pub(super) fn refuse_table(&self, limit: u64) {
        self.table_refused.store(limit, Relaxed);
    }

    fn used_nanos(&self) -> u64 {
        self.used.load(Relaxed) + self.since.used()
    }

    fn fault(&self, error: &wasmtime::Error, allowance: Allowance) -> Fault {
        let (memory, table) = (
            self.memory_refused.load(Relaxed),
            self.table_refused.load(Relaxed),
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

    /// In the engine's words, but where they mean nothing to an operator.
    fn cause(&self, error: &wasmtime::Error) -> String {
        let cause = one_line(&error.root_cause().to_string());
        if cause.ends_with(OUTPUT_SPENT) {
            let most = self.context.limits.output;
            return format!("it handed over more than {most} bytes in one call (limits.output)");
        }
        cause
    }
}

/// What the engine says of a call that handed over more than it may; it has no type for that.
const OUTPUT_SPENT: &str = "fuel allocated for hostcalls has been exhausted";

/// Adds up what a call used, also when it is dropped half-way.
struct CpuCharge<'a>(&'a CallMeter);

impl Drop for CpuCharge<'_> {
    fn drop(&mut self) {
        let used = self.0.used.load(Relaxed);
        self.0.calls.fetch_add(1, Relaxed);
        self.0.total.fetch_add(used, Relaxed);
        self.0.context.used(Duration::from_nanos(used));
    }
}

/// Frames of a backtrace that are kept: a recursion without end has as many as the stack has room for.
const FRAMES: usize = 32;

/// Where the guest was. Functions have names unless their author stripped them.
fn frames(error: &wasmtime::Error) -> Frames {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else {
        return Frames::default();
    };
    let lines = trace.frames().iter().take(FRAMES).map(|frame| {
        let function = frame
            .func_name()
            .map_or_else(|| format!("function {}", frame.func_index()), one_line);
        let module = frame.module().name().map(one_line).unwrap_or_default();
        let at = frame.module_offset().unwrap_or_default();
        format!("{function} ({module}+{at:#x})")
    });
    lines.collect()
}
