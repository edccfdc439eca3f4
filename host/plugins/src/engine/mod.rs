//! The WebAssembly engine: the only module that names wasmtime, with everything below it.
//!
//! One engine serves all plugins; components are compiled in others that are thrown away. It links them against the `log` import and
//! a WASI with nothing behind it, and takes instances from a pool of fixed size, so that no plugin can make the daemon reserve more than was set aside at start.
//! Guests are interrupted every millisecond: each time they give way to other tasks, and their use of the processor is looked at.

mod bindings;
mod call_meter;
mod compiled;
mod compiler;
mod convert;
mod guest;
mod instance;
mod resource_check;
mod stdio;
mod types;
pub(crate) mod worlds;

use std::{pin::pin, sync::Arc, thread, time::Duration};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config as EngineConfig, Enabled, Engine as Wasmtime, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    error::{CallError, Error},
    limits::{MAX_MEMORY, MAX_TABLE},
};
use guest::Guest;

pub(crate) use compiled::{ArtifactKey, CompiledArtifact};
pub(crate) use compiler::{CompilePriority, Compilers};
pub(crate) use instance::{Instance, Reply, World, link, span};
pub(crate) use resource_check::ExceedsPool;
pub(crate) use types::{WorldMismatch, check_types};

/// How often guests are interrupted.
const TICK: Duration = Duration::from_millis(1);
/// Bytes of memory and of a table that a place keeps from one instance for the next, wiped: getting pages from the system anew is most of
/// what an instance costs. Only pages that were written are wiped, where the system can tell.
const KEPT_MEMORY: usize = 1 << 20;
const KEPT_TABLE: usize = 64 << 10;
/// Places that are cleared together.
const DECOMMIT_BATCH: usize = 16;
/// How often those who have an instance that is idle are asked to give it up, while somebody waits for a place.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The engine and what every component is linked against. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    wasmtime: Wasmtime,
    linker: Arc<Linker<Guest>>,
    /// One permit for each place in the pool: a pool that is empty fails at once instead of waiting.
    places: Arc<Semaphore>,
    /// All of them.
    size: u32,
    /// Told once by each who finds no place free.
    wanted: Arc<Notify>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("free_places", &self.places.available_permits())
            .finish_non_exhaustive()
    }
}

/// A component that compiled.
#[derive(Clone)]
pub(crate) struct Compiled(Component);

/// Why the bytes are no component that this engine can run. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("it does not compile: {0}")]
    Invalid(String),
    #[error(
        "it was not compiled within {0:?}, which is the limit (plugins.compile_timeout_seconds): expected fewer or smaller functions \
         (`wasm-tools strip` does not help with that), or a higher limit"
    )]
    TooLong(Duration),
    #[error(
        "it was not compiled: {0} others are being compiled, or were given up and have not ended yet, and none ended within {1:?} \
         (plugins.compile_timeout_seconds); it is tried again"
    )]
    NoPlace(usize, Duration),
    #[error("compiling it failed within the compiler, which is a mistake there")]
    Broke,
    #[error("it was not compiled, a thread could not be started: {0}; it is tried again")]
    Thread(String),
    #[error("{0}")]
    ExceedsPool(#[from] ExceedsPool),
}

impl CompileError {
    /// Whether the same component may compile at another time.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, CompileError::NoPlace(..) | CompileError::Thread(_))
    }
}

impl Engine {
    /// With room for so many instances.
    pub(crate) fn new(size: u32) -> Result<Engine, Error> {
        let wasmtime = Wasmtime::new(&engine_config(size)).map_err(|error| Error::Engine(error.into()))?;
        let mut linker = Linker::new(&wasmtime);
        guest::link(&mut linker).map_err(|error| Error::Engine(error.into()))?;
        tick(&wasmtime)?;
        Ok(Engine {
            wasmtime,
            linker: Arc::new(linker),
            places: Arc::new(Semaphore::new(size as usize)),
            size,
            wanted: Arc::default(),
        })
    }

    /// Returns when somebody waits for a place, to one of those who may have an instance that they could do without.
    pub(crate) async fn place_wanted(&self) {
        self.wanted.notified().await;
    }

    /// A place in the pool, waited for no longer than `wait`.
    async fn place(&self, name: &str, wait: Duration) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(permit);
        }
        let mut permit = pin!(Arc::clone(&self.places).acquire_owned());
        let waiting = async {
            loop {
                // Again and again: who was idle may have been asked meanwhile, and one notice is kept at most.
                self.wanted.notify_one();
                if let Ok(permit) = tokio::time::timeout(ASK_AGAIN, &mut permit).await {
                    return permit;
                }
            }
        };
        match tokio::time::timeout(wait, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(CallError::Busy {
                name: name.to_owned(),
                message: format!("all {} places for instances are taken", self.size),
            }),
        }
    }
}

/// A pool in which every place has room for the largest component that is let in, so that who has a place never finds it empty.
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
        .linear_memory_keep_resident(KEPT_MEMORY)
        .table_keep_resident(KEPT_TABLE)
        .pagemap_scan(Enabled::Auto)
        .decommit_batch_size(DECOMMIT_BATCH);
    let mut config = EngineConfig::new();
    common_config(&mut config).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// What an engine that compiles and one that runs what was compiled have to agree on.
fn common_config(config: &mut EngineConfig) -> &mut EngineConfig {
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .wasm_component_model(true)
}

/// Starts the clock that interrupts guests. The thread ends by itself when the engine goes.
fn tick(wasmtime: &Wasmtime) -> Result<(), Error> {
    let weak = wasmtime.weak();
    thread::Builder::new()
        .name("plugin-clock".into())
        .spawn(move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(TICK);
            }
        })
        .map_err(Error::Thread)?;
    Ok(())
}
