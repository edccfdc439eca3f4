//! What happens to the daemons and the store, and when. Every choice is made with the seed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use crate::store::Fate;

/// The mean time between two faults.
const MEAN_INTERVAL: Duration = Duration::from_mins(1);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The store answers nobody.
    Outage,
    /// The store answers one daemon no longer.
    Partition,
    /// Calls, and answers, take up to the time to live of a lease.
    Slow,
    /// Calls, or their answers, get lost.
    Loss,
    /// A process does not run, as when its machine is suspended.
    Pause,
    /// A process is killed, and started again later.
    Kill,
}

const KINDS: &[Kind] = &[
    Kind::Outage,
    Kind::Partition,
    Kind::Slow,
    Kind::Loss,
    Kind::Pause,
    Kind::Kill,
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outage => "outage of the store",
            Self::Partition => "partition from the store",
            Self::Slow => "slow store",
            Self::Loss => "lost calls",
            Self::Pause => "paused process",
            Self::Kill => "killed process",
        })
    }
}

/// A fault that is active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The daemon that it concerns, if it concerns one.
    pub(crate) daemon: usize,
    pub(crate) until: Duration,
}

/// All active faults, and the time of the next one.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) active: Vec<Fault>,
    pub(crate) counts: BTreeMap<String, u64>,
    next: Duration,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self {
            active: Vec::new(),
            counts: BTreeMap::new(),
            next: MEAN_INTERVAL,
        }
    }

    /// Ends faults whose time is over and starts those that are due. Returns those that ended, and
    /// those that started.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        daemons: usize,
        rng: &mut StdRng,
    ) -> (Vec<Fault>, Vec<Fault>) {
        let ended: Vec<Fault> = self.active.extract_if(.., |fault| fault.until <= now).collect();
        let mut started = Vec::new();
        while self.next <= now {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            let daemon = rng.random_range(0..daemons);
            // Short ones are frequent, and some last for a minute.
            let lasts = Duration::from_millis(
                rng.random_range(100..60_000_u64)
                    .min(rng.random_range(100..60_000)),
            );
            let fault = Fault {
                kind,
                daemon,
                until: now + lasts,
            };
            let affects_process = |fault: &Fault| matches!(fault.kind, Kind::Pause | Kind::Kill);
            let is_stopped = |one: &Fault| affects_process(one) && one.daemon == daemon;
            if !(affects_process(&fault) && self.active.iter().any(is_stopped)) {
                self.active.push(fault);
                started.push(fault);
                *self.counts.entry(kind.to_string()).or_default() += 1;
            }
            self.next += MEAN_INTERVAL.mul_f64(rng.random_range(0.02..2.0));
        }
        (ended, started)
    }

    fn has(&self, kind: Kind, daemon: Option<usize>) -> bool {
        self.active
            .iter()
            .any(|fault| fault.kind == kind && daemon.is_none_or(|daemon| daemon == fault.daemon))
    }

    /// What becomes of a call that a daemon makes now.
    pub(crate) fn fate(&self, daemon: usize, rng: &mut StdRng) -> Fate {
        let most = if self.has(Kind::Slow, None) { 10_000 } else { 20 };
        let mut delay = || Some(Duration::from_millis(rng.random_range(0..most)));
        let mut fate = Fate {
            request: delay(),
            answer: delay(),
        };
        let is_unreachable = self.has(Kind::Outage, None) || self.has(Kind::Partition, Some(daemon));
        let lost = match (is_unreachable, self.has(Kind::Loss, None)) {
            (true, _) => 1.0,
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
