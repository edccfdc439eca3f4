//! A live instance, and what a world has to say so that instances of it can be owned, asked and replaced.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

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
    limits::Instances,
    metrics::{Ending, Present},
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

/// What a call that came back said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Answer,
    /// The component's word that it has no answer.
    Refusal,
    /// That it goes on: whether an answer comes of it is not known yet.
    Part,
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
    /// When the present call began, and what all before it had used of the processor.
    began: (Instant, Duration),
    /// After the store: a place is free when there is nothing in it any more.
    _place: OwnedSemaphorePermit,
    _counted: Present,
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
        let gate = Arc::new(Gate::new(meta));
        let mut store = guest::store(engine, meta, &gate);
        let bindings = gate
            .run(startup(meta), W::instantiate(pre, &mut store))
            .await
            .map_err(|fault| meta.fault(&fault))?;
        let counted = meta.stats.instance();
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
            began: (Instant::now(), Duration::ZERO),
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

    /// Hands it the manifest's configuration.
    pub(crate) async fn configure(&mut self) -> Result<Result<(), Vec<ConfigError>>, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::configure(&self.bindings, &mut self.store, &self.meta.config);
        self.gate
            .run(startup(&self.meta), call)
            .await
            .map_err(|fault| self.meta.fault(&fault))
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Counts one more job; true when the instance has done as many as it may.
    pub(crate) fn worn(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.meta.limits.max_calls_per_instance
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

    /// A call begins.
    pub(crate) fn begin(&mut self) {
        self.began = (Instant::now(), self.gate.spent().1);
    }

    /// Sends an answer and passes on what it means for the instance.
    pub(super) fn answer<T>(&self, reply: Reply<T>, result: Result<T, Fault>) -> Result<(), Fault> {
        self.answer_or_refuse(reply, result, |_| false)
    }

    /// The same, where some answers are the component's word that it has none.
    pub(super) fn answer_or_refuse<T>(
        &self,
        reply: Reply<T>,
        result: Result<T, Fault>,
        is_refusal: impl FnOnce(&T) -> bool,
    ) -> Result<(), Fault> {
        self.answer_as(reply, result, |answer| {
            if is_refusal(answer) {
                Said::Refusal
            } else {
                Said::Answer
            }
        })
    }

    /// The same, where some answers are only a part of one.
    pub(super) fn answer_as<T>(
        &self,
        reply: Reply<T>,
        result: Result<T, Fault>,
        said: impl FnOnce(&T) -> Said,
    ) -> Result<(), Fault> {
        // All is counted before the caller hears of it, and may look at the counters or ask the next.
        self.measure();
        let (answer, outcome) = match result {
            Ok(value) => {
                let said = said(&value);
                if said != Said::Part {
                    self.meta.health.answered();
                }
                self.ended(match said {
                    Said::Refusal => Ending::Refused,
                    Said::Answer | Said::Part => Ending::Answered,
                });
                (Ok(value), Ok(()))
            }
            Err(fault) => {
                tracing::Span::current().record(OUTCOME, Ending::from(&fault).name());
                (Err(self.meta.fault(&fault)), Err(fault))
            }
        };
        // A caller that has gone away is not the instance's fault.
        drop(reply.send(answer));
        outcome
    }

    fn measure(&self) {
        let (began, used) = self.began;
        let time = began.elapsed();
        self.meta.stats.took(time);
        self.meta.vitals.latency.add(time);
        let cpu = self.gate.spent().1.saturating_sub(used);
        self.meta.vitals.cpu_of_call.add(cpu);
    }

    fn ended(&self, ending: Ending) {
        tracing::Span::current().record(OUTCOME, ending.name());
        self.meta.stats.called(ending);
    }
}

/// The field of a call's span that says how it ended.
const OUTCOME: &str = "outcome";

/// The span of a call.
pub(crate) fn span(meta: &Meta) -> tracing::Span {
    tracing::debug_span!(
        "plugin_call",
        plugin = meta.name,
        version = meta.version,
        world = meta.world.short(),
        outcome = tracing::field::Empty,
    )
}

fn startup(meta: &Meta) -> Allowance {
    if meta.limits.instances == Instances::PerCall {
        // Part of every call, and therefore under a call's limits.
        return Allowance {
            wall_clock: meta.limits.wall_clock,
            cpu: meta.limits.cpu,
        };
    }
    Allowance {
        wall_clock: meta.limits.wall_clock.max(STARTUP_WALL_CLOCK),
        cpu: meta.limits.cpu.max(STARTUP_CPU),
    }
}
