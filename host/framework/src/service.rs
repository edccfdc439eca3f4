//! The handle of a running service for the rest of the daemon: the state of its port and framework.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_common::error_chain;
use transom_web::{AccessPolicy, AccessRules, BoundPort};

use crate::{Framework, FrameworkService, Leader, LeaderHandles};

/// The framework of a service, as this daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkStatus {
    /// The framework's name.
    pub name: String,
    /// Host and port of the leader's service; `None` while there is no leader.
    pub leader: Option<String>,
    /// Whether this daemon leads.
    pub leading: bool,
    /// Whether the leader is subscribed with the cluster manager; `None` on a standby.
    pub subscribed: Option<bool>,
}

/// The handle of a running service. Cheap to clone.
#[derive(Clone)]
pub struct ServiceHandle {
    name: &'static str,
    addr: SocketAddr,
    status: Arc<dyn Fn() -> FrameworkStatus + Send + Sync>,
    tracker: TaskTracker,
    token: CancellationToken,
    routes: Routes,
}

/// The routes of a service for callers within the daemon, which authorize their requests themselves
/// and give nobody more than the service's port does. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The routes, with the limits of the service's port but without its access control.
    pub router: Router,
    /// The access rules of the port for these routes.
    pub rules: AccessRules,
    /// The credentials and networks of the port.
    pub policy: AccessPolicy,
}

/// Serves a service's port until `token` is cancelled. If the port or the framework ends
/// unexpectedly, `token` is cancelled, so that the rest of the service ends too.
pub fn serve<H: LeaderHandles>(
    port: BoundPort,
    router: Router,
    rules: AccessRules,
    leader: Leader<H>,
    framework: String,
    token: CancellationToken,
) -> ServiceHandle {
    let service_port = ServicePort::start(port, router, rules, token);
    let all = service_port.routes.clone();
    service_port.service(service_port.port, leader, framework, all)
}

/// A port that is served for one or several services. They all end together: when the token is
/// cancelled, when the port ends, or when one of their frameworks ends.
#[derive(Debug)]
pub struct ServicePort {
    port: &'static str,
    addr: SocketAddr,
    tracker: TaskTracker,
    token: CancellationToken,
    routes: Routes,
}

impl ServicePort {
    /// Serves the port until `token` is cancelled.
    pub fn start(mut port: BoundPort, router: Router, rules: AccessRules, token: CancellationToken) -> Self {
        let router = port.limited(router, rules);
        let service_port = Self {
            port: port.config().name,
            addr: port.addr(),
            tracker: TaskTracker::new(),
            token,
            routes: Routes {
                router: router.clone(),
                rules,
                policy: port.config().policy(),
            },
        };
        service_port.serve(port, router, rules);
        service_port.tracker.close();
        service_port
    }

    /// Serves another port for the same services. It ends with them, and they with it.
    pub fn serve_beside(&self, mut port: BoundPort, router: Router, rules: AccessRules) {
        let router = port.limited(router, rules);
        self.serve(port, router, rules);
    }

    fn serve(&self, port: BoundPort, router: Router, rules: AccessRules) {
        let (name, token) = (port.config().name, self.token.clone());
        self.tracker.spawn(async move {
            if let Err(error) = port.serve(router, rules, token.clone()).await {
                tracing::error!(port = name, error = error_chain(&error), "HTTP server failed");
            }
            token.cancel();
        });
    }

    /// The routes of the port, with its limits.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The handle of a service; `routes` are the routes of the port that belong to the service.
    pub fn service<H: LeaderHandles>(
        &self,
        name: &'static str,
        leader: Leader<H>,
        framework: String,
        routes: Routes,
    ) -> ServiceHandle {
        let status = move || {
            let subscription = leader.subscription();
            FrameworkStatus {
                name: framework.clone(),
                leader: leader.address(),
                leading: subscription.is_some(),
                subscribed: subscription.map(|subscription| subscription.connected),
            }
        };
        ServiceHandle {
            name,
            addr: self.addr,
            status: Arc::new(status),
            tracker: self.tracker.clone(),
            token: self.token.clone(),
            routes,
        }
    }
}

impl ServiceHandle {
    /// Runs the service's framework until the token given at the start is cancelled.
    pub fn run<S: FrameworkService>(&self, framework: Framework, service: S) {
        let (name, token) = (self.name, self.token.clone());
        self.tracker.spawn(async move {
            if let Err(error) = framework.run(service, token.child_token()).await {
                tracing::error!(
                    service = name,
                    error = error_chain(&error),
                    "running the framework failed"
                );
            }
            token.cancel();
        });
    }

    /// The service's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The address of the HTTP port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its routes, for callers within the daemon.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The framework, its leader and its subscription.
    pub fn framework(&self) -> FrameworkStatus {
        (self.status)()
    }

    /// Whether requests can be served: by this daemon if it is the leader and its framework is
    /// subscribed, or by another leader.
    pub fn is_ready(&self) -> bool {
        let framework = self.framework();
        let served = framework.subscribed.unwrap_or(framework.leader.is_some());
        served && !self.token.is_cancelled()
    }

    /// Waits until the port and the frameworks of its services have ended. They end when the token
    /// given at the start is cancelled, or when one of them ends unexpectedly, which is logged.
    pub async fn stopped(&self) {
        self.tracker.wait().await;
    }
}

impl fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceHandle")
            .field("name", &self.name)
            .field("addr", &self.addr)
            .field("ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio::sync::watch;
    use transom_scheduler::SubscriptionStatus;
    use transom_store::Leadership;
    use transom_web::PortConfig;

    use super::*;

    /// Whether the framework is subscribed.
    struct Handles(bool);

    impl LeaderHandles for Handles {
        fn subscription(&self) -> SubscriptionStatus {
            SubscriptionStatus {
                framework_id: None,
                connected: self.0,
                master: None,
                since: Timestamp::UNIX_EPOCH,
            }
        }
    }

    #[tokio::test]
    async fn a_service_is_ready_when_a_leader_can_serve_requests() {
        let other_leads = || Leadership::Follower("other:1".to_owned());
        for (own, leadership, stopping, leader, ready) in [
            (Some(true), Leadership::Leader, false, Some("localhost:1"), true),
            (Some(false), Leadership::Leader, false, Some("localhost:1"), false),
            (None, other_leads(), false, Some("other:1"), true),
            (None, Leadership::Leader, false, None, false),
            (None, Leadership::Unknown, false, None, false),
            (Some(true), Leadership::Leader, true, Some("localhost:1"), false),
            (None, other_leads(), true, Some("other:1"), false),
        ] {
            let case = format!("{own:?} {leadership:?} stopping: {stopping}");
            let token = CancellationToken::new();
            let (_elected, election) = watch::channel(leadership);
            let watched = Leader::new("localhost:1", election);
            let _installed = own.map(|subscribed| watched.install(Handles(subscribed), None));
            let port = PortConfig::new("apps", 0).bind().await.unwrap();
            let service = serve(
                port,
                Router::new(),
                AccessRules::default(),
                watched,
                "marathon".to_owned(),
                token.clone(),
            );
            if stopping {
                token.cancel();
            }
            assert_eq!(service.is_ready(), ready, "{case}");
            let expected = FrameworkStatus {
                name: "marathon".to_owned(),
                leader: leader.map(str::to_owned),
                leading: own.is_some(),
                subscribed: own,
            };
            assert_eq!(service.framework(), expected, "{case}");
            token.cancel();
            service.stopped().await;
        }
    }
}
