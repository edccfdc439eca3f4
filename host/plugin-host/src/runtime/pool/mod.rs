//! The instances of one version of a plugin, and the dispatch of calls to them.
//!
//! A version either keeps a few instances, each owned by a task with a bounded queue (see
//! `instance_task`), or creates a new instance for each call, which the caller owns and drops
//! afterwards, so that no state of one call reaches the next.

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
    fault::Fault,
    manifest::{
        limits::{Instances, MAX_INSTANCES},
        masks::Masks,
    },
    observe::version_metrics::{CallOutcome, is_busy},
    runtime::{
        engine::{Engine, Instance, Reply, World, span},
        executor::GuestExecutor,
        version_context::{QueueWait, VersionContext},
    },
    worlds::WorldName,
};
use instance_task::InstanceTask;

/// Maximum number of queued calls of one instance. Further callers wait, in order, until they can
/// enqueue.
const QUEUE_CAPACITY: usize = 256;
/// A caller stays with the instance that has its agent set or view unless the least loaded instance
/// has over this many fewer calls.
const MAX_EXTRA_LOAD: usize = 8;
/// Digits of the digest in a version label.
const LABEL_DIGEST_DIGITS: usize = 8;
/// Characters of the component's version in a version label.
const LABEL_VERSION_CHARS: usize = 64;

/// The description of an admitted version.
#[derive(Clone, Debug)]
pub(crate) struct ComponentInfo {
    pub(crate) world: WorldName,
    pub(crate) version: String,
    pub(crate) summary: String,
    /// The component's digest: `sha256:` and lower-case hexadecimal.
    pub(crate) digest: String,
    /// The digest of the manifest's text, in the same form.
    pub(crate) manifest: String,
    pub(crate) provenance: Provenance,
    /// The imported interfaces, without their versions.
    pub(crate) imports: Vec<String>,
    /// Seconds since 1970.
    pub(crate) admitted_at: u64,
}

impl ComponentInfo {
    /// The version label of metrics and spans: the component's version and the start of its digest.
    pub(crate) fn label(&self) -> String {
        let version: String = self.version.chars().take(LABEL_VERSION_CHARS).collect();
        let digest = self.digest.trim_start_matches("sha256:");
        let digest: String = digest.chars().take(LABEL_DIGEST_DIGITS).collect();
        format!("{version}+{digest}")
    }
}

/// A started version.
pub(crate) struct Version<W: World> {
    pub(crate) context: Arc<VersionContext>,
    pub(crate) info: ComponentInfo,
    /// The secrets of the plugin's configuration.
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
    queue: mpsc::Sender<QueuedCall<W>>,
    load: Arc<AtomicUsize>,
}

struct QueuedCall<W: World> {
    call: W::Call,
    /// A call that has not started by then is rejected as busy.
    deadline: Instant,
    wait: QueueWait,
    /// The caller's trace context.
    trace: TraceContext,
    _load: LoadGuard,
}

/// Counts a call in its slot's load while the call is queued or runs.
struct LoadGuard(Arc<AtomicUsize>);

impl LoadGuard {
    fn of(load: &Arc<AtomicUsize>) -> LoadGuard {
        load.fetch_add(1, Relaxed);
        LoadGuard(Arc::clone(load))
    }
}

impl Drop for LoadGuard {
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
    async fn create(&self, serial: u64) -> Result<Instance<W>, CallError> {
        let mut instance = Instance::instantiate(&self.engine, &self.pre, &self.context, serial).await?;
        if let Err(errors) = instance.configure().await? {
            let first = errors.first().map(|it| it.message.clone()).unwrap_or_default();
            let message = format!("it rejects the configuration that it accepted at admission: {first}");
            return Err(self.context.record_fault(&Fault::Malformed(message)));
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
    /// Acquired before the instance is created and released after it is dropped, so that the permits
    /// bound the number of instances.
    permit: Option<OwnedSemaphorePermit>,
    /// Whether the creation of the instance was attempted. It is attempted once, even after a fault.
    created: bool,
}

/// Runs one call. Returns none if the instance failed.
async fn run_call<W: World>(
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
    /// Starts the tasks of kept instances. The first task gets `first`, a configured instance of this
    /// context; the other tasks create theirs at their first call.
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
                    let (queue, calls) = mpsc::channel(QUEUE_CAPACITY);
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

    /// Starts the same component with the same configuration, limits, grants and number of instances
    /// a second time. Its calls count neither in the plugin's metrics nor for its health, and are not
    /// recorded; its log lines go to the plugin's log.
    pub(crate) fn detached(&self) -> Version<W> {
        let (info, masks) = (self.info.clone(), Arc::clone(&self.masks));
        let context = Arc::new(self.context.detached());
        Version::start(&self.runtime, &self.factory.pre, &context, info, masks, None)
    }

    /// Like [`Version::detached`], but keeps no instances: each handle creates its own, one at a time,
    /// and drops it with the handle.
    pub(crate) fn detached_per_call(&self) -> Version<W> {
        let context = Arc::new(self.context.detached());
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

    /// Returns `preferred`, unless it has over [`MAX_EXTRA_LOAD`] more calls than the least loaded
    /// instance.
    pub(crate) fn near(&self, preferred: usize) -> InstanceHandle<W> {
        let InstanceStrategy::Kept(slots) = &self.strategy else {
            return InstanceHandle::dedicated();
        };
        let preferred = preferred % slots.len();
        let least = least_loaded(slots);
        let load = |index: usize| slots[index].load.load(Relaxed);
        if load(preferred) <= load(least) + MAX_EXTRA_LOAD {
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
            self.context.metrics.count_call(CallOutcome::Busy);
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
        let queued_call = QueuedCall {
            call: call(reply),
            deadline,
            wait: self.context.start_wait(),
            trace: TraceContext::current(),
            _load: LoadGuard::of(&slot.load),
        };
        match timeout_at(deadline, slot.queue.send(queued_call)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Stopped),
            Err(_elapsed) => return Err(busy(&self.context)),
        }
        // The instance task limits the duration of the call itself. The creation of an instance before
        // the call may take longer.
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
        if dedicated.permit.is_none() {
            let permit = timeout(
                self.context.limits.wall_clock,
                Arc::clone(permits).acquire_owned(),
            )
            .await;
            let permit = permit.map_err(|_elapsed| busy(&self.context))?;
            dedicated.permit = Some(permit.map_err(|_closed| CallError::Stopped)?);
        }
        let (reply, answer) = oneshot::channel();
        let (call, factory, wait) = (call(reply), self.factory.clone(), self.context.start_wait());
        let trace = TraceContext::current();
        // The call runs in a task, so that a long call does not occupy the caller's thread. Dropping the
        // task drops the instance.
        let mut taken_instance = std::mem::replace(dedicated, DedicatedInstance::new());
        let (return_sender, returned) = oneshot::channel();
        let token = self.runtime.token.clone();
        self.runtime.executor.spawn(&self.runtime.tracker, async move {
            let call_on_instance = async {
                taken_instance.ask(&factory, wait, call, &trace).await;
                // The caller may have been cancelled.
                drop(return_sender.send(taken_instance));
            };
            token.run_until_cancelled(call_on_instance).await;
        });
        let answer = answer.await.unwrap_or(Err(CallError::Stopped));
        if let Ok(returned_instance) = returned.await {
            *dedicated = returned_instance;
        }
        answer
    }
}

impl<W: World> DedicatedInstance<W> {
    fn new() -> DedicatedInstance<W> {
        DedicatedInstance {
            instance: None,
            shared: Arc::default(),
            permit: None,
            created: false,
        }
    }

    async fn ask(
        &mut self,
        factory: &InstanceFactory<W>,
        wait: QueueWait,
        call: W::Call,
        trace: &TraceContext,
    ) {
        if !self.created {
            self.created = true;
            match factory.create(1).await {
                Ok(instance) => self.instance = Some(instance),
                Err(error) => return W::reject(call, error),
            }
        }
        wait.record_wait();
        match self.instance.take() {
            Some(instance) => self.instance = run_call(instance, &self.shared, call, trace).await,
            None => W::reject_lost(call),
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
