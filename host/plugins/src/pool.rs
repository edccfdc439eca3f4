//! The instances of one version of a plugin, and the way of a question to one of them.
//!
//! Kept: a few, each owned by a task of its own and fed by a bounded queue, see `task`. Or a fresh one for each call, which is the caller's own
//! and goes with it: nothing of one call is left for the next, and what becomes of it is nobody else's business.

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

use crate::{
    engine::{Engine, Instance, Reply, World, span},
    error::CallError,
    executor::GuestExecutor,
    fault::Fault,
    limits::{Instances, MAX_INSTANCES},
    metrics::{CallOutcome, is_busy},
    origin::Provenance,
    version_context::{Queued, VersionContext},
    world::WorldName,
};
use instance_task::InstanceTask;

/// Jobs that may wait for one instance; callers beyond that wait to enqueue, in order.
const QUEUE: usize = 256;
/// A caller stays with the instance that knows its agent set or view unless another has so many fewer jobs.
const AFFINITY: usize = 8;
/// Digits of a digest that tell a component from another of the same version.
const SHORT_DIGEST: usize = 8;
/// Characters of a component's version where it is a label.
const SHORT_VERSION: usize = 64;

/// What is known of an admitted version.
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
    /// The version as metrics and spans have it: what the component says, and the beginning of its digest.
    pub(crate) fn label(&self) -> String {
        let version: String = self.version.chars().take(SHORT_VERSION).collect();
        let digest = self.digest.trim_start_matches("sha256:");
        let digest: String = digest.chars().take(SHORT_DIGEST).collect();
        format!("{version}+{digest}")
    }
}

/// A version that serves.
pub(crate) struct Version<W: World> {
    pub(crate) context: Arc<VersionContext>,
    pub(crate) info: ComponentInfo,
    factory: InstanceFactory<W>,
    strategy: InstanceStrategy<W>,
    runtime: Runtime,
}

enum InstanceStrategy<W: World> {
    Kept(Vec<Slot<W>>),
    /// A permit for each that may live at once.
    PerCall(Arc<Semaphore>),
}

struct Slot<W: World> {
    queue: mpsc::Sender<Envelope<W>>,
    load: Arc<AtomicUsize>,
}

struct Envelope<W: World> {
    call: W::Call,
    /// After this nobody waits for the answer any more.
    deadline: Instant,
    queued: Queued,
    _load: Load,
}

/// Counts a job as long as it waits or runs.
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

/// What the owners of instances need from outside.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) tracker: TaskTracker,
    pub(crate) token: CancellationToken,
    pub(crate) executor: GuestExecutor,
}

/// Makes instances of a version.
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
    /// A configured instance. `serial` tells it from others of the same owner.
    async fn make(&self, serial: u64) -> Result<Instance<W>, CallError> {
        let mut instance = Instance::instantiate(&self.engine, &self.pre, &self.context, serial).await?;
        if let Err(errors) = instance.configure().await? {
            let first = errors.first().map(|it| it.message.clone()).unwrap_or_default();
            let message = format!("it now refuses the configuration that it took when admitted: {first}");
            return Err(self.context.fault(&Fault::Malformed(message)));
        }
        Ok(instance)
    }
}

/// Where a caller's questions are answered.
pub(crate) enum InstanceHandle<W: World> {
    /// By one of the instances that are kept.
    Slot(usize),
    /// By an instance of the caller's own.
    DedicatedInstance(Box<DedicatedInstance<W>>),
}

/// An instance that is made with the first question, answers one after the other, and goes with its seat.
pub(crate) struct DedicatedInstance<W: World> {
    instance: Option<Instance<W>>,
    shared: Arc<W::Shared>,
    /// From before there is an instance until after it, so that there are never more than there are permits for.
    place: Option<OwnedSemaphorePermit>,
    /// Whether there was one: it is not made again.
    made: bool,
}

/// One call into an instance. None: that is of no use any more.
async fn enter<W: World>(
    mut instance: Instance<W>,
    shared: &Arc<W::Shared>,
    call: W::Call,
) -> Option<Instance<W>> {
    let span = span(instance.context());
    instance.begin();
    let done = W::run(&mut instance, shared, call).instrument(span).await;
    done.is_ok().then_some(instance)
}

impl<W: World> Version<W> {
    /// Starts the owners of the instances, where these are kept; they are made when first needed.
    pub(crate) fn start(
        runtime: &Runtime,
        pre: &W::Pre,
        context: &Arc<VersionContext>,
        info: ComponentInfo,
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
                    let task = InstanceTask::new(factory.clone());
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
            factory,
            strategy,
            runtime: runtime.clone(),
        }
    }

    /// With whoever has the fewest jobs.
    pub(crate) fn least_loaded(&self) -> InstanceHandle<W> {
        match &self.strategy {
            InstanceStrategy::Kept(slots) => InstanceHandle::Slot(least_loaded(slots)),
            InstanceStrategy::PerCall(_) => InstanceHandle::dedicated(),
        }
    }

    /// With `preferred`, unless that has much more to do than another.
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

    /// Asks an instance. Waits for it and for the answer, each no longer than the plugin's wall-clock limit.
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
            // A seat is of the version that gave it.
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
            _load: Load::of(&slot.load),
        };
        match timeout_at(deadline, slot.queue.send(envelope)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Stopped),
            Err(_elapsed) => return Err(busy(&self.context)),
        }
        // The call itself is timed by the instance's owner; starting an instance first may take longer.
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
        // In a task, so that a guest that goes on and on does so elsewhere than its caller. What is dropped half-way takes its
        // instance with it.
        let mut dedicated_now = std::mem::replace(dedicated, DedicatedInstance::new());
        let (give_back, returned) = oneshot::channel();
        let token = self.runtime.token.clone();
        self.runtime.executor.spawn(&self.runtime.tracker, async move {
            let asked = async {
                dedicated_now.ask(&factory, queued, call).await;
                // The caller may have gone away.
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

    async fn ask(&mut self, factory: &InstanceFactory<W>, queued: Queued, call: W::Call) {
        if !self.made {
            self.made = true;
            match factory.make(1).await {
                Ok(instance) => self.instance = Some(instance),
                Err(error) => return W::refuse(call, error),
            }
        }
        queued.served();
        match self.instance.take() {
            Some(instance) => self.instance = enter(instance, &self.shared, call).await,
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
