//! Detects the leading master: a task that follows the masters' registrations in ZooKeeper and
//! publishes them.
//!
//! Masters register below a path, each with a number; the lowest number leads. The task keeps one
//! session with ZooKeeper, restored after a loss or an expiry, and watches the path, so that it
//! sees a change as soon as ZooKeeper reports it. While ZooKeeper is unavailable the last known
//! masters remain: they lead on without it, and a master that does not lead redirects. Nothing is
//! written to ZooKeeper.
//!
//! All other code reads the last [`View`] or waits for the next one, and never for ZooKeeper
//! itself.

mod protobuf;
mod registration;
mod session;

pub use registration::Master;

use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_common::{OrderedReceiver, ZooKeeperPath};
use url::Url;

/// The known masters.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// The masters with a valid registration, in the order of their numbers.
    pub masters: Vec<Arc<Master>>,
    /// Whether the first of them leads: not when an earlier registration is invalid.
    pub has_leader: bool,
    /// Why this may be outdated, or why no master is known.
    pub problem: Option<String>,
}

impl View {
    pub(crate) fn leader(&self) -> Option<&Arc<Master>> {
        self.masters.first().filter(|_| self.has_leader)
    }
}

/// The task and its last view. Cloning is cheap; the task ends when it is closed or the last clone
/// is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    zookeeper: Arc<ZooKeeperPath>,
    views: OrderedReceiver<Arc<View>>,
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    token: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Detector {
    /// Starts the task on the current runtime; `timeout` is the session's.
    pub(crate) fn start(zookeeper: ZooKeeperPath, timeout: Duration) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| Error::Config {
            what: format!("{zookeeper} can only be followed within a Tokio runtime"),
        })?;
        let zookeeper = Arc::new(zookeeper);
        let (views, token) = (watch::Sender::default(), CancellationToken::new());
        let receiver = views.subscribe();
        let task = runtime.spawn(session::maintain(
            Arc::clone(&zookeeper),
            timeout,
            views,
            token.clone(),
        ));
        Ok(Self {
            zookeeper,
            views: OrderedReceiver::new(receiver),
            owner: Arc::new(Owner {
                token,
                task: Mutex::new(Some(task)),
            }),
        })
    }

    /// Without a task: `views` come from elsewhere, and continue after [`Self::close`].
    pub(crate) fn detected(zookeeper: ZooKeeperPath, views: watch::Receiver<Arc<View>>) -> Self {
        Self {
            zookeeper: Arc::new(zookeeper),
            views: OrderedReceiver::new(views),
            owner: Arc::new(Owner {
                token: CancellationToken::new(),
                task: Mutex::default(),
            }),
        }
    }

    /// Stops the task and waits until it has ended.
    pub(crate) async fn close(&self) {
        self.owner.token.cancel();
        let task = self
            .owner
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "panic while following the masters in ZooKeeper");
        }
    }

    /// The present view.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }

    /// The view as soon as any master is known, or the reason why none is after `limit`.
    pub(crate) async fn masters(&self, limit: Duration) -> Result<Arc<View>> {
        let mut views = self.views.clone();
        let any_master = async {
            loop {
                let view = Arc::clone(&views.borrow_and_update());
                if !view.masters.is_empty() {
                    return Some(view);
                }
                views.changed().await.ok()?;
            }
        };
        // Otherwise the time has passed, or the detector is closed.
        if let Ok(Some(view)) = tokio::time::timeout(limit, any_master).await {
            return Ok(view);
        }
        Err(Error::NoLeader {
            zookeeper: self.zookeeper.to_string(),
            why: self
                .view()
                .problem
                .clone()
                .unwrap_or_else(|| "ZooKeeper has not answered yet".to_owned()),
        })
    }

    /// Later changes of the registered masters.
    pub(crate) fn registrations(&self) -> Registrations {
        let mut views = self.views.clone();
        let last_masters = views.borrow_and_update().masters.clone();
        Registrations { views, last_masters }
    }

    /// Changes of the leader since `view` was current.
    pub(crate) fn changes_since(&self, view: &View) -> Changes {
        Changes {
            views: self.views.clone(),
            node: view.leader().map(|leader| leader.node.clone()),
        }
    }
}

/// Waits for changes of the leader. The loss of a leader is not reported, only the next leader.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    views: OrderedReceiver<Arc<View>>,
    /// The registration of the last known leader.
    node: Option<String>,
}

impl Changes {
    /// The next leader. Never returns once the detector is closed. Dropping this future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Arc<Master> {
        loop {
            let leader = self.views.borrow_and_update().leader().cloned();
            if let Some(leader) = leader.filter(|leader| self.node.as_ref() != Some(&leader.node)) {
                self.node = Some(leader.node.clone());
                return leader;
            }
            if self.views.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// The next leader that is not at `url`.
    pub(crate) async fn next_not_at(&mut self, url: &Url) -> Arc<Master> {
        loop {
            let leader = self.next().await;
            if !leader.is_at(url) {
                return leader;
            }
        }
    }
}

/// Waits for changes of the registered masters.
#[derive(Clone, Debug)]
pub(crate) struct Registrations {
    views: OrderedReceiver<Arc<View>>,
    /// The masters returned last.
    last_masters: Vec<Arc<Master>>,
}

impl Registrations {
    /// The next list. An empty list is not returned: the last known masters are assumed to continue.
    /// Never returns once the detector is closed. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Vec<Arc<Master>> {
        loop {
            let masters = self.views.borrow_and_update().masters.clone();
            if !masters.is_empty() && masters != self.last_masters {
                self.last_masters.clone_from(&masters);
                return masters;
            }
            if self.views.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(node: &str, port: u16) -> Arc<Master> {
        Arc::new(Master {
            node: node.into(),
            id: node.into(),
            hostname: None,
            ip: Some("127.0.0.1".parse().unwrap()),
            port,
            version: None,
        })
    }

    fn view(masters: &[Arc<Master>]) -> Arc<View> {
        Arc::new(View {
            masters: masters.to_vec(),
            has_leader: true,
            problem: None,
        })
    }

    /// Returns the pending change without waiting.
    fn next_port(changes: &mut Changes, url: &Url) -> Option<u16> {
        let mut next = std::pin::pin!(changes.next_not_at(url));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match next.as_mut().poll(&mut context) {
            std::task::Poll::Ready(leader) => Some(leader.port),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn changes_reports_only_a_leader_at_another_address() {
        let (a, b) = (master("info_1", 1), master("info_2", 2));
        let moved = master("info_3", 1);
        let at_a = Url::parse("http://127.0.0.1:1/master/api").unwrap();
        let sender = watch::Sender::new(view(&[a.clone(), b.clone()]));
        let mut changes = Changes {
            views: OrderedReceiver::new(sender.subscribe()),
            node: Some(a.node.clone()),
        };
        assert_eq!(next_port(&mut changes, &at_a), None);
        for (masters, news) in [
            (vec![a.clone()], None),
            (vec![], None),
            (vec![a.clone()], None),
            (vec![moved.clone(), b.clone()], None),
            (vec![b.clone()], Some(2)),
            (vec![b.clone(), a.clone()], None),
            (vec![], None),
            (vec![b.clone()], None),
        ] {
            sender.send_replace(view(&masters));
            assert_eq!(next_port(&mut changes, &at_a), news, "{masters:?}");
        }
        drop(sender);
        assert_eq!(next_port(&mut changes, &at_a), None);
    }

    #[test]
    fn registrations_reports_other_registrations_but_not_an_empty_list() {
        let (a, b) = (master("info_1", 1), master("info_2", 2));
        let sender = watch::Sender::new(view(std::slice::from_ref(&a)));
        let mut registrations = Registrations {
            views: OrderedReceiver::new(sender.subscribe()),
            last_masters: vec![a.clone()],
        };
        let mut next_masters = || {
            let mut next = std::pin::pin!(registrations.next());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            next.as_mut().poll(&mut context)
        };
        assert!(next_masters().is_pending());
        for (masters, news) in [
            (vec![a.clone(), b.clone()], true),
            (vec![], false),
            (vec![a.clone(), b.clone()], false),
            (vec![b.clone()], true),
        ] {
            sender.send_replace(view(&masters));
            let now = next_masters();
            assert_eq!(now.is_ready(), news, "{now:?}");
        }
    }

    #[test]
    fn detected_masters_need_no_session_and_no_runtime() {
        let (a, sender) = (master("info_1", 1), watch::Sender::default());
        let client = crate::Client::new(crate::Config {
            masters: vec!["zk://h:2181/mesos".to_owned()],
            detected: Some(sender.subscribe()),
            ..crate::Config::default()
        });
        let client = client.unwrap();
        assert!(client.follows_zookeeper());
        assert_eq!(client.leader(), None);
        sender.send_replace(view(std::slice::from_ref(&a)));
        assert_eq!(client.leader(), Some(a));
    }

    #[test]
    fn leader_is_unknown_while_the_first_registration_is_unreadable() {
        let unread = View {
            has_leader: false,
            ..View::clone(&view(&[master("info_2", 2)]))
        };
        assert_eq!(unread.leader(), None);
        assert_eq!(View::default().leader(), None);
    }
}
