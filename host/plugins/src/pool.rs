//! The instances of one version of a plugin: a few, each owned by a task of its own and fed by a bounded queue.
//!
//! The task makes its instance when first asked, enters it one call at a time, and replaces it after a fault or a set number of calls.
//! An instance that is due for replacement while attempts live in it goes on answering for those alone, beside its successor, until
//! the last has ended or the next replacement is due. The tasks end when the version is dropped: after a swap, when the last
//! call that began on it is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Provenance,
    engine::{Engine, Live, Reply, World},
    error::CallError,
    fault::Fault,
    lanes::Lanes,
    plugin::Meta,
    world::WorldName,
};

/// Jobs that may wait for one instance; callers beyond that wait to enqueue, in order.
const QUEUE: usize = 256;
/// A caller stays with the instance that knows its fleet or view unless another has so many fewer jobs.
const AFFINITY: usize = 8;

/// What is known of an admitted version.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
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

/// A version that serves.
pub(crate) struct Version<W: World> {
    pub(crate) meta: Arc<Meta>,
    pub(crate) facts: Facts,
    slots: Vec<Slot<W>>,
}

struct Slot<W: World> {
    queue: mpsc::Sender<Envelope<W>>,
    load: Arc<AtomicUsize>,
}

struct Envelope<W: World> {
    job: W::Job,
    /// After this nobody waits for the answer any more.
    deadline: Instant,
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
pub(crate) struct Surroundings {
    pub(crate) engine: Engine,
    pub(crate) tracker: TaskTracker,
    pub(crate) token: CancellationToken,
    pub(crate) lanes: Lanes,
}

impl<W: World> Version<W> {
    /// Starts the owners of the instances; these are made when first needed.
    pub(crate) fn start(around: &Surroundings, pre: &W::Pre, meta: &Arc<Meta>, facts: Facts) -> Version<W> {
        let slots = (0..meta.limits.instances.max(1)).map(|_| {
            let (queue, jobs) = mpsc::channel(QUEUE);
            let owner = Owner::<W> {
                engine: around.engine.clone(),
                pre: pre.clone(),
                meta: Arc::clone(meta),
                shared: Arc::default(),
                live: None,
                leaving: None,
                made: 0,
            };
            around
                .lanes
                .spawn(&around.tracker, owner.run(jobs, around.token.clone()));
            Slot {
                queue,
                load: Arc::default(),
            }
        });
        Version {
            meta: Arc::clone(meta),
            facts,
            slots: slots.collect(),
        }
    }

    /// The instance with the fewest jobs.
    pub(crate) fn least_loaded(&self) -> usize {
        let loads = self.slots.iter().enumerate();
        loads
            .min_by_key(|(_, slot)| slot.load.load(Relaxed))
            .map_or(0, |(index, _)| index)
    }

    /// `preferred`, unless that has much more to do than another.
    pub(crate) fn near(&self, preferred: usize) -> usize {
        let preferred = preferred % self.slots.len();
        let least = self.least_loaded();
        let load = |index: usize| self.slots[index].load.load(Relaxed);
        if load(preferred) <= load(least) + AFFINITY {
            preferred
        } else {
            least
        }
    }

    /// Asks one instance. Waits for its turn and for the answer, each no longer than the plugin's wall-clock limit.
    pub(crate) async fn ask<T>(
        &self,
        slot: usize,
        job: impl FnOnce(Reply<T>) -> W::Job,
    ) -> Result<T, CallError> {
        let slot = &self.slots[slot];
        let limit = self.meta.limits.wall_clock;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let envelope = Envelope {
            job: job(reply),
            deadline,
            _load: Load::of(&slot.load),
        };
        match timeout_at(deadline, slot.queue.send(envelope)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Stopped),
            Err(_elapsed) => return Err(self.busy()),
        }
        // The call itself is timed by the instance's owner; starting an instance first may take longer.
        match timeout(limit * 2 + Duration::from_secs(20), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_dropped)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(self.busy()),
        }
    }

    fn busy(&self) -> CallError {
        busy(&self.meta)
    }
}

fn busy(meta: &Meta) -> CallError {
    let message = format!(
        "no instance was free within {:?} (limits.wall-clock, limits.instances)",
        meta.limits.wall_clock
    );
    CallError::Busy {
        name: meta.name.clone(),
        message,
    }
}

/// Owns one instance at a time, and perhaps one that is leaving.
struct Owner<W: World> {
    engine: Engine,
    pre: W::Pre,
    meta: Arc<Meta>,
    shared: Arc<W::Shared>,
    live: Option<Live<W>>,
    leaving: Option<Live<W>>,
    made: u64,
}

/// Which instance a job goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Present,
    Leaving,
    Gone,
}

impl<W: World> Owner<W> {
    async fn run(mut self, mut jobs: mpsc::Receiver<Envelope<W>>, token: CancellationToken) {
        // At shutdown waiting jobs are dropped unanswered, which their callers read as `Stopped`.
        let work = async {
            while let Some(envelope) = jobs.recv().await {
                if Instant::now() > envelope.deadline {
                    W::refuse(envelope.job, busy(&self.meta));
                } else {
                    self.serve(envelope.job).await;
                }
            }
        };
        token.run_until_cancelled(work).await;
    }

    async fn serve(&mut self, job: W::Job) {
        let start = std::time::Instant::now();
        match self.place(&job) {
            Place::Gone => W::lost(job),
            Place::Leaving => self.serve_leaving(job).await,
            Place::Present => {
                if let Err(error) = self.ready().await {
                    W::refuse(job, error);
                    return;
                }
                self.serve_present(job).await;
            }
        }
        let time = start.elapsed();
        self.meta.stats.calls.inc();
        self.meta.stats.duration.observe(time.as_secs_f64());
        self.meta.vitals.took(time);
    }

    fn place(&self, job: &W::Job) -> Place {
        let Some(serial) = W::bound_to(job) else {
            return Place::Present;
        };
        let is = |live: &Option<Live<W>>| live.as_ref().is_some_and(|live| live.serial() == serial);
        if is(&self.live) {
            Place::Present
        } else if is(&self.leaving) {
            Place::Leaving
        } else {
            Place::Gone
        }
    }

    async fn serve_present(&mut self, job: W::Job) {
        // Taken out while it is entered: a call that is dropped half-way takes its instance with it.
        let Some(mut live) = self.live.take() else {
            return W::lost(job);
        };
        if W::run(&mut live, &self.shared, job).await.is_err() {
            return;
        }
        if !live.worn() {
            self.live = Some(live);
        } else if live.occupied() {
            self.leaving = Some(live);
        }
    }

    async fn serve_leaving(&mut self, job: W::Job) {
        let Some(mut live) = self.leaving.take() else {
            return W::lost(job);
        };
        if W::run(&mut live, &self.shared, job).await.is_ok()
            && W::tidy(&mut live, &self.shared).await.is_ok()
            && live.occupied()
        {
            self.leaving = Some(live);
        }
    }

    /// Makes sure that there is a present instance, configured and tidy.
    async fn ready(&mut self) -> Result<(), CallError> {
        if let Some(mut live) = self.live.take()
            && W::tidy(&mut live, &self.shared).await.is_ok()
        {
            self.live = Some(live);
            return Ok(());
        }
        self.made += 1;
        let mut live = Live::instantiate(&self.engine, &self.pre, &self.meta, self.made).await?;
        if let Err(errors) = live.configure(&self.meta.config.to_string()).await? {
            let first = errors.first().map(|it| it.message.clone()).unwrap_or_default();
            let message = format!("it now refuses the configuration that it took when admitted: {first}");
            return Err(self.meta.fault(&Fault::Malformed(message)));
        }
        self.live = Some(live);
        Ok(())
    }
}
