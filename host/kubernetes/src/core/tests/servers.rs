//! Two servers, one of which clients use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use transom_cluster::v1::TaskState;

use super::super::command::{Command, Scope};
use super::site::Site;
use crate::kind::Kind;
use crate::view::View;

/// The server whose client configuration is served.
fn serving(view: &View) -> Option<String> {
    let (_, task) = view.client_config.as_deref()?.rsplit_once("# ")?;
    Some(task.trim().to_owned())
}

/// Starts two servers and requests their replacement; new servers write no client configuration.
/// Returns the server that clients use, and the other one.
async fn replaced(drain_timeout: Duration) -> (Site, String, String) {
    let site = Site::start(|config| {
        config.kinds.server.count = 2;
        config.settings.drain_timeout = drain_timeout.into();
    })
    .await;
    site.wait_until_settled().await;
    let mut servers = site.tasks(Kind::Server);
    let used = serving(&site.views.get()).unwrap();
    servers.retain(|task| *task != used);
    site.world.unwritten.store(true, Ordering::SeqCst);
    site.ask(|reply| Command::Restart {
        scope: Scope::Servers,
        reply,
    })
    .await
    .unwrap();
    (site, used, servers.remove(0))
}

#[tokio::test]
async fn a_server_that_clients_use_ends_when_the_configuration_of_another_one_is_served() {
    let (site, used, other) = replaced(Duration::from_mins(5)).await;
    site.wait_until("the reason", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("ends when the client configuration of server"))
    })
    .await;
    let tasks = site.tasks(Kind::Server);
    assert!(tasks.contains(&used) && !tasks.contains(&other), "{tasks:?}");
    assert_eq!(serving(&site.views.get()).as_ref(), Some(&used));

    site.world.unwritten.store(false, Ordering::SeqCst);
    site.wait_until("other servers", |view| {
        view.ready && view.tasks.server.iter().all(|task| task.id != used)
    })
    .await;
    let now = serving(&site.views.get()).unwrap();
    assert!(
        tasks.contains(&now),
        "clients use the first replacement, which existed before: {now}"
    );
}

#[tokio::test]
async fn a_server_that_clients_use_waits_for_another_one_at_most_the_drain_timeout() {
    let (site, used, _) = replaced(Duration::from_millis(200)).await;
    site.wait_until("the server's end", |view| {
        view.tasks.server.iter().all(|task| task.id != used)
    })
    .await;
    site.world.unwritten.store(false, Ordering::SeqCst);
    site.wait_until("the configuration of another server", |view| {
        view.ready && serving(view).is_some_and(|now| now != used)
    })
    .await;
}

#[tokio::test]
async fn a_server_on_an_unreachable_agent_is_replaced_and_ends_when_the_agent_returns() {
    let site = Site::start(|config| {
        config.kinds.server.count = 2;
        config.settings.orch_node_timeout = Duration::from_millis(500).into();
    })
    .await;
    site.wait_until_settled().await;
    let used = serving(&site.views.get()).unwrap();
    site.scheduler.update(&used, TaskState::Unreachable, None);
    site.wait_until("the configuration of another server", |view| {
        let others = view.tasks.server.iter().all(|task| task.id != used);
        view.ready && others && serving(view).is_some_and(|now| now != used)
    })
    .await;
    assert_eq!(site.views.get().tasks.server.len(), 2);

    // Its agent returns.
    site.scheduler.update(&used, TaskState::Running, None);
    site.wait_until("the server's end", |_| !site.tasks(Kind::Server).contains(&used))
        .await;
    assert_eq!(site.tasks(Kind::Server).len(), 2);
}
