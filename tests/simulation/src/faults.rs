//! What happens to the daemons, the store and the cluster, and when. Every choice is made with the
//! seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use crate::store::Fate;

/// The mean time between two faults.
const MEAN_INTERVAL: Duration = Duration::from_mins(1);
/// After the first part of each period there are no faults, so that everything can settle.
const PERIOD: Duration = Duration::from_hours(1);
const STORMY: Duration = Duration::from_mins(40);
/// After this part of each period clients begin nothing new, and after the next everything is idle.
const BUSY: Duration = Duration::from_mins(50);
const IDLE: Duration = Duration::from_mins(57);

/// How long after a slow time calls may still be delayed: a request and its answer.
const MAX_LATE: Duration = Duration::from_secs(20);

/// Whom a daemon talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Store,
    Master,
    /// The other daemons, and clients.
    Daemons,
    ZooKeeper,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The store answers nobody.
    Outage,
    /// No bytes pass between a daemon and the peer.
    Partition(Peer),
    /// Calls, and answers, take up to the time to live of a lease.
    Slow(Peer),
    /// Calls, or their answers, get lost.
    Loss(Peer),
    /// A process does not run, as when its machine is suspended.
    Pause,
    /// A process is killed, and started again later.
    Kill,
    /// The master is killed, and starts again.
    MasterRestart,
    /// The leading master is killed, another one leads, and the killed one starts again.
    MasterFailover,
    /// All connections of a daemon to the master are cut.
    Cut,
    /// Updates of agents get lost.
    LostUpdates,
    /// An agent is not connected to the master; its tasks run.
    AgentAway,
    /// The machine of an agent is reset; its tasks end.
    AgentReset,
    /// The clock of a daemon's machine is wrong by up to an hour.
    WrongClock,
    /// The plugins of a daemon take seconds; some calls reach their limit.
    SlowPlugins,
    /// Every second call of a plugin traps.
    TrappingPlugins,
    /// Other versions of a daemon's plugins serve from now on.
    SwappedPlugins,
}

pub(crate) const KINDS: &[Kind] = &[
    Kind::Outage,
    Kind::Partition(Peer::Store),
    Kind::Slow(Peer::Store),
    Kind::Loss(Peer::Store),
    Kind::Pause,
    Kind::Kill,
    Kind::Partition(Peer::Master),
    Kind::Slow(Peer::Master),
    Kind::Loss(Peer::Master),
    Kind::MasterRestart,
    Kind::MasterFailover,
    Kind::Cut,
    Kind::LostUpdates,
    Kind::AgentAway,
    Kind::AgentReset,
    Kind::Partition(Peer::Daemons),
    Kind::Slow(Peer::Daemons),
    Kind::Loss(Peer::Daemons),
    Kind::WrongClock,
    Kind::SlowPlugins,
    Kind::TrappingPlugins,
    Kind::SwappedPlugins,
    Kind::Partition(Peer::ZooKeeper),
];

impl Kind {
    fn is_of_agent(self) -> bool {
        matches!(self, Self::AgentAway | Self::AgentReset)
    }

    fn is_of_daemon(self) -> bool {
        matches!(
            self,
            Self::Partition(_)
                | Self::Pause
                | Self::Kill
                | Self::Cut
                | Self::WrongClock
                | Self::SlowPlugins
                | Self::TrappingPlugins
                | Self::SwappedPlugins
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outage => "outage of the store",
            Self::Partition(Peer::Store) => "partition from the store",
            Self::Slow(Peer::Store) => "slow store",
            Self::Loss(Peer::Store) => "lost calls of the store",
            Self::Pause => "paused process",
            Self::Kill => "killed process",
            Self::Partition(Peer::Master) => "partition from the master",
            Self::Slow(Peer::Master) => "slow master",
            Self::Loss(Peer::Master) => "lost calls of the master",
            Self::MasterRestart => "restarted master",
            Self::MasterFailover => "failed-over master",
            Self::Cut => "cut connections to the master",
            Self::LostUpdates => "lost updates",
            Self::AgentAway => "disconnected agent",
            Self::AgentReset => "reset agent",
            Self::Partition(Peer::Daemons) => "partition from daemons and clients",
            Self::Slow(Peer::Daemons) => "slow requests",
            Self::Loss(Peer::Daemons) => "lost requests",
            Self::WrongClock => "wrong clock",
            Self::SlowPlugins => "slow plugins",
            Self::TrappingPlugins => "trapping plugins",
            Self::SwappedPlugins => "swapped plugins",
            Self::Partition(Peer::ZooKeeper) => "partition from ZooKeeper",
            Self::Slow(Peer::ZooKeeper) => "slow ZooKeeper",
            Self::Loss(Peer::ZooKeeper) => "lost calls of ZooKeeper",
        })
    }
}

/// A fault that is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The number of the daemon or the agent that it concerns, if it concerns one.
    pub(crate) target: usize,
    pub(crate) until: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            kind if kind.is_of_daemon() => write!(f, "{kind}: daemon-{}", self.target),
            kind if kind.is_of_agent() => write!(f, "{kind}: agent-{}", self.target),
            kind => kind.fmt(f),
        }
    }
}

/// All active faults, and the time of the next one.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) active: Vec<Fault>,
    pub(crate) counts: BTreeMap<String, u64>,
    next: Duration,
    without: BTreeSet<String>,
    /// When the store was last slow.
    slow_until: Option<Duration>,
}

impl Faults {
    /// `without`: the names of faults that do not happen. An embedded store is slow, and paused and
    /// killed with its daemon; nothing is between them.
    pub(crate) fn new(mut without: BTreeSet<String>, embedded: bool) -> Self {
        let between = [
            Kind::Outage,
            Kind::Partition(Peer::Store),
            Kind::Loss(Peer::Store),
        ];
        without.extend(between.iter().filter(|_| embedded).map(ToString::to_string));
        Self {
            without,
            active: Vec::new(),
            counts: BTreeMap::new(),
            next: MEAN_INTERVAL,
            slow_until: None,
        }
    }

    /// Ends faults whose time is over and starts those that are due. Returns those that ended, and
    /// those that started.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        (daemons, agents): (usize, usize),
        rng: &mut StdRng,
    ) -> (Vec<Fault>, Vec<Fault>) {
        let ended: Vec<Fault> = self.active.extract_if(.., |fault| fault.until <= now).collect();
        let mut started = Vec::new();
        while self.next <= now {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            let targets = if kind.is_of_agent() { agents } else { daemons };
            let target = rng.random_range(0..targets);
            // Short ones are frequent, and some last for a minute.
            let lasts = Duration::from_millis(
                rng.random_range(100..60_000_u64)
                    .min(rng.random_range(100..60_000)),
            );
            let fault = Fault {
                kind,
                target,
                until: now + lasts,
            };
            let is_active = self.active.iter().any(|other| conflict(other, &fault));
            if !is_active && !self.without.contains(&kind.to_string()) {
                self.active.push(fault);
                started.push(fault);
                if kind == Kind::Slow(Peer::Store) {
                    self.slow_until = self.slow_until.max(Some(fault.until));
                }
                *self.counts.entry(kind.to_string()).or_default() += 1;
            }
            self.next += MEAN_INTERVAL.mul_f64(rng.random_range(0.02..2.0));
            let period = self.next.as_secs() / PERIOD.as_secs();
            let begin = PERIOD * u32::try_from(period).unwrap_or(u32::MAX);
            if self.next >= begin + STORMY {
                self.next = begin + PERIOD;
            }
        }
        (ended, started)
    }

    pub(crate) fn has(&self, kind: Kind, target: Option<usize>) -> bool {
        self.active
            .iter()
            .any(|fault| fault.kind == kind && target.is_none_or(|target| target == fault.target))
    }

    /// Whether bytes pass between a daemon and a peer.
    pub(crate) fn connects(&self, peer: Peer, daemon: usize) -> bool {
        !(self.has(Kind::Partition(peer), Some(daemon))
            || peer == Peer::Store && self.has(Kind::Outage, None))
    }

    /// Whether calls of a daemon to the store get lost or are slow. Slow ones, in their order, also
    /// delay those after the end of the fault.
    pub(crate) fn disturbs_store(&self, daemon: usize, now: Duration) -> bool {
        !self.connects(Peer::Store, daemon)
            || self.has(Kind::Loss(Peer::Store), None)
            || self.slow_until.is_some_and(|until| now <= until + MAX_LATE)
    }

    /// Whether it is the time in which faults happen.
    pub(crate) fn is_stormy(now: Duration) -> bool {
        now.as_secs() % PERIOD.as_secs() < STORMY.as_secs()
    }

    /// Whether clients begin anything new: not at the end of each hour, when everything becomes idle.
    pub(crate) fn is_busy(now: Duration) -> bool {
        now.as_secs() % PERIOD.as_secs() < BUSY.as_secs()
    }

    /// Whether everything should be idle.
    pub(crate) fn is_idle(now: Duration) -> bool {
        now.as_secs() % PERIOD.as_secs() >= IDLE.as_secs()
    }

    /// What becomes of a request to a daemon. `from`: the daemon that forwards it.
    pub(crate) fn fate_between(&self, from: Option<usize>, to: usize, rng: &mut StdRng) -> Fate {
        let mut fate = self.fate(Peer::Daemons, to, rng);
        if from.is_some_and(|from| !self.connects(Peer::Daemons, from)) {
            (fate.request, fate.answer) = (None, None);
        }
        fate
    }

    /// What becomes of a call that a daemon makes now.
    pub(crate) fn fate(&self, peer: Peer, daemon: usize, rng: &mut StdRng) -> Fate {
        let most = if self.has(Kind::Slow(peer), None) {
            10_000
        } else {
            20
        };
        let mut delay = || Some(Duration::from_millis(rng.random_range(0..most)));
        let mut fate = Fate {
            request: delay(),
            answer: delay(),
        };
        let lost = match (self.connects(peer, daemon), self.has(Kind::Loss(peer), None)) {
            (false, _) => 1.0,
            (_, true) => 0.4,
            _ => 0.0,
        };
        if rng.random_bool(lost) {
            // Half of the lost calls are carried out.
            fate.answer = None;
            fate.request = fate.request.filter(|_| rng.random_bool(0.5));
        }
        fate
    }
}

/// Whether two faults cannot be active at the same time.
fn conflict(one: &Fault, other: &Fault) -> bool {
    let stops = |kind| matches!(kind, Kind::Pause | Kind::Kill);
    let kills_master = |kind| matches!(kind, Kind::MasterRestart | Kind::MasterFailover);
    let same_target = one.target == other.target;
    (stops(one.kind) && stops(other.kind) && same_target)
        || (one.kind.is_of_agent() && other.kind.is_of_agent() && same_target)
        || (kills_master(one.kind) && kills_master(other.kind))
}
