//! The instances of one version of a plugin, and the dispatch of calls to them.
//!
//! Kept instances: a few, each owned by a task with a bounded queue (see `instance_task`). Or a new
//! instance for each call, which the caller owns and drops afterwards, so that no state of one call
//! reaches the next.

mod instance_task;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;
use transom_common::trace::TraceContext;
use transom_registry::Provenance;

use crate::{
    error::CallError,
    manifest::{
        limits::{Instances, MAX_INSTANCES},
        masks::Masks,
    },
    observe::version_metrics::{CallOutcome, is_busy},
    runtime::{
        engine::{Engine, Instance, Reply, World, span},
        executor::GuestExecutor,
        fault::Fault,
        version_context::{Queued, VersionContext},
    },
    worlds::WorldName,
};
use instance_task::InstanceTask;

/// Queued calls of one instance; further callers wait to enqueue, in order.
const QUEUE: usize = 256;
/// A caller stays with the instance that has its agent set or view unless another has this many
/// fewer calls.
const AFFINITY: usize = 8;
/// Digits of the digest in a version label.
const SHORT_DIGEST: usize = 8;
/// Characters of the component's version in a version label.
const SHORT_VERSION: usize = 64;

/// The description of an admitted version.
#[derive(Clone, Debug)]
pub(crate) struct ComponentInfo {
    pub(crate) world: WorldName,
    pub(crate) version: String,
    pub(crate) summary: String,
    /// Of the component: `sha256:` and lower-case hexadecimal.
    pub(crate) digest: String,
    /// Of the manifest's text, likewise.
    pub(crate) manifest: String,
    pub(crate) provenance: Provenance,
    /// Interfaces, without their versions.
    pub(crate) imports: Vec<String>,
    /// Seconds since 1970.
    pub(crate) admitted_at: u64,
}

impl ComponentInfo {
    /// The version label of metrics and spans: the component's version and the start of its digest.
    pub(crate) fn label(&self) -> String {
        let version: String = self.version.chars().take(SHORT_VERSION).collect();
        let digest = self.digest.trim_start_matches("sha256:");
        let digest: String = digest.chars().take(SHORT_DIGEST).collect();
        format!("{version}+{digest}")
    }
}

/// A started version.
pub(crate) struct Version<W: World> {
    pub(crate) context: Arc<VersionContext>,
    pub(crate) info: ComponentInfo,
    /// The secrets of its configuration.
    pub(crate) masks: Arc<Masks>,
    factory: InstanceFactory<W>,
    strategy: InstanceStrategy<W>,
    runtime: Runtime,
}

enum InstanceStrategy<W: World> {
    Kept(Vec<Slot<W>>),
    /// One permit for each concurrent instance.
    PerCall(Arc<Semaphore>),
}

struct Slot<W: World> {
    queue: mpsc::Sender<Envelope<W>>,
    load: Arc<AtomicUsize>,
}

struct Envelope<W: World> {
    call: W::Call,
    /// After this the caller is gone.
    deadline: Instant,
    queued: Queued,
    /// The caller's place.
    trace: TraceContext,
    _load: Load,
}

/// Counts a call while it waits or runs.
struct Load(Arc<AtomicUsize>);

impl Load {
    fn of(load: &Arc<AtomicUsize>) -> Load {
        load.fetch_add(1, Relaxed);
        Load(Arc::clone(load))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The host's shared runtime: engine, tasks and threads.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) tracker: TaskTracker,
    pub(crate) token: CancellationToken,
    pub(crate) executor: GuestExecutor,
}

/// Creates instances of a version.
struct InstanceFactory<W: World> {
    engine: Engine,
    pre: W::Pre,
    context: Arc<VersionContext>,
}

impl<W: World> Clone for InstanceFactory<W> {
    fn clone(&self) -> Self {
        InstanceFactory {
            engine: self.engine.clone(),
            pre: self.pre.clone(),
            context: Arc::clone(&self.context),
        }
    }
}

impl<W: World> InstanceFactory<W> {
    /// Creates a configured instance. `serial` identifies it within its task.
    async fn make(&self, serial: u64) -> Result<Instance<W>, CallError> {
        let mut instance = Instance::instantiate(&self.engine, &self.pre, &self.context, serial).await?;
        if let Err(errors) = instance.configure().await? {
            let first = errors.first().map(|it| it.message.clone()).unwrap_or_default();
            let message = format!("it rejects the configuration that it accepted at admission: {first}");
            return Err(self.context.fault(&Fault::Malformed(message)));
        }
        Ok(instance)
    }
}

/// The instance that runs a caller's calls.
pub(crate) enum InstanceHandle<W: World> {
    /// One of the kept instances.
    Slot(usize),
    /// An instance of the caller.
    DedicatedInstance(Box<DedicatedInstance<W>>),
}

/// An instance that is created at the first call and dropped with its handle.
pub(crate) struct DedicatedInstance<W: World> {
    instance: Option<Instance<W>>,
    shared: Arc<W::Shared>,
    /// Held from before the creation until after the drop, so that permits bound the instances.
    place: Option<OwnedSemaphorePermit>,
    /// Whether it was created; it is not created twice.
    made: bool,
}

/// Runs one call. None: the instance failed.
async fn enter<W: World>(
    mut instance: Instance<W>,
    shared: &Arc<W::Shared>,
    call: W::Call,
    trace: &TraceContext,
) -> Option<Instance<W>> {
    let span = span(instance.context(), trace);
    instance.begin();
    let done = W::run(&mut instance, shared, call).instrument(span).await;
    done.is_ok().then_some(instance)
}

impl<W: World> Version<W> {
    /// Starts the tasks of kept instances. `first`: a configured instance of this context, for one
    /// of them; the others are created at the first call.
    pub(crate) fn start(
        runtime: &Runtime,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
        info: ComponentInfo,
        masks: Arc<Masks>,
        mut first: Option<Instance<W>>,
    ) -> Version<W> {
        let factory = InstanceFactory {
            engine: runtime.engine.clone(),
            pre: pre.clone(),
            context: Arc::clone(context),
        };
        let strategy = match context.limits.instances {
            Instances::PerCall => InstanceStrategy::PerCall(Arc::new(Semaphore::new(MAX_INSTANCES))),
            Instances::Kept(count) => {
                let slots = (0..count.max(1)).map(|_| {
                    let (queue, calls) = mpsc::channel(QUEUE);
                    let task = InstanceTask::new(factory.clone(), first.take());
                    runtime
                        .executor
                        .spawn(&runtime.tracker, task.run(calls, runtime.token.clone()));
                    Slot {
                        queue,
                        load: Arc::default(),
                    }
                });
                InstanceStrategy::Kept(slots.collect())
            }
        };
        Version {
            context: Arc::clone(context),
            info,
            masks,
            factory,
            strategy,
            runtime: runtime.clone(),
        }
    }

    /// The same component with the same configuration, limits and grants, on as many instances of
    /// its own. Its calls count neither in the plugin's metrics nor for its health, and are not
    /// recorded; what it logs is in the plugin's log.
    pub(crate) fn aside(&self) -> Version<W> {
        let (info, masks) = (self.info.clone(), Arc::clone(&self.masks));
        let context = Arc::new(self.context.aside());
        Version::start(&self.runtime, &self.factory.pre, &context, info, masks, None)
    }

    /// The same with one instance for each handle, and none that stays.
    pub(crate) fn aside_per_call(&self) -> Version<W> {
        let context = Arc::new(self.context.aside());
        Version {
            context: Arc::clone(&context),
            info: self.info.clone(),
            masks: Arc::clone(&self.masks),
            factory: InstanceFactory {
                context,
                ..self.factory.clone()
            },
            strategy: InstanceStrategy::PerCall(Arc::new(Semaphore::new(1))),
            runtime: self.runtime.clone(),
        }
    }

    /// The instance with the fewest calls.
    pub(crate) fn least_loaded(&self) -> InstanceHandle<W> {
        match &self.strategy {
            InstanceStrategy::Kept(slots) => InstanceHandle::Slot(least_loaded(slots)),
            InstanceStrategy::PerCall(_) => InstanceHandle::dedicated(),
        }
    }

    /// `preferred`, unless it has many more calls than another.
    pub(crate) fn near(&self, preferred: usize) -> InstanceHandle<W> {
        let InstanceStrategy::Kept(slots) = &self.strategy else {
            return InstanceHandle::dedicated();
        };
        let preferred = preferred % slots.len();
        let least = least_loaded(slots);
        let load = |index: usize| slots[index].load.load(Relaxed);
        if load(preferred) <= load(least) + AFFINITY {
            InstanceHandle::Slot(preferred)
        } else {
            InstanceHandle::Slot(least)
        }
    }

    /// Runs a call. The wait for the instance and the call itself are each bounded by the
    /// wall-clock limit.
    pub(crate) async fn ask<T>(
        &self,
        handle: &mut InstanceHandle<W>,
        call: impl FnOnce(Reply<T>) -> W::Call,
    ) -> Result<T, CallError> {
        let answer = match (handle, &self.strategy) {
            (InstanceHandle::Slot(index), InstanceStrategy::Kept(slots)) => {
                self.ask_slot(&slots[*index % slots.len()], call).await
            }
            (InstanceHandle::DedicatedInstance(dedicated), InstanceStrategy::PerCall(permits)) => {
                self.ask_dedicated(dedicated, permits, call).await
            }
            // A handle belongs to the version that created it.
            _ => Err(CallError::Stopped),
        };
        if is_busy(&answer) {
            self.context.metrics.called(CallOutcome::Busy);
        }
        answer
    }

    async fn ask_slot<T>(
        &self,
        slot: &Slot<W>,
        call: impl FnOnce(Reply<T>) -> W::Call,
    ) -> Result<T, CallError> {
        let limit = self.context.limits.wall_clock;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let envelope = Envelope {
            call: call(reply),
            deadline,
            queued: self.context.queued(),
            trace: TraceContext::current(),
            _load: Load::of(&slot.load),
        };
        match timeout_at(deadline, slot.queue.send(envelope)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Stopped),
            Err(_elapsed) => return Err(busy(&self.context)),
        }
        // The instance task bounds the call itself; creating an instance first may take longer.
        match timeout(limit * 2 + Duration::from_secs(20), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_dropped)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(busy(&self.context)),
        }
    }

    async fn ask_dedicated<T>(
        &self,
        dedicated: &mut DedicatedInstance<W>,
        permits: &Arc<Semaphore>,
        call: impl FnOnce(Reply<T>) -> W::Call,
    ) -> Result<T, CallError> {
        if dedicated.place.is_none() {
            let permit = timeout(
                self.context.limits.wall_clock,
                Arc::clone(permits).acquire_owned(),
            )
            .await;
            let permit = permit.map_err(|_elapsed| busy(&self.context))?;
            dedicated.place = Some(permit.map_err(|_closed| CallError::Stopped)?);
        }
        let (reply, answer) = oneshot::channel();
        let (call, factory, queued) = (call(reply), self.factory.clone(), self.context.queued());
        let trace = TraceContext::current();
        // In a task, so that a long call leaves the caller's thread. Dropping the task drops the
        // instance.
        let mut dedicated_now = std::mem::replace(dedicated, DedicatedInstance::new());
        let (give_back, returned) = oneshot::channel();
        let token = self.runtime.token.clone();
        self.runtime.executor.spawn(&self.runtime.tracker, async move {
            let asked = async {
                dedicated_now.ask(&factory, queued, call, &trace).await;
                // The caller may be gone.
                drop(give_back.send(dedicated_now));
            };
            token.run_until_cancelled(asked).await;
        });
        let answer = answer.await.unwrap_or(Err(CallError::Stopped));
        if let Ok(dedicated_again) = returned.await {
            *dedicated = dedicated_again;
        }
        answer
    }
}

impl<W: World> DedicatedInstance<W> {
    fn new() -> DedicatedInstance<W> {
        DedicatedInstance {
            instance: None,
            shared: Arc::default(),
            place: None,
            made: false,
        }
    }

    async fn ask(
        &mut self,
        factory: &InstanceFactory<W>,
        queued: Queued,
        call: W::Call,
        trace: &TraceContext,
    ) {
        if !self.made {
            self.made = true;
            match factory.make(1).await {
                Ok(instance) => self.instance = Some(instance),
                Err(error) => return W::refuse(call, error),
            }
        }
        queued.served();
        match self.instance.take() {
            Some(instance) => self.instance = enter(instance, &self.shared, call, trace).await,
            None => W::lost(call),
        }
    }
}

impl<W: World> InstanceHandle<W> {
    fn dedicated() -> InstanceHandle<W> {
        InstanceHandle::DedicatedInstance(Box::new(DedicatedInstance::new()))
    }
}

fn least_loaded<W: World>(slots: &[Slot<W>]) -> usize {
    let loads = slots.iter().enumerate();
    loads
        .min_by_key(|(_, slot)| slot.load.load(Relaxed))
        .map_or(0, |(index, _)| index)
}

fn busy(context: &VersionContext) -> CallError {
    let message = format!(
        "no instance was free within {:?} (limits.wall-clock, limits.instances)",
        context.limits.wall_clock
    );
    CallError::Busy {
        name: context.name.clone(),
        message,
    }
}
