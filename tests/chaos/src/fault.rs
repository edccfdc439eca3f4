//! The kinds of faults, and the random choice of a fault.

use std::fmt;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

/// A fault: a kind with its parameters. A kind may leave a parameter unused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Duration of the fault.
    pub(crate) time: Duration,
    /// Index of the target: of an agent, or of the first task.
    pub(crate) pick: usize,
    /// Number of tasks or updates.
    pub(crate) count: usize,
}

/// The target of a fault; a step disturbs each target once.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum FaultTarget {
    Daemon,
    Tasks,
    Store,
    Agent,
    Master,
}

/// A fault without its parameters, as it is counted and chosen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// SIGKILL, and a start after the duration.
    KillDaemon,
    /// SIGTERM, and a start after the duration, which begins when the daemon has ended.
    StopDaemon,
    /// SIGSTOP, and SIGCONT after the duration.
    FreezeDaemon,
    /// SIGKILL of running tasks.
    KillTasks,
    /// SIGSTOP of Redis, or of the leading ZooKeeper server, and SIGCONT after the duration.
    FreezeStore,
    /// SIGKILL of Redis, or of the leading ZooKeeper server, and a start after the duration.
    KillStore,
    /// An agent and its tasks die; it starts again after the duration.
    KillAgent,
    /// An agent dies and its tasks continue to run; it starts again after the duration.
    KillAgentKeepTasks,
    PauseAgent,
    PartitionAgent,
    /// The first attempt of agents' updates fails.
    LoseUpdates,
    /// The event stream ends in the middle of a record.
    CutStream,
    /// The master loses its state, and is down for the duration.
    RestartMaster,
    /// The same as a restart, but then the other master leads.
    FailOver,
    /// An operator removes the framework together with its tasks.
    RemoveFramework,
    /// Responses and events of the cluster are delayed for the duration.
    Delay,
    RescindOffers,
}

/// Every kind: its target, its relative frequency, its duration in milliseconds.
const KINDS: &[(Kind, FaultTarget, u32, std::ops::Range<u64>)] = &[
    (Kind::KillDaemon, FaultTarget::Daemon, 16, 0..1_500),
    (Kind::StopDaemon, FaultTarget::Daemon, 4, 0..1_000),
    (Kind::FreezeDaemon, FaultTarget::Daemon, 4, 200..4_000),
    (Kind::KillTasks, FaultTarget::Tasks, 6, 0..1),
    (Kind::FreezeStore, FaultTarget::Store, 6, 200..8_000),
    (Kind::KillStore, FaultTarget::Store, 6, 0..4_000),
    (Kind::KillAgent, FaultTarget::Agent, 3, 0..9_000),
    (Kind::KillAgentKeepTasks, FaultTarget::Agent, 4, 0..9_000),
    (Kind::PauseAgent, FaultTarget::Agent, 3, 200..9_000),
    (Kind::PartitionAgent, FaultTarget::Agent, 4, 200..9_000),
    (Kind::LoseUpdates, FaultTarget::Master, 3, 0..3_000),
    (Kind::CutStream, FaultTarget::Master, 5, 0..1),
    (Kind::RestartMaster, FaultTarget::Master, 3, 0..3_000),
    (Kind::FailOver, FaultTarget::Master, 3, 0..3_000),
    (Kind::RemoveFramework, FaultTarget::Master, 1, 0..1),
    (Kind::Delay, FaultTarget::Master, 3, 500..5_000),
    (Kind::RescindOffers, FaultTarget::Master, 3, 0..1),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillDaemon => "daemon killed",
            Self::StopDaemon => "daemon stopped",
            Self::FreezeDaemon => "daemon frozen",
            Self::KillTasks => "tasks killed",
            Self::FreezeStore => "store frozen",
            Self::KillStore => "store killed",
            Self::KillAgent => "agent killed",
            Self::KillAgentKeepTasks => "agent killed without its tasks",
            Self::PauseAgent => "agent paused",
            Self::PartitionAgent => "agent partitioned",
            Self::LoseUpdates => "updates lost",
            Self::CutStream => "stream cut",
            Self::RestartMaster => "master restarted",
            Self::FailOver => "master failed over",
            Self::RemoveFramework => "framework removed",
            Self::Delay => "cluster delayed",
            Self::RescindOffers => "offers rescinded",
        }
    }
}

impl Fault {
    /// SIGKILL of the daemon, and an immediate restart.
    pub(crate) fn crash() -> Self {
        Self {
            kind: Kind::KillDaemon,
            time: Duration::ZERO,
            pick: 0,
            count: 0,
        }
    }

    pub(crate) fn target(&self) -> FaultTarget {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self.kind)
            .map_or(FaultTarget::Daemon, |(_, target, ..)| *target)
    }

    /// The requests to the cluster's fault page at the begin and at the end; `None` for faults
    /// outside the cluster.
    pub(crate) fn calls(&self, framework: &str) -> Option<(Value, Option<Value>)> {
        let agent = format!("S{}", self.pick % 3);
        let ms = self.time.as_millis() as u64;
        let on_agent = |begin: &str, end: &str| {
            (
                json!({"fault": begin, "agent": agent}),
                Some(json!({"fault": end, "agent": agent})),
            )
        };
        let master = |fault: &str| json!({"fault": fault, "down_ms": ms / 2, "recovery_ms": ms / 2});
        let calls = match self.kind {
            Kind::KillAgent => on_agent("kill-agent", "start-agent"),
            Kind::KillAgentKeepTasks => {
                let (mut begin, end) = on_agent("kill-agent", "start-agent");
                begin["keep_tasks"] = json!(true);
                (begin, end)
            }
            Kind::PauseAgent => on_agent("pause-agent", "resume-agent"),
            Kind::PartitionAgent => on_agent("partition-agent", "heal-agent"),
            Kind::LoseUpdates => (
                json!({"fault": "lose-updates", "count": self.count}),
                Some(json!({"fault": "lose-updates", "count": 0})),
            ),
            Kind::CutStream => (json!({"fault": "cut-stream", "framework": framework}), None),
            Kind::RestartMaster => (master("restart-master"), None),
            Kind::FailOver => (master("fail-over"), None),
            Kind::RemoveFramework => (json!({"fault": "remove-framework", "framework": framework}), None),
            Kind::Delay => (
                json!({"fault": "delay", "ms": 20 * self.count}),
                Some(json!({"fault": "delay", "ms": 0})),
            ),
            Kind::RescindOffers => (json!({"fault": "rescind-offers"}), None),
            Kind::KillDaemon
            | Kind::StopDaemon
            | Kind::FreezeDaemon
            | Kind::KillTasks
            | Kind::FreezeStore
            | Kind::KillStore => return None,
        };
        Some(calls)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.kind {
            Kind::KillTasks => write!(f, " ({} from {})", self.count, self.pick)?,
            Kind::LoseUpdates => write!(f, " ({})", self.count)?,
            Kind::Delay => write!(f, " ({} ms)", 20 * self.count)?,
            _ if self.target() == FaultTarget::Agent => write!(f, " (S{})", self.pick % 3)?,
            _ => {}
        }
        match self.time.as_millis() {
            0 => Ok(()),
            ms => write!(f, " for {ms} ms"),
        }
    }
}

/// The kinds of faults that are possible in this run.
#[derive(Clone, Debug)]
pub(crate) struct FaultMenu(Vec<(Kind, u32, std::ops::Range<u64>)>);

impl FaultMenu {
    /// The kinds of faults that have a target among `targets`.
    pub(crate) fn of(targets: &[FaultTarget]) -> Self {
        let there = KINDS.iter().filter(|(_, target, ..)| targets.contains(target));
        Self(
            there
                .map(|(kind, _, weight, times)| (*kind, *weight, times.clone()))
                .collect(),
        )
    }

    /// Chooses a fault with its parameters.
    pub(crate) fn pick(&self, random: &mut StdRng) -> Fault {
        let picked = self.0.choose_weighted(random, |(_, weight, _)| *weight);
        let (kind, times) = picked.map_or((Kind::KillDaemon, 0..1), |(kind, _, times)| {
            (*kind, times.clone())
        });
        Fault {
            kind,
            time: Duration::from_millis(random.random_range(times)),
            pick: random.random_range(0..1_000),
            count: random.random_range(1..=10),
        }
    }
}
