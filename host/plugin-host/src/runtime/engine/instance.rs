//! A running instance, and the trait of a world: how its instances are called and replaced.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use transom_common::{
    text::one_line,
    trace::{TARGET, TraceContext},
};
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
    manifest::limits::Instances,
    observe::version_metrics::{CallOutcome, GaugeGuard},
    runtime::version_context::VersionContext,
    worlds::about::{ConfigError, Description},
};

/// Minimum limits of start functions, `describe` and `configure`.
const STARTUP_CPU: Duration = Duration::from_secs(2);
const STARTUP_WALL_CLOCK: Duration = Duration::from_secs(20);

/// The channel of a result. Dropping it means that the plugin host is stopping.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CallError>>;

/// One of the worlds of `wit/`, with the functions that call its components.
pub(crate) trait World: Sized + Send + Sync + 'static {
    /// A linked component with resolved exports.
    type Pre: Clone + Send + Sync + 'static;
    /// The exports of one instance.
    type Bindings: Send + Sync + 'static;
    /// Guest resources with handles on the host, dropped with the instance.
    type Resources: Default + Send + 'static;
    /// State that callers share with the instance's task, apart from the queue.
    type Shared: Default + Send + Sync + 'static;
    /// A call with the channel of its result.
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

    /// Executes a call; an error means that the instance must be dropped.
    fn run(
        instance: &mut Instance<Self>,
        shared: &Arc<Self::Shared>,
        call: Self::Call,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Drops guest resources without an owner. Called before each call.
    fn drop_orphans(
        instance: &mut Instance<Self>,
        shared: &Self::Shared,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Sends an error as the result of a call.
    fn reject(call: Self::Call, error: CallError);

    /// The serial number of the instance that a call is bound to. None: any.
    fn bound_instance(_call: &Self::Call) -> Option<u64> {
        None
    }

    /// Sends the result of a call whose instance no longer exists.
    fn reject_lost(call: Self::Call) {
        Self::reject(call, CallError::Stopped);
    }

    /// Whether dropping the instance would lose work in progress.
    fn has_open_resources(_resources: &Self::Resources) -> bool {
        false
    }
}

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Answer,
    /// An error of the component.
    Rejection,
    /// A step of an attempt that is not finished.
    Step,
}

/// An instance. Dropping it frees its slot in the pool.
pub(crate) struct Instance<W: World> {
    pub(super) store: Store<Guest>,
    pub(super) bindings: W::Bindings,
    pub(super) resources: W::Resources,
    pub(super) meter: Arc<CallMeter>,
    pub(super) context: Arc<VersionContext>,
    serial: u64,
    calls: u64,
    /// Start of the current call, and the processor time used before it.
    began: (Instant, Duration),
    /// Declared after the store, so that the store is dropped before the slot is free.
    _slot: OwnedSemaphorePermit,
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
    /// Creates an instance, not configured yet. `serial` identifies it within its task.
    pub(crate) async fn instantiate(
        engine: &Engine,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
        serial: u64,
    ) -> Result<Instance<W>, CallError> {
        let slot = engine
            .acquire_slot(&context.name, context.limits.wall_clock)
            .await?;
        let meter = Arc::new(CallMeter::new(&engine.clock, context));
        let mut store = guest::store(engine, context, &meter);
        let bindings = meter
            .run(startup_allowance(context), W::instantiate(pre, &mut store))
            .await
            .map_err(|fault| context.record_fault(&fault))?;
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
            _slot: slot,
            _counted: counted,
        })
    }

    pub(crate) async fn describe(&mut self) -> Result<Description, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::describe(&self.bindings, &mut self.store);
        self.meter
            .run(startup_allowance(&self.context), call)
            .await
            .map_err(|fault| self.context.record_fault(&fault))
    }

    /// Passes the manifest's configuration.
    pub(crate) async fn configure(&mut self) -> Result<Result<(), Vec<ConfigError>>, CallError> {
        self.store.set_epoch_deadline(1);
        let call = W::configure(&self.bindings, &mut self.store, &self.context.config);
        self.meter
            .run(startup_allowance(&self.context), call)
            .await
            .map_err(|fault| self.context.record_fault(&fault))
    }

    pub(crate) fn context(&self) -> &VersionContext {
        &self.context
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Counts one more call; true if the instance has reached its maximum.
    pub(crate) fn should_recycle(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.context.limits.max_calls_per_instance
    }

    /// The number of calls so far, and their processor time.
    pub(crate) fn usage(&self) -> (u64, Duration) {
        self.meter.usage()
    }

    pub(crate) fn has_open_resources(&self) -> bool {
        W::has_open_resources(&self.resources)
    }

    /// The limits of one call.
    pub(super) fn allowance(&mut self) -> Allowance {
        self.store.set_epoch_deadline(1);
        Allowance {
            wall_clock: self.context.limits.wall_clock,
            cpu: self.context.limits.cpu,
        }
    }

    /// Drops a guest resource.
    pub(super) async fn free(&mut self, resource: ResourceAny) -> Result<(), Fault> {
        let allowance = self.allowance();
        self.meter
            .run(allowance, resource.resource_drop_async(&mut self.store))
            .await
    }

    /// Starts the measurement of a call.
    pub(crate) fn begin(&mut self) {
        self.began = (Instant::now(), self.meter.usage().1);
    }

    /// Sends a result; returns the fault if the instance failed.
    pub(super) fn answer<T>(&self, reply: Reply<T>, result: Result<T, Fault>) -> Result<(), Fault> {
        self.answer_or_reject(reply, result, |_| false)
    }

    /// Like [`Instance::answer`], for calls whose result may be an error of the component.
    pub(super) fn answer_or_reject<T>(
        &self,
        reply: Reply<T>,
        result: Result<T, Fault>,
        is_rejection: impl FnOnce(&T) -> bool,
    ) -> Result<(), Fault> {
        self.answer_as(reply, result, |answer| {
            if is_rejection(answer) {
                AnswerKind::Rejection
            } else {
                AnswerKind::Answer
            }
        })
    }

    /// Like [`Instance::answer`], for calls whose result may be a step of an attempt.
    pub(super) fn answer_as<T>(
        &self,
        reply: Reply<T>,
        result: Result<T, Fault>,
        kind_of: impl FnOnce(&T) -> AnswerKind,
    ) -> Result<(), Fault> {
        // The usage is recorded first, because the caller may read the counters right after the result.
        self.record_usage();
        let (answer, outcome) = match result {
            Ok(value) => {
                let kind = kind_of(&value);
                if kind != AnswerKind::Step {
                    self.context.health.record_answer();
                }
                self.record_outcome(match kind {
                    AnswerKind::Rejection => CallOutcome::Rejected,
                    AnswerKind::Answer | AnswerKind::Step => CallOutcome::Answered,
                });
                (Ok(value), Ok(()))
            }
            Err(fault) => {
                tracing::Span::current().record(OUTCOME_FIELD, CallOutcome::from(&fault).name());
                (Err(self.context.record_fault(&fault)), Err(fault))
            }
        };
        // The caller may have been cancelled.
        drop(reply.send(answer));
        outcome
    }

    fn record_usage(&self) {
        let (began, used) = self.began;
        let time = began.elapsed();
        let cpu = self.meter.usage().1.saturating_sub(used);
        tracing::Span::current().record(CPU_FIELD, cpu.as_secs_f64());
        self.context.metrics.record_duration(time, cpu);
    }

    fn record_outcome(&self, outcome: CallOutcome) {
        tracing::Span::current().record(OUTCOME_FIELD, outcome.name());
        self.context.metrics.count_call(outcome);
    }
}

/// The field of a call's span with its outcome.
const OUTCOME_FIELD: &str = "outcome";

/// The field of a call's span with its processor time, in seconds.
const CPU_FIELD: &str = "cpu_seconds";

/// The span of a call: one that is exported if the caller is traced, otherwise one for the log.
pub(crate) fn span(context: &VersionContext, caller: &TraceContext) -> tracing::Span {
    if caller.is_recorded() {
        return caller.child(|| {
            tracing::info_span!(
                target: TARGET,
                "plugin_call",
                plugin = context.name,
                version = context.label(),
                world = context.world.short(),
                outcome = tracing::field::Empty,
                cpu_seconds = tracing::field::Empty,
                trace_id = tracing::field::Empty,
            )
        });
    }
    tracing::debug_span!(
        "plugin_call",
        plugin = context.name,
        version = context.label(),
        world = context.world.short(),
        outcome = tracing::field::Empty,
        cpu_seconds = tracing::field::Empty,
    )
}

fn startup_allowance(context: &VersionContext) -> Allowance {
    if context.limits.instances == Instances::PerCall {
        // The creation of the instance is part of every call, so the limits of a call apply.
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
