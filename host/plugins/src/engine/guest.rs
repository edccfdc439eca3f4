//! What a store holds for its guest: the plugin's log, a WASI with nothing behind it, and the limits on memory and tables.

use std::sync::Arc;

use wasmtime::{
    ResourceLimiter, Store, UpdateDeadline,
    component::{HasSelf, Linker, ResourceTable},
};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::{Engine, bindings, gate::Gate, stdio::LogStream};
use crate::{
    guest_log::{GuestLog, Level},
    limits::Limits,
};

/// Handles of WASI resources (streams, pollables) that a guest may hold.
const MAX_WASI_HANDLES: usize = 1024;

pub(crate) struct Guest {
    wasi: WasiCtx,
    handles: ResourceTable,
    limiter: Limiter,
    log: Arc<GuestLog>,
}

struct Limiter {
    memory: u64,
    table: u64,
    gate: Arc<Gate>,
}

/// A store under `limits` whose guest writes to `log`.
pub(super) fn store(engine: &Engine, limits: &Limits, log: &Arc<GuestLog>, gate: &Arc<Gate>) -> Store<Guest> {
    let mut handles = ResourceTable::new();
    handles.set_max_capacity(MAX_WASI_HANDLES);
    let wasi = WasiCtxBuilder::new()
        .stdout(LogStream::new(Arc::clone(log), Level::Info))
        .stderr(LogStream::new(Arc::clone(log), Level::Warn))
        .build();
    let limiter = Limiter {
        memory: limits.memory,
        table: limits.table,
        gate: Arc::clone(gate),
    };
    let guest = Guest {
        wasi,
        handles,
        limiter,
        log: Arc::clone(log),
    };
    let mut store = Store::new(&engine.wasmtime, guest);
    store.limiter(|guest| &mut guest.limiter);
    store.set_hostcall_fuel(usize::try_from(limits.output).unwrap_or(usize::MAX));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        Ok(if store.data().limiter.gate.may_go_on() {
            // The runtime's own yield goes to the back of its queue, so that timers and other guests get their turn.
            UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
        } else {
            UpdateDeadline::Interrupt
        })
    });
    store
}

/// Links what components may import: `log`, and WASI p2.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    bindings::log::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    wasmtime_wasi::p2::add_to_linker_async(linker)
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.handles,
        }
    }
}

impl bindings::log::Host for Guest {
    fn write(&mut self, level: bindings::log::Level, message: String) {
        use bindings::log::Level as L;
        let level = match level {
            L::Trace => Level::Trace,
            L::Debug => Level::Debug,
            L::Info => Level::Info,
            L::Warn => Level::Warn,
            L::Error => Level::Error,
        };
        self.log.write(level, &message);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        self.allow(wanted, self.memory, "bytes of memory")
    }

    fn table_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        self.allow(wanted, self.table, "table elements")
    }
}

impl Limiter {
    /// An error instead of `false`: a guest that cannot have what it asks for is stopped, it does not get to choose what next.
    fn allow(&self, wanted: usize, limit: u64, what: &str) -> wasmtime::Result<bool> {
        if wanted as u64 <= limit {
            return Ok(true);
        }
        self.gate.refuse_memory(limit);
        Err(wasmtime::Error::msg(format!(
            "{wanted} {what} wanted, {limit} allowed"
        )))
    }
}
