//! The instances of one version of a plugin, and the way of a question to one of them.
//!
//! Kept: a few, each owned by a task of its own and fed by a bounded queue, see `owner`. Or a fresh one for each call, which is the caller's own
//! and goes with it: nothing of one call is left for the next, and what becomes of it is nobody else's business.

mod owner;

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
    engine::{Engine, Live, Reply, World, span},
    error::CallError,
    fault::Fault,
    lanes::Lanes,
    limits::{Instances, MAX_INSTANCES},
    metrics::{Ending, is_busy},
    origin::Provenance,
    plugin::{Meta, Queued},
    world::WorldName,
};
use owner::Owner;

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

impl Facts {
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
    pub(crate) meta: Arc<Meta>,
    pub(crate) facts: Facts,
    maker: Maker<W>,
    crew: Crew<W>,
    around: Surroundings,
}

enum Crew<W: World> {
    Kept(Vec<Slot<W>>),
    /// A permit for each that may live at once.
    PerCall(Arc<Semaphore>),
}

struct Slot<W: World> {
    queue: mpsc::Sender<Envelope<W>>,
    load: Arc<AtomicUsize>,
}

struct Envelope<W: World> {
    job: W::Job,
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
pub(crate) struct Surroundings {
    pub(crate) engine: Engine,
    pub(crate) tracker: TaskTracker,
    pub(crate) token: CancellationToken,
    pub(crate) lanes: Lanes,
}

/// Makes instances of a version.
struct Maker<W: World> {
    engine: Engine,
    pre: W::Pre,
    meta: Arc<Meta>,
}

impl<W: World> Clone for Maker<W> {
    fn clone(&self) -> Self {
        Maker {
            engine: self.engine.clone(),
            pre: self.pre.clone(),
            meta: Arc::clone(&self.meta),
        }
    }
}

impl<W: World> Maker<W> {
    /// A configured instance. `serial` tells it from others of the same owner.
    async fn make(&self, serial: u64) -> Result<Live<W>, CallError> {
        let mut live = Live::instantiate(&self.engine, &self.pre, &self.meta, serial).await?;
        if let Err(errors) = live.configure().await? {
            let first = errors.first().map(|it| it.message.clone()).unwrap_or_default();
            let message = format!("it now refuses the configuration that it took when admitted: {first}");
            return Err(self.meta.fault(&Fault::Malformed(message)));
        }
        Ok(live)
    }
}

/// Where a caller's questions are answered.
pub(crate) enum Seat<W: World> {
    /// By one of the instances that are kept.
    Slot(usize),
    /// By an instance of the caller's own.
    Own(Box<Own<W>>),
}

/// An instance that is made with the first question, answers one after the other, and goes with its seat.
pub(crate) struct Own<W: World> {
    live: Option<Live<W>>,
    shared: Arc<W::Shared>,
    /// From before there is an instance until after it, so that there are never more than there are permits for.
    place: Option<OwnedSemaphorePermit>,
    /// Whether there was one: it is not made again.
    made: bool,
}

/// One call into an instance. None: that is of no use any more.
async fn enter<W: World>(mut live: Live<W>, shared: &Arc<W::Shared>, job: W::Job) -> Option<Live<W>> {
    let span = span(live.meta());
    live.begin();
    let done = W::run(&mut live, shared, job).instrument(span).await;
    done.is_ok().then_some(live)
}

impl<W: World> Version<W> {
    /// Starts the owners of the instances, where these are kept; they are made when first needed.
    pub(crate) fn start(around: &Surroundings, pre: &W::Pre, meta: &Arc<Meta>, facts: Facts) -> Version<W> {
        let maker = Maker {
            engine: around.engine.clone(),
            pre: pre.clone(),
            meta: Arc::clone(meta),
        };
        let crew = match meta.limits.instances {
            Instances::PerCall => Crew::PerCall(Arc::new(Semaphore::new(MAX_INSTANCES))),
            Instances::Kept(count) => {
                let slots = (0..count.max(1)).map(|_| {
                    let (queue, jobs) = mpsc::channel(QUEUE);
                    let owner = Owner::new(maker.clone());
                    around
                        .lanes
                        .spawn(&around.tracker, owner.run(jobs, around.token.clone()));
                    Slot {
                        queue,
                        load: Arc::default(),
                    }
                });
                Crew::Kept(slots.collect())
            }
        };
        Version {
            meta: Arc::clone(meta),
            facts,
            maker,
            crew,
            around: around.clone(),
        }
    }

    /// With whoever has the fewest jobs.
    pub(crate) fn least_loaded(&self) -> Seat<W> {
        match &self.crew {
            Crew::Kept(slots) => Seat::Slot(least_loaded(slots)),
            Crew::PerCall(_) => Seat::own(),
        }
    }

    /// With `preferred`, unless that has much more to do than another.
    pub(crate) fn near(&self, preferred: usize) -> Seat<W> {
        let Crew::Kept(slots) = &self.crew else {
            return Seat::own();
        };
        let preferred = preferred % slots.len();
        let least = least_loaded(slots);
        let load = |index: usize| slots[index].load.load(Relaxed);
        if load(preferred) <= load(least) + AFFINITY {
            Seat::Slot(preferred)
        } else {
            Seat::Slot(least)
        }
    }

    /// Asks an instance. Waits for it and for the answer, each no longer than the plugin's wall-clock limit.
    pub(crate) async fn ask<T>(
        &self,
        seat: &mut Seat<W>,
        job: impl FnOnce(Reply<T>) -> W::Job,
    ) -> Result<T, CallError> {
        let answer = match (seat, &self.crew) {
            (Seat::Slot(index), Crew::Kept(slots)) => self.ask_slot(&slots[*index % slots.len()], job).await,
            (Seat::Own(own), Crew::PerCall(permits)) => self.ask_own(own, permits, job).await,
            // A seat is of the version that gave it.
            _ => Err(CallError::Stopped),
        };
        if is_busy(&answer) {
            self.meta.stats.called(Ending::Busy);
        }
        answer
    }

    async fn ask_slot<T>(
        &self,
        slot: &Slot<W>,
        job: impl FnOnce(Reply<T>) -> W::Job,
    ) -> Result<T, CallError> {
        let limit = self.meta.limits.wall_clock;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let envelope = Envelope {
            job: job(reply),
            deadline,
            queued: self.meta.queued(),
            _load: Load::of(&slot.load),
        };
        match timeout_at(deadline, slot.queue.send(envelope)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(CallError::Stopped),
            Err(_elapsed) => return Err(busy(&self.meta)),
        }
        // The call itself is timed by the instance's owner; starting an instance first may take longer.
        match timeout(limit * 2 + Duration::from_secs(20), answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_dropped)) => Err(CallError::Stopped),
            Err(_elapsed) => Err(busy(&self.meta)),
        }
    }

    async fn ask_own<T>(
        &self,
        own: &mut Own<W>,
        permits: &Arc<Semaphore>,
        job: impl FnOnce(Reply<T>) -> W::Job,
    ) -> Result<T, CallError> {
        if own.place.is_none() {
            let permit = timeout(self.meta.limits.wall_clock, Arc::clone(permits).acquire_owned()).await;
            let permit = permit.map_err(|_elapsed| busy(&self.meta))?;
            own.place = Some(permit.map_err(|_closed| CallError::Stopped)?);
        }
        let (reply, answer) = oneshot::channel();
        let (job, maker, queued) = (job(reply), self.maker.clone(), self.meta.queued());
        // In a task, so that a guest that goes on and on does so elsewhere than its caller. What is dropped half-way takes its
        // instance with it.
        let mut own_now = std::mem::replace(own, Own::new());
        let (give_back, returned) = oneshot::channel();
        let token = self.around.token.clone();
        self.around.lanes.spawn(&self.around.tracker, async move {
            let asked = async {
                own_now.ask(&maker, queued, job).await;
                // The caller may have gone away.
                drop(give_back.send(own_now));
            };
            token.run_until_cancelled(asked).await;
        });
        let answer = answer.await.unwrap_or(Err(CallError::Stopped));
        if let Ok(own_again) = returned.await {
            *own = own_again;
        }
        answer
    }
}

impl<W: World> Own<W> {
    fn new() -> Own<W> {
        Own {
            live: None,
            shared: Arc::default(),
            place: None,
            made: false,
        }
    }

    async fn ask(&mut self, maker: &Maker<W>, queued: Queued, job: W::Job) {
        if !self.made {
            self.made = true;
            match maker.make(1).await {
                Ok(live) => self.live = Some(live),
                Err(error) => return W::refuse(job, error),
            }
        }
        queued.served();
        match self.live.take() {
            Some(live) => self.live = enter(live, &self.shared, job).await,
            None => W::lost(job),
        }
    }
}

impl<W: World> Seat<W> {
    fn own() -> Seat<W> {
        Seat::Own(Box::new(Own::new()))
    }
}

fn least_loaded<W: World>(slots: &[Slot<W>]) -> usize {
    let loads = slots.iter().enumerate();
    loads
        .min_by_key(|(_, slot)| slot.load.load(Relaxed))
        .map_or(0, |(index, _)| index)
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
