//! The daemons' sessions with ZooKeeper, which learn late of the masters' registrations, and not while a
//! daemon cannot reach ZooKeeper. It is on another machine than the masters: no partition from them
//! stops it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use transom_cluster::{Master, MastersView};
use transom_minicluster::simulated::Cluster;

use crate::faults::{Faults, Peer};

/// The masters' address for the daemons.
pub(crate) const ADDRESS: &str = "zk://zookeeper:2181/mesos";
/// As in `transom-cluster`.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// The most that a session lags, in milliseconds.
const MAX_LAG: u64 = 3_000;

/// All sessions, by daemon.
#[derive(Debug, Default)]
pub(crate) struct ZooKeeper(BTreeMap<usize, Session>);

#[derive(Debug, Default)]
struct Session {
    views: watch::Sender<Arc<MastersView>>,
    registered: Vec<(u64, SocketAddr)>,
    /// Views on their way, with the times at which they arrive.
    coming: VecDeque<(Duration, Arc<MastersView>)>,
    /// Since when no bytes pass.
    cut_off: Option<Duration>,
}

impl ZooKeeper {
    /// A new session of a daemon, in place of its last one.
    pub(crate) fn connect(&mut self, daemon: usize) -> watch::Receiver<Arc<MastersView>> {
        let session = Session::default();
        let views = session.views.subscribe();
        self.0.insert(daemon, session);
        views
    }

    pub(crate) fn step(
        &mut self,
        now: Duration,
        cluster: &Cluster,
        time: Instant,
        faults: &Faults,
        rng: &mut StdRng,
    ) {
        let registered = cluster.registered(time);
        for (daemon, session) in &mut self.0 {
            if !faults.connects(Peer::ZooKeeper, *daemon) {
                session.stay_cut_off(now);
                continue;
            }
            if session.cut_off.take().is_some() {
                // A new session reads everything.
                session.registered.clear();
            }
            if session.registered != registered {
                session.registered.clone_from(&registered);
                let arrives = now + Duration::from_millis(rng.random_range(0..=MAX_LAG));
                let last = session.coming.back().map_or(arrives, |(at, _)| *at);
                session.coming.push_back((last.max(arrives), view(&registered)));
            }
            while let Some((_, view)) = session.coming.pop_front_if(|(at, _)| *at <= now) {
                session.views.send_replace(view);
            }
        }
    }
}

impl Session {
    /// As the real detector, it keeps the masters, and says why they may be outdated, when it has lost
    /// its session.
    fn stay_cut_off(&mut self, now: Duration) {
        self.coming.clear();
        let since = *self.cut_off.get_or_insert(now);
        if since + SESSION_TIMEOUT == now {
            self.views.send_modify(|view| {
                Arc::make_mut(view).problem = Some("the session has ended".to_owned());
            });
        }
    }
}

fn view(registered: &[(u64, SocketAddr)]) -> Arc<MastersView> {
    let masters = registered.iter().map(|(number, address)| {
        Arc::new(Master {
            node: format!("json.info_{number:010}"),
            id: address.to_string(),
            hostname: None,
            ip: Some(address.ip()),
            port: address.port(),
            version: None,
        })
    });
    let problem = registered
        .is_empty()
        .then(|| "no master is registered".to_owned());
    Arc::new(MastersView {
        masters: masters.collect(),
        has_leader: !registered.is_empty(),
        problem,
    })
}
