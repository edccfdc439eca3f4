//! The daemons' sessions with ZooKeeper, which learn late of the masters' registrations. ZooKeeper is on
//! another machine: no partition from the masters stops them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use transom_cluster::{Master, MastersView};
use transom_minicluster::simulated::Cluster;

/// The masters' address for the daemons.
pub(crate) const ADDRESS: &str = "zk://zookeeper:2181/mesos";
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
}

impl ZooKeeper {
    /// A new session of a daemon, in place of its last one.
    pub(crate) fn connect(&mut self, daemon: usize) -> watch::Receiver<Arc<MastersView>> {
        let session = Session::default();
        let views = session.views.subscribe();
        self.0.insert(daemon, session);
        views
    }

    pub(crate) fn step(&mut self, now: Duration, cluster: &Cluster, time: Instant, rng: &mut StdRng) {
        let registered = cluster.registered(time);
        for session in self.0.values_mut() {
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
