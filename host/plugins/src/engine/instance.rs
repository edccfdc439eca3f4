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
    call_meter::{Allowance, CallMeter},
    guest::{self, Guest},
};
use crate::{
    error::CallError,
    fault::Fault,
    limits::Instances,
    metrics::{CallOutcome, GaugeGuard},
    text::one_line,
    types::about::{ConfigError, Description},
    version_context::VersionContext,
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
    type Resources: Default + Send + 'static;
    /// What callers tell the owner of an instance aside from the queue.
    type Shared: Default + Send + Sync + 'static;
    /// A question and where its answer goes.
    type Call: Send + 'static;

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
        instance: &mut Instance<Self>,
        shared: &Arc<Self::Shared>,
        call: Self::Call,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Frees what callers no longer hold. Called before each job.
    fn drop_orphans(
        instance: &mut Instance<Self>,
        shared: &Self::Shared,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Answers a job with an error.
    fn refuse(call: Self::Call, error: CallError);

    /// The instance (its serial number) that a job has to go to. None: any.
    fn bound_to(_job: &Self::Call) -> Option<u64> {
        None
    }

    /// Answers a job whose instance is gone.
    fn lost(call: Self::Call) {
        Self::refuse(call, CallError::Stopped);
    }

    /// Whether work in progress would be lost with the instance.
    fn has_open_resources(_resources: &Self::Resources) -> bool {
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
pub(crate) struct Instance<W: World> {
    pub(super) store: Store<Guest>,
    pub(super) bindings: W::Bindings,
    pub(super) resources: W::Resources,
    pub(super) meter: Arc<CallMeter>,
    pub(super) context: Arc<VersionContext>,
    serial: u64,
    calls: u64,
    /// When the present call began, and what all before it had used of the processor.
    began: (Instant, Duration),
    /// After the store: a place is free when there is nothing in it any more.
    _place: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

/// Links a compiled component for a world.
pub(crate) fn link<W: World>(engine: &Engine, component: &Compiled) -> Result<W::Pre, String> {
    let linked = engine
        .linker
        .instantiate_pre(&component.0)
        .map_err(|error| one_line(&format!("{error:#}")))?;
    W::prepare(linked).map_err(|error| one_line(&format!("{error:#}")))
}

impl<W: World> Instance<W> {
    /// A fresh instance, not configured yet. `serial` tells it from others of the same owner.
    pub(crate) async fn instantiate(
        engine: &Engine,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
        serial: u64,
    ) -> Result<Instance<W>, CallError> {
        let place = engine.place(&context.name, context.limits.wall_clock).await?;
        let meter = Arc::new(CallMeter::new(context));
        let mut store = guest::store(engine, context, &meter);
        let bindings = meter
            .run(startup(context), W::instantiate(pre, &mut store))
            .await
            .map_err(|fault| context.fault(&fault))?;
        let counted = context.metrics.instance();
        let context = Arc::clone(context);
        let resources = W::Resources::default();
        Ok(Instance {
            store,
            bindings,
            resources,
            meter,
            context,
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
        self.meter
            .run(startup(&self.context), call)
            .await
            .map_err(|fault| self.context.fault(&fault))
    }

    /// Hands it the manifest's configuration.
    pub(crate) async fn configure(&mut self) -> Result<Result<(), Vec<ConfigError>>, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::configure(&self.bindings, &mut self.store, &self.context.config);
        self.meter
            .run(startup(&self.context), call)
            .await
            .map_err(|fault| self.context.fault(&fault))
    }

    pub(crate) fn context(&self) -> &VersionContext {
        &self.context
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Counts one more job; true when the instance has done as many as it may.
    pub(crate) fn should_recycle(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.context.limits.max_calls_per_instance
    }

    /// How many calls were made into it so far, and what they used of a processor.
    pub(crate) fn usage(&self) -> (u64, Duration) {
        self.meter.usage()
    }

    pub(crate) fn has_open_resources(&self) -> bool {
        W::has_open_resources(&self.resources)
    }

    /// What one call may use.
    pub(super) fn allowance(&mut self) -> Allowance {
        self.store.set_epoch_deadline(1);
        Allowance {
            wall_clock: self.context.limits.wall_clock,
            cpu: self.context.limits.cpu,
        }
    }

    /// Frees a resource of the guest's.
    pub(super) async fn free(&mut self, resource: ResourceAny) -> Result<(), Fault> {
        let allowance = self.allowance();
        self.meter
            .run(allowance, resource.resource_drop_async(&mut self.store))
            .await
    }

    /// A call begins.
    pub(crate) fn begin(&mut self) {
        self.began = (Instant::now(), self.meter.usage().1);
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
                    self.context.health.answered();
                }
                self.ended(match said {
                    Said::Refusal => CallOutcome::Refused,
                    Said::Answer | Said::Part => CallOutcome::Answered,
                });
                (Ok(value), Ok(()))
            }
            Err(fault) => {
                tracing::Span::current().record(OUTCOME, CallOutcome::from(&fault).name());
                (Err(self.context.fault(&fault)), Err(fault))
            }
        };
        // A caller that has gone away is not the instance's fault.
        drop(reply.send(answer));
        outcome
    }

    fn measure(&self) {
        let (began, used) = self.began;
        let time = began.elapsed();
        self.context.metrics.took(time);
        self.context.stats.latency.add(time);
        let cpu = self.meter.usage().1.saturating_sub(used);
        self.context.stats.cpu_of_call.add(cpu);
    }

    fn ended(&self, ending: CallOutcome) {
        tracing::Span::current().record(OUTCOME, ending.name());
        self.context.metrics.called(ending);
    }
}

/// The field of a call's span that says how it ended.
const OUTCOME: &str = "outcome";

/// The span of a call.
pub(crate) fn span(context: &VersionContext) -> tracing::Span {
    tracing::debug_span!(
        "plugin_call",
        plugin = context.name,
        version = context.version,
        world = context.world.short(),
        outcome = tracing::field::Empty,
    )
}

fn startup(context: &VersionContext) -> Allowance {
    if context.limits.instances == Instances::PerCall {
        // Part of every call, and therefore under a call's limits.
        return Allowance {
            wall_clock: context.limits.wall_clock,
            cpu: context.limits.cpu,
        };
    }
    Allowance {
        wall_clock: context.limits.wall_clock.max(STARTUP_WALL_CLOCK),
        cpu: context.limits.cpu.max(STARTUP_CPU),
    }
}
