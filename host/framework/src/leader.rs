//! The leader of a framework, as this daemon knows it.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use transom_common::OrderedReceiver;
use transom_scheduler::SubscriptionStatus;
use transom_store::{Leadership, LeaseTerm};
use transom_web::ApiError;

use crate::ActorError;

/// The handles that only a leader has, such as that of its scheduler.
pub trait LeaderHandles: Send + Sync + 'static {
    /// The subscription of the framework with the cluster manager.
    fn subscription(&self) -> SubscriptionStatus;
}

/// Where the leader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderAddress {
    /// This daemon leads.
    Here,
    /// Another daemon leads; its host and port.
    Other(String),
}

/// Why no leader is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLeader {
    /// No election has been decided.
    #[error("Could not determine the current leader. Try again later.")]
    NotElected,
    /// No election is possible without the store.
    #[error("The state store is unavailable, so no daemon can lead. Nothing was changed. Try again later.")]
    StoreUnavailable,
}

/// 502, or 503 with `Retry-After` without the store.
impl From<NoLeader> for ApiError {
    fn from(error: NoLeader) -> Self {
        match error {
            NoLeader::NotElected => Self::new(http::StatusCode::BAD_GATEWAY, error.to_string()),
            NoLeader::StoreUnavailable => Self::unavailable(error.to_string()),
        }
    }
}

/// The current leader, and the handles `H` if this daemon leads. Clones share their state.
pub struct Leader<H>(Arc<State<H>>);

struct State<H> {
    /// Host and port at which other daemons reach this one.
    own_address: String,
    handles: ArcSwapOption<Installed<H>>,
    /// Notified when `handles` change.
    handles_changed: watch::Sender<()>,
    /// Requests wait for these changes in turn.
    handles_changes: OrderedReceiver<()>,
    election: OrderedReceiver<Leadership>,
}

/// The handles of a term.
struct Installed<H> {
    handles: Arc<H>,
    lease: Option<LeaseTerm>,
}

impl<H> Installed<H> {
    /// Not when the lease has ended, although the term has not noticed it, as right after a pause of the
    /// process: another daemon may lead, and know more.
    fn is_valid(&self) -> bool {
        self.lease
            .as_ref()
            .is_none_or(|lease| !lease.remaining().is_zero())
    }
}

impl<H> Leader<H> {
    /// `own_address`: host and port at which other daemons reach this one; `election`: the outcome of the
    /// election.
    pub fn new(own_address: impl Into<String>, election: watch::Receiver<Leadership>) -> Self {
        let handles_changed = watch::Sender::new(());
        Self(Arc::new(State {
            own_address: own_address.into(),
            handles: ArcSwapOption::empty(),
            handles_changes: OrderedReceiver::new(handles_changed.subscribe()),
            handles_changed,
            election: OrderedReceiver::new(election),
        }))
    }

    /// The handles; `None` unless this daemon leads.
    pub fn handles(&self) -> Option<Arc<H>> {
        let installed = self.0.handles.load();
        let valid = installed.as_ref().filter(|installed| installed.is_valid());
        valid.map(|installed| Arc::clone(&installed.handles))
    }

    /// The handles, for a request that only the leader can answer.
    ///
    /// # Errors
    /// [`ActorError::Stopped`] if this daemon has just stopped leading.
    pub fn require(&self) -> Result<Arc<H>, ActorError> {
        self.handles().ok_or(ActorError::Stopped)
    }

    /// Whether this daemon leads and its service runs.
    pub fn is_here(&self) -> bool {
        let installed = self.0.handles.load();
        installed.as_ref().is_some_and(|installed| installed.is_valid())
    }

    /// Host and port of the leader, if there is one.
    pub fn address(&self) -> Option<String> {
        match self.current() {
            Some(LeaderAddress::Here) => Some(self.0.own_address.clone()),
            Some(LeaderAddress::Other(address)) => Some(address),
            None => None,
        }
    }

    /// Publishes the handles of a term until its lease ends; without one, of a term that does not end by
    /// itself. They are withdrawn when the result is dropped.
    pub fn install(&self, handles: H, lease: Option<LeaseTerm>) -> InstalledHandles<H> {
        let handles = Arc::new(handles);
        self.set(Some(Installed { handles, lease }));
        InstalledHandles(self.clone())
    }

    /// Waits until `deadline` for a leader other than `except`, which could not be reached.
    ///
    /// # Errors
    /// [`NoLeader`] if there is none at the deadline.
    pub async fn wait(&self, deadline: Instant, except: Option<&str>) -> Result<LeaderAddress, NoLeader> {
        let (mut election, mut handles) = (self.0.election.clone(), self.0.handles_changes.clone());
        loop {
            election.borrow_and_update();
            handles.borrow_and_update();
            match self.current() {
                Some(LeaderAddress::Other(address)) if except == Some(address.as_str()) => {}
                Some(current) => return Ok(current),
                None => {}
            }
            let changed = async {
                tokio::select! {
                    biased;
                    changed = election.changed() => changed,
                    changed = handles.changed() => changed,
                }
            };
            if !matches!(timeout_at(deadline, changed).await, Ok(Ok(()))) {
                return Err(self.no_leader());
            }
        }
    }

    /// The reason why there is no leader. Meaningful only while there is none.
    pub fn no_leader(&self) -> NoLeader {
        match *self.0.election.borrow() {
            Leadership::StoreUnavailable => NoLeader::StoreUnavailable,
            _ => NoLeader::NotElected,
        }
    }

    fn current(&self) -> Option<LeaderAddress> {
        if self.is_here() {
            return Some(LeaderAddress::Here);
        }
        match &*self.0.election.borrow() {
            Leadership::Follower(address) => Some(LeaderAddress::Other(address.clone())),
            // An elected daemon counts as the leader only when its service runs.
            Leadership::Leader | Leadership::Unknown | Leadership::StoreUnavailable => None,
        }
    }

    fn set(&self, installed: Option<Installed<H>>) {
        self.0.handles.store(installed.map(Arc::new));
        self.0.handles_changed.send_replace(());
    }
}

impl<H: LeaderHandles> Leader<H> {
    /// The framework's subscription; `None` unless this daemon leads.
    pub fn subscription(&self) -> Option<SubscriptionStatus> {
        self.handles().map(|handles| handles.subscription())
    }
}

impl<H> Clone for Leader<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H> fmt::Debug for Leader<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

/// Published handles; dropping this withdraws them.
#[derive(Debug)]
#[must_use = "dropping it withdraws the handles"]
pub struct InstalledHandles<H>(Leader<H>);

impl<H> Drop for InstalledHandles<H> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use transom_store::Lease;

    use super::*;

    fn leader(leadership: Leadership) -> (watch::Sender<Leadership>, Leader<()>) {
        let (elected, election) = watch::channel(leadership);
        (elected, Leader::new("own:1", election))
    }

    fn other_leads(address: &str) -> Leadership {
        Leadership::Follower(address.to_owned())
    }

    fn in_ten_seconds() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn an_elected_daemon_is_the_leader_only_while_its_service_runs() {
        for (leadership, installed, expected) in [
            (other_leads("b:2"), false, Some("b:2")),
            (Leadership::Leader, false, None),
            (Leadership::Leader, true, Some("own:1")),
            (Leadership::Unknown, false, None),
            (Leadership::StoreUnavailable, false, None),
        ] {
            let (_elected, leader) = leader(leadership.clone());
            let handles = installed.then(|| leader.install((), None));
            assert_eq!(leader.address().as_deref(), expected, "{leadership:?}");
            assert_eq!(leader.is_here(), installed);
            drop(handles);
            assert!(leader.require().is_err() && !leader.is_here());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn handles_are_not_used_after_the_end_of_the_lease() {
        let ttl = Duration::from_secs(10);
        let lease = Lease {
            name: "leader".to_owned(),
            holder: "own:1".to_owned(),
            fencing: 1,
            ttl,
            expires: Instant::now() + ttl,
        };
        // The term has noticed nothing.
        let (_elected, leader) = leader(Leadership::Leader);
        let _installed = leader.install((), Some(lease.into()));
        assert!(leader.require().is_ok() && leader.is_here());
        tokio::time::advance(ttl).await;
        assert!(leader.require().is_err() && !leader.is_here());
        assert_eq!(leader.address(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_returns_the_next_leader_other_than_the_unreachable_one() {
        let (elected, leader) = leader(other_leads("b:2"));
        let waiting = leader.wait(in_ten_seconds(), None).await;
        assert_eq!(waiting, Ok(LeaderAddress::Other("b:2".to_owned())));
        let (waiting, ()) = tokio::join!(leader.wait(in_ten_seconds(), Some("b:2")), async {
            elected.send_replace(Leadership::Unknown);
            tokio::task::yield_now().await;
            elected.send_replace(other_leads("c:3"));
        });
        assert_eq!(waiting, Ok(LeaderAddress::Other("c:3".to_owned())));

        elected.send_replace(Leadership::Leader);
        let handles = std::cell::Cell::new(None);
        let (waiting, ()) = tokio::join!(leader.wait(in_ten_seconds(), None), async {
            tokio::task::yield_now().await;
            handles.set(Some(leader.install((), None)));
        });
        assert_eq!(waiting, Ok(LeaderAddress::Here));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_at_its_deadline_and_names_the_reason() {
        for (leadership, except, expected) in [
            (Leadership::Unknown, None, NoLeader::NotElected),
            (other_leads("b:2"), Some("b:2"), NoLeader::NotElected),
            (Leadership::StoreUnavailable, None, NoLeader::StoreUnavailable),
        ] {
            let (_elected, leader) = leader(leadership.clone());
            let began = Instant::now();
            assert_eq!(
                leader.wait(in_ten_seconds(), except).await,
                Err(expected),
                "{leadership:?}"
            );
            assert!(began.elapsed() >= Duration::from_secs(10));
        }
    }
}
