//! The WebAssembly engine; only this module and its children use wasmtime.
//!
//! One engine serves all plugins. Components are compiled in separate engines, which the daemon
//! starts in separate processes. The engine links components against the `log` import and a WASI
//! without files and sockets, and allocates instances from a pool of fixed size, so that no plugin
//! can make the daemon reserve more memory than it reserved at its start. A clock interrupts guests
//! every millisecond: they yield to other tasks, and their use of processor time is checked. So it
//! is at each of their calls into the host.

mod bindings;
mod call_meter;
mod clock;
mod compile_process;
mod compiled;
mod compiler;
mod convert;
mod direct_call;
mod guest;
mod guest_text;
mod instance;
mod matcher_lists;
mod precompile;
mod resource_check;
mod stdio;
mod types;
pub(crate) mod worlds;

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config as EngineConfig, Enabled, Engine as Wasmtime, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    error::{CallError, Error},
    manifest::limits::{MAX_MEMORY, MAX_TABLE},
};
use clock::Clock;
use guest::Guest;

pub use compile_process::compile_standard_input;
pub(crate) use compiled::{ArtifactKey, CompiledArtifact};
pub(crate) use compiler::{CompileLimits, Compilers};
pub(crate) use instance::{Instance, Reply, World, link, span};
pub(crate) use resource_check::ExceedsPool;
pub(crate) use types::{WorldMismatch, check_types};

/// Bytes of memory and of a table that a slot keeps (zeroed) for the next instance: new pages are
/// most of the cost of an instance. Only written pages are zeroed if the system supports that.
const RESIDENT_MEMORY: usize = 1 << 20;
const RESIDENT_TABLE: usize = 64 << 10;
/// Maximum number of unused slots that keep the pages of their last component for its next instance.
/// After each swap the new component uses a slot without such pages, so that up to this many slots
/// stay resident. With the default of 100, memory use would grow over the first hundred swaps.
const MAX_WARM_SLOTS: u32 = 16;
/// Number of slots whose memory is decommitted together.
const DECOMMIT_BATCH: usize = 16;
/// Interval of requests to drop idle instances while a call waits for a slot.
const SLOT_REQUEST_INTERVAL: Duration = Duration::from_millis(20);

/// The engine and its linker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    wasmtime: Wasmtime,
    clock: Clock,
    linker: Arc<Linker<Guest>>,
    /// One permit for each slot in the pool, because an exhausted pool fails instead of waiting.
    slot_permits: Arc<Semaphore>,
    /// The number of slots.
    size: u32,
    /// Notified by each call that finds no free slot.
    slot_requests: Arc<Notify>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("free_places", &self.slot_permits.available_permits())
            .finish_non_exhaustive()
    }
}

/// A compiled component.
#[derive(Clone)]
pub(crate) struct Compiled(Component);

/// Why a component cannot run in this engine. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("it does not compile: {0}")]
    Invalid(String),
    #[error(
        "compiling it takes more than {0:?} of processor time (plugins.compile_timeout_seconds): expected fewer or \
         smaller functions (`wasm-tools strip` does not help), or a higher limit"
    )]
    TimedOut(Duration),
    #[error(
        "it was not compiled within {wall_clock:?}, retrying: the machine is busy, and its compilation got less than \
         {cpu:?} of processor time (plugins.compile_timeout_seconds)"
    )]
    Starved { wall_clock: Duration, cpu: Duration },
    #[error(
        "it was not compiled, retrying: {0} other compilations are running, and none ended within {1:?} \
         (plugins.compile_timeout_seconds)"
    )]
    NoFreeSlot(usize, Duration),
    #[error(
        "compiling it takes more than {} MiB (plugins.compile_memory_bytes): expected fewer or smaller functions, \
         or a higher limit", .0 >> 20
    )]
    Memory(u64),
    #[error("the compiler panicked; please report it")]
    Panicked,
    #[error("it was not compiled, retrying: cannot start its compilation: {0}")]
    NotStarted(String),
    #[error("its compilation ended unexpectedly: {0}")]
    Ended(String),
    #[error("{0}")]
    ExceedsPool(#[from] ExceedsPool),
}

impl CompileError {
    /// Whether the same component may compile at another time.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(
            self,
            CompileError::NoFreeSlot(..) | CompileError::NotStarted(_) | CompileError::Starved { .. }
        )
    }
}

impl Engine {
    /// `size`: maximum number of instances.
    pub(crate) fn new(size: u32) -> Result<Engine, Error> {
        let wasmtime = Wasmtime::new(&engine_config(size)).map_err(|error| Error::Engine(error.into()))?;
        let mut linker = Linker::new(&wasmtime);
        guest::link(&mut linker).map_err(|error| Error::Engine(error.into()))?;
        let clock = Clock::start(&wasmtime)?;
        Ok(Engine {
            wasmtime,
            clock,
            linker: Arc::new(linker),
            slot_permits: Arc::new(Semaphore::new(size as usize)),
            size,
            slot_requests: Arc::default(),
        })
    }

    /// Returns when a call waits for a slot; wakes one task with an idle instance.
    pub(crate) async fn slot_requested(&self) {
        self.slot_requests.notified().await;
    }

    /// A slot in the pool; waits at most `wait`.
    async fn acquire_slot(&self, name: &str, wait: Duration) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(permit) = Arc::clone(&self.slot_permits).try_acquire_owned() {
            return Ok(permit);
        }
        let mut permit = pin!(Arc::clone(&self.slot_permits).acquire_owned());
        let waiting = async {
            loop {
                // The request is repeated, because `Notify` stores at most one notification, and the
                // task that receives it may have become busy.
                self.slot_requests.notify_one();
                if let Ok(permit) = tokio::time::timeout(SLOT_REQUEST_INTERVAL, &mut permit).await {
                    return permit;
                }
            }
        };
        match tokio::time::timeout(wait, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(CallError::Busy {
                name: name.to_owned(),
                message: format!("all {} instance slots are in use", self.size),
            }),
        }
    }
}

/// A pool in which every slot fits the largest admitted component, so that a permit guarantees an
/// instance.
fn engine_config(size: u32) -> EngineConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(size)
        .total_core_instances(size.saturating_mul(resource_check::MAX_CORE_INSTANCES))
        .total_memories(size.saturating_mul(resource_check::MAX_MEMORIES))
        .total_tables(size.saturating_mul(resource_check::MAX_TABLES))
        .total_stacks(size)
        .max_memories_per_component(resource_check::MAX_MEMORIES)
        .max_tables_per_component(resource_check::MAX_TABLES)
        .max_memories_per_module(resource_check::MAX_MEMORIES)
        .max_tables_per_module(resource_check::MAX_TABLES)
        .max_core_instances_per_component(resource_check::MAX_CORE_INSTANCES)
        .max_core_instance_size(resource_check::MAX_CORE_INSTANCE_SIZE)
        .max_component_instance_size(resource_check::MAX_COMPONENT_INSTANCE_SIZE)
        .max_memory_size(usize::try_from(MAX_MEMORY).unwrap_or(usize::MAX))
        .table_elements(usize::try_from(MAX_TABLE).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(RESIDENT_MEMORY)
        .table_keep_resident(RESIDENT_TABLE)
        .max_unused_warm_slots(MAX_WARM_SLOTS)
        .pagemap_scan(Enabled::Auto)
        .decommit_batch_size(DECOMMIT_BATCH);
    let mut config = EngineConfig::new();
    common_config(&mut config).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Settings that compiling and running engines share.
fn common_config(config: &mut EngineConfig) -> &mut EngineConfig {
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .wasm_component_model(true)
}
