//! The WebAssembly engine: the only module that names wasmtime, with everything below it.
//!
//! One engine serves all plugins; components are compiled in others that are thrown away. It links them against the `log` import and
//! a WASI with nothing behind it, and takes instances from a pool of fixed size, so that no plugin can make the daemon reserve more than was set aside at start.
//! Guests are interrupted every millisecond: each time they give way to other tasks, and their use of the processor is looked at.

mod artefact;
mod bindings;
mod convert;
mod gate;
mod guest;
mod live;
mod stdio;
mod types;
pub(crate) mod worlds;

use std::{sync::Arc, thread, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config as EngineConfig, Engine as Wasmtime, InstanceAllocationStrategy, PoolingAllocationConfig,
    component::{Component, Linker},
};

use crate::{
    error::{CallError, Error},
    limits::{MAX_MEMORY, MAX_TABLE},
};
use guest::Guest;

pub(crate) use artefact::{Artefact, ArtefactKey};
pub(crate) use live::{Live, Reply, World, link};
pub(crate) use types::{Mismatch, check_types};

/// Component instances that can live at once, over all plugins.
const POOL_INSTANCES: u32 = 256;
/// A component made from Python consists of 14 core instances; most have 1 to 4.
const CORE_INSTANCES_PER_COMPONENT: u32 = 16;
/// How often guests are interrupted.
const TICK: Duration = Duration::from_millis(1);

/// The engine and what every component is linked against. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    wasmtime: Wasmtime,
    linker: Arc<Linker<Guest>>,
    /// One permit for each place in the pool: a pool that is empty fails at once instead of waiting.
    places: Arc<Semaphore>,
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
#[error("{0}")]
pub(crate) struct CompileError(String);

impl Engine {
    pub(crate) fn new() -> Result<Engine, Error> {
        let wasmtime = Wasmtime::new(&engine_config()).map_err(|error| Error::Engine(error.into()))?;
        let mut linker = Linker::new(&wasmtime);
        guest::link(&mut linker).map_err(|error| Error::Engine(error.into()))?;
        tick(&wasmtime)?;
        Ok(Engine {
            wasmtime,
            linker: Arc::new(linker),
            places: Arc::new(Semaphore::new(POOL_INSTANCES as usize)),
        })
    }

    /// A place in the pool, waited for no longer than `wait`.
    async fn place(&self, name: &str, wait: Duration) -> Result<OwnedSemaphorePermit, CallError> {
        match tokio::time::timeout(wait, self.places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(CallError::Busy {
                name: name.to_owned(),
                message: format!("all {POOL_INSTANCES} places for instances are taken"),
            }),
        }
    }
}

fn engine_config() -> EngineConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(POOL_INSTANCES)
        .total_core_instances(POOL_INSTANCES * CORE_INSTANCES_PER_COMPONENT)
        .total_memories(POOL_INSTANCES)
        .total_tables(POOL_INSTANCES * 2)
        .total_stacks(POOL_INSTANCES)
        .max_memories_per_component(1)
        .max_tables_per_component(4)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT * 2)
        .max_memory_size(usize::try_from(MAX_MEMORY).unwrap_or(usize::MAX))
        .table_elements(usize::try_from(MAX_TABLE).unwrap_or(usize::MAX));
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
