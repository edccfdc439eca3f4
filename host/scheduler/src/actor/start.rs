//! Putting the actor and its subscription together.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::{Client, v1};
use transom_store::Store;

use super::{Actor, QUEUE, Times};
use crate::agents::Agents;
use crate::arbiter::Arbiter;
use crate::handle::Shared;
use crate::ledger::{Identity, Ledger};
use crate::link::{self, Link};
use crate::matcher::MatcherHost;
use crate::metrics::Metrics;
use crate::offers::{Appetite, Pool};
use crate::queue::Queue;
use crate::retry::{Retry, Schedule};
use crate::{Connection, Events, Result, Scheduler};

/// Demands that may wait for the actor.
const COMMANDS: usize = 64;

/// What a scheduler is made of; [`crate::Config`] with everything decided.
pub(crate) struct Parts {
    pub(crate) cluster: Client,
    pub(crate) framework: v1::FrameworkInfo,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) prefix: String,
    pub(crate) matchers: Box<dyn MatcherHost>,
    pub(crate) times: Times,
}

impl Parts {
    pub(crate) async fn start(
        self,
        metrics: Metrics,
        token: CancellationToken,
    ) -> Result<(Scheduler, Events)> {
        let (actor, link, scheduler, events) = self.assemble(metrics).await?;
        let tracker = &scheduler.shared.tracker;
        tracker.spawn(link.run(token.clone()));
        tracker.spawn(actor.run(token));
        tracker.close();
        Ok((scheduler, events))
    }

    /// Everything in its place, nothing running.
    pub(super) async fn assemble(self, metrics: Metrics) -> Result<(Actor, Link, Scheduler, Events)> {
        let identity = Identity::new(Arc::clone(&self.store), &self.prefix);
        let ledger = Ledger::load(Arc::clone(&self.store), &self.prefix).await?;
        let framework_id = identity.read().await?.map(|(id, _)| id);
        let connection = Connection {
            framework_id,
            connected: false,
            master: None,
            since: Timestamp::now(),
        };
        let framework = link::complete(self.framework);
        let mut roles = framework.roles.clone();
        roles.push("*".to_owned());

        let (commands, commands_in) = mpsc::channel(COMMANDS);
        let (news, news_in) = mpsc::channel(QUEUE);
        let (events, receiver) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            commands,
            tasks: ArcSwap::new(Arc::clone(ledger.records())),
            waiting: ArcSwap::default(),
            connection: ArcSwap::from_pointee(connection.clone()),
            tracker: TaskTracker::new(),
        });
        let times = self.times;
        let link = Link {
            cluster: self.cluster,
            framework,
            identity,
            reconnect: times.reconnect,
            metrics: metrics.clone(),
            news,
        };
        let failures = metrics.matcher_failures.clone();
        let arbiter = Arbiter::new(self.matchers.agent_set(None), times.matcher, failures);
        let now = Instant::now();
        let mut actor = Actor {
            roles,
            metrics,
            shared: Arc::clone(&shared),
            commands: commands_in,
            news: news_in,
            events,
            outbox: VecDeque::new(),
            stalled_since: None,
            inbound: Vec::new(),
            ledger,
            queue: Queue::default(),
            waiting_changed: false,
            next_ready: None,
            pool: Pool::default(),
            appetite: Appetite::new(times.revive),
            agents: Agents::default(),
            arbiter,
            matchers: self.matchers,
            store_retry: Retry::new(times.store),
            kills: Schedule::new(times.kill),
            strays: BTreeMap::new(),
            doubts: Schedule::new(times.ask),
            next_reconcile: now,
            caller: None,
            connection,
            rng: StdRng::from_os_rng(),
            times,
        };
        actor.resume(now);
        Ok((actor, link, Scheduler { shared }, Events { receiver }))
    }
}

impl Actor {
    /// Takes up what the records say was begun before.
    fn resume(&mut self, now: Instant) {
        for record in self
            .ledger
            .records()
            .values()
            .filter(|record| !record.is_terminal())
        {
            self.agents.remembered(record, now);
            if record.killing {
                self.kills.at(record.id.clone(), now);
            }
        }
    }
}
