//! A daemon: its services, and a program around the real election, which writes while it leads and
//! shows its term.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use transom_store::{Election, Error, Expect, Leadership, LeaseTerm, Store, Term};

use crate::services::{self, Running, World};

/// The lease of the daemons.
pub(crate) const LEASE: &str = "simulation/leader";
/// Its time to live: the default of `store.lease_seconds`.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// How often a leader writes, in virtual time as everything here.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// The number of writes after which a leader gives up leadership.
const WRITES_PER_TERM: u32 = 2_000;

/// What the world sees of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// While it leads.
    pub(crate) term: Option<LeaseTerm>,
    pub(crate) leadership: Option<Leadership>,
    /// Whether it lost its last term, rather than gave it up.
    pub(crate) has_lost: bool,
    /// Keys of acknowledged writes that the world has not seen yet.
    pub(crate) acknowledged: Vec<String>,
    pub(crate) services: Running,
}

/// Shared by the daemon and the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(Arc<Mutex<Observed>>);

impl Board {
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&mut Observed) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a daemon, without end. `name` is unique among all processes.
pub(crate) async fn run(world: World, address: String, name: String, board: Board) {
    let store = Arc::clone(&world.store);
    tokio::join!(
        services::run(&world, &board),
        campaign(store, address, name, &board)
    );
}

/// Campaigns, and writes while it leads.
async fn campaign(store: Arc<dyn Store>, address: String, name: String, board: &Board) {
    let mut election = Election::new(store, LEASE, &address, TTL);
    let mut leadership = election.leadership();
    let reported = board.clone();
    tokio::spawn(async move {
        loop {
            let current = leadership.borrow_and_update().clone();
            reported.with(|observed| observed.leadership = Some(current));
            if leadership.changed().await.is_err() {
                return;
            }
        }
    });
    let mut written = 0_u64;
    loop {
        let term = election.campaign().await;
        board.with(|observed| {
            observed.term = Some(term.lease_term());
            observed.has_lost = true;
        });
        let stop = term.ended().child_token();
        write(&term, &name, &mut written, board, &stop).await;
        board.with(|observed| observed.term = None);
        term.resign().await;
    }
}

/// Writes until the term ends, or until the daemon gives it up.
async fn write(term: &Term, name: &str, written: &mut u64, board: &Board, stop: &CancellationToken) {
    let (view, remaining) = (term.fenced_store(), term.lease_term());
    for number in 1..=WRITES_PER_TERM {
        // Virtual time.
        if stop.run_until_cancelled(sleep(WRITE_INTERVAL)).await.is_none() {
            break;
        }
        if remaining.remaining().is_zero() {
            continue;
        }
        *written += 1;
        let key = format!("writes/{name}/{written}");
        match view.put(&key, Bytes::new(), Expect::Absent).await {
            Ok(_) => board.with(|observed| observed.acknowledged.push(key)),
            Err(Error::Fenced { .. }) => break,
            Err(_) => {}
        }
        board.with(|observed| observed.has_lost = number < WRITES_PER_TERM);
    }
    stop.cancel();
}
