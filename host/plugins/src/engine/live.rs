//! A live instance, and what a world has to say so that instances of it can be owned, asked and replaced.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use wasmtime::{
    Store,
    component::{InstancePre, ResourceAny},
};

use super::{
    Compiled, Engine,
    gate::{Allowance, Gate},
    guest::{self, Guest},
};
use crate::{
    error::CallError,
    fault::Fault,
    plugin::Meta,
    text::one_line,
    types::about::{ConfigError, Description},
};

/// Starting up (start functions of other languages' runtimes, `describe`, `configure`) may use at least this much.
const STARTUP_CPU: Duration = Duration::from_secs(2);
const STARTUP_WALL_CLOCK: Duration = Duration::from_secs(20);

/// Where an answer goes. Dropping it unanswered means that the plugin host is stopping.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CallError>>;

/// One of the worlds of `wit/`: how its components are entered.
pub(crate) trait World: Sized + Send + Sync + 'static {
    /// Linked, with the places of all exports looked up.
    type Pre: Clone + Send + Sync + 'static;
    /// The exports of one instance.
    type Bindings: Send + Sync + 'static;
    /// The guest's resources that the host keeps handles of, lost with the instance.
    type Held: Default + Send + 'static;
    /// What callers tell the owner of an instance aside from the queue.
    type Shared: Default + Send + Sync + 'static;
    /// A question and where its answer goes.
    type Job: Send + 'static;

    fn prepare(linked: InstancePre<Guest>) -> wasmtime::Result<Self::Pre>;
    fn instantiate(
        pre: &Self::Pre,
        store: &mut Store<Guest>,
    ) -> impl Future<Output = wasmtime::Result<Self::Bindings>> + Send;
    fn describe(
        bindings: &Self::Bindings,
        store: &mut Store<Guest>,
    ) -> impl Future<Output = wasmtime::Result<Description>> + Send;
    fn configure(
        bindings: &Self::Bindings,
        store: &mut Store<Guest>,
        config: &str,
    ) -> impl Future<Output = wasmtime::Result<Result<(), Vec<ConfigError>>>> + Send;

    /// Answers a job and says whether the instance is still good.
    fn run(
        live: &mut Live<Self>,
        shared: &Arc<Self::Shared>,
        job: Self::Job,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Frees what callers no longer hold. Called before each job.
    fn tidy(live: &mut Live<Self>, shared: &Self::Shared) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Answers a job with an error.
    fn refuse(job: Self::Job, error: CallError);

    /// The instance (its serial number) that a job has to go to. None: any.
    fn bound_to(_job: &Self::Job) -> Option<u64> {
        None
    }

    /// Answers a job whose instance is gone.
    fn lost(job: Self::Job) {
        Self::refuse(job, CallError::Stopped);
    }

    /// Whether work in progress would be lost with the instance.
    fn occupied(_held: &Self::Held) -> bool {
        false
    }
}

/// A configured instance. Dropping it frees its place in the pool.
pub(crate) struct Live<W: World> {
    pub(super) store: Store<Guest>,
    pub(super) bindings: W::Bindings,
    pub(super) held: W::Held,
    pub(super) gate: Arc<Gate>,
    pub(super) meta: Arc<Meta>,
    serial: u64,
    calls: u64,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

/// Counts live instances.
struct Counted(Arc<Meta>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.stats.instances.dec();
    }
}

/// Links a compiled component for a world.
pub(crate) fn link<W: World>(engine: &Engine, component: &Compiled) -> Result<W::Pre, String> {
    let linked = engine
        .linker
        .instantiate_pre(&component.0)
        .map_err(|error| one_line(&format!("{error:#}")))?;
    W::prepare(linked).map_err(|error| one_line(&format!("{error:#}")))
}

impl<W: World> Live<W> {
    /// A fresh instance, not configured yet. `serial` tells it from others of the same owner.
    pub(crate) async fn instantiate(
        engine: &Engine,
        pre: &W::Pre,
        meta: &Arc<Meta>,
        serial: u64,
    ) -> Result<Live<W>, CallError> {
        let place = engine.place(&meta.name, meta.limits.wall_clock).await?;
        let gate = Arc::new(Gate::default());
        let mut store = guest::store(engine, meta, &gate);
        let bindings = gate
            .run(startup(meta), W::instantiate(pre, &mut store))
            .await
            .map_err(|fault| meta.fault(&fault))?;
        meta.stats.instances.inc();
        let counted = Counted(Arc::clone(meta));
        let meta = Arc::clone(meta);
        let held = W::Held::default();
        Ok(Live {
            store,
            bindings,
            held,
            gate,
            meta,
            serial,
            calls: 0,
            _place: place,
            _counted: counted,
        })
    }

    pub(crate) async fn describe(&mut self) -> Result<Description, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::describe(&self.bindings, &mut self.store);
        self.gate
            .run(startup(&self.meta), call)
            .await
            .map_err(|fault| self.meta.fault(&fault))
    }

    pub(crate) async fn configure(
        &mut self,
        config: &str,
    ) -> Result<Result<(), Vec<ConfigError>>, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::configure(&self.bindings, &mut self.store, config);
        self.gate
            .run(startup(&self.meta), call)
            .await
            .map_err(|fault| self.meta.fault(&fault))
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Counts one more job; true when the instance has done as many as it may.
    pub(crate) fn worn(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.meta.limits.calls
    }

    /// How many calls were made into it so far, and what they used of a processor.
    pub(crate) fn spent(&self) -> (u64, Duration) {
        self.gate.spent()
    }

    pub(crate) fn occupied(&self) -> bool {
        W::occupied(&self.held)
    }

    /// What one call may use.
    pub(super) fn allowance(&mut self) -> Allowance {
        self.store.set_epoch_deadline(1);
        Allowance {
            wall_clock: self.meta.limits.wall_clock,
            cpu: self.meta.limits.cpu,
        }
    }

    /// Frees a resource of the guest's.
    pub(super) async fn free(&mut self, resource: ResourceAny) -> Result<(), Fault> {
        let allowance = self.allowance();
        self.gate
            .run(allowance, resource.resource_drop_async(&mut self.store))
            .await
    }

    /// Sends an answer and passes on what it means for the instance.
    pub(super) fn answer<T>(&self, reply: Reply<T>, result: Result<T, Fault>) -> Result<(), Fault> {
        let (answer, outcome) = match result {
            Ok(value) => {
                // Before the caller hears of it, and may ask the next.
                self.meta.health.answered();
                (Ok(value), Ok(()))
            }
            Err(fault) => (Err(self.meta.fault(&fault)), Err(fault)),
        };
        // A caller that has gone away is not the instance's fault.
        drop(reply.send(answer));
        outcome
    }
}

fn startup(meta: &Meta) -> Allowance {
    Allowance {
        wall_clock: meta.limits.wall_clock.max(STARTUP_WALL_CLOCK),
        cpu: meta.limits.cpu.max(STARTUP_CPU),
    }
}
