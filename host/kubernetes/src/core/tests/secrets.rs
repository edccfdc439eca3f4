//! The password of a SQL datastore, and the settings that stay in use while a datastore has data.

use std::collections::BTreeMap;

use transom_store::Expect;
use transom_store::typed::{Changes, TypedStore};

use super::super::command::{Command, Rejection};
use super::super::persist::DATASTORE;
use super::site::Site;
use crate::config::Config;
use crate::kind::Kind;
use crate::secrets::FORMER_PASSWORD;

fn configure(password: Option<&'static str>) -> impl FnOnce(&mut Config) {
    move |config| config.settings.ds_mysql_password = password.map(Into::into)
}

/// A variable of the task of a kind that was launched last.
fn variable(site: &Site, kind: Kind, name: &str) -> String {
    let launched = site.scheduler.launched();
    let info = launched
        .iter()
        .rev()
        .find(|info| info.name.ends_with(kind.as_str()));
    let environment = info.and_then(|info| info.command.clone()?.environment).unwrap();
    let variables = environment.variables.into_iter();
    let mut variables: BTreeMap<String, String> = variables
        .filter_map(|variable| Some((variable.name, variable.value?)))
        .collect();
    variables.remove(name).unwrap_or_default()
}

fn password(site: &Site) -> String {
    variable(site, Kind::Datastore, "MYSQL_ROOT_PASSWORD")
}

#[tokio::test]
async fn the_password_is_random_and_stays_the_same_after_a_restart() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let made = password(&site);
    assert!(made.len() == 64 && !made.contains(FORMER_PASSWORD), "{made}");
    let endpoint = format!("mysql://root:{made}@tcp(m3sdatastore.local:3306)/k3s");
    assert_eq!(variable(&site, Kind::Server, "K3S_DATASTORE_ENDPOINT"), endpoint);
    let tasks = site.tasks(Kind::Datastore);
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    assert_eq!(site.tasks(Kind::Datastore), tasks);
    let other = Site::start(|_| {}).await;
    other.wait_until_settled().await;
    assert_ne!(password(&other), made);
}

#[tokio::test]
async fn a_framework_of_a_former_daemon_keeps_its_password_and_its_tasks() {
    let site = Site::start(configure(Some(FORMER_PASSWORD))).await;
    site.wait_until_settled().await;
    let tasks = [Kind::Datastore, Kind::Server].map(|kind| site.tasks(kind));
    // A former daemon has no such record.
    let mut changes = Changes::default();
    changes.delete(DATASTORE, Expect::Any);
    let store = TypedStore::new(site.store.clone(), site.config.name());
    store.commit(changes).await.unwrap();
    let site = site.restarted(configure(None)).await;
    site.wait_until_settled().await;
    assert_eq!(
        [Kind::Datastore, Kind::Server].map(|kind| site.tasks(kind)),
        tasks
    );
    assert_eq!(password(&site), FORMER_PASSWORD);
}

#[tokio::test]
async fn another_password_is_ignored_until_it_is_adopted() {
    let site = Site::start(configure(Some("first"))).await;
    site.wait_until_settled().await;
    let adopt = async |site: &Site| site.ask(|reply| Command::AdoptPassword { reply }).await;
    let nothing = adopt(&site).await;
    assert!(matches!(nothing, Err(Rejection::NoOtherPassword)), "{nothing:?}");
    let tasks = site.tasks(Kind::Datastore);

    let site = site.restarted(configure(Some("second"))).await;
    site.wait_until("the reason", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("DS_MYSQL_PASSWORD") && !reason.contains("second"))
    })
    .await;
    site.wait_until_settled().await;
    assert_eq!(
        (site.tasks(Kind::Datastore), password(&site)),
        (tasks, "first".to_owned())
    );

    adopt(&site).await.unwrap();
    transom_testkit::wait_for("tasks with the new password", async || {
        let endpoint = variable(&site, Kind::Server, "K3S_DATASTORE_ENDPOINT");
        password(&site) == "second" && endpoint.contains("root:second@")
    })
    .await;
    site.wait_until("no reason", |view| view.waiting.is_empty()).await;
}

fn reasons(site: &Site) -> String {
    let view = site.views.get();
    let reasons: Vec<&str> = view.waiting.iter().map(|waiting| &*waiting.reason).collect();
    reasons.join("\n")
}

#[tokio::test]
async fn a_changed_token_or_volume_is_ignored_while_there_are_data() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    let token = variable(&site, Kind::Server, "K3S_TOKEN");
    let printed = site.ask(|reply| Command::Token { reply }).await.unwrap();
    assert_eq!(printed.reveal(), token);
    let tasks = Kind::ALL.map(|kind| site.tasks(kind));
    let site = site
        .restarted(|config| {
            config.settings.orch_token = Some("not-this-one".into());
            config.settings.volume_orch_server = "/elsewhere".to_owned();
            config.settings.volume_ds = "/empty".to_owned();
        })
        .await;
    site.wait_until_settled().await;
    let reasons = reasons(&site);
    for name in ["ORCH_TOKEN", "VOLUME_DS", "VOLUME_ORCH_SERVER"] {
        assert!(
            reasons.contains(name) && !reasons.contains("not-this-one"),
            "{reasons}"
        );
    }
    assert_eq!(Kind::ALL.map(|kind| site.tasks(kind)), tasks);
    // A lost task starts again with the settings in use.
    site.scheduler
        .update(&tasks[1][0], transom_cluster::v1::TaskState::Failed, None);
    site.wait_until("another server", |view| {
        view.ready && view.tasks.server[0].id != tasks[1][0]
    })
    .await;
    assert_eq!(variable(&site, Kind::Server, "K3S_TOKEN"), token);
}

#[tokio::test]
async fn a_wrong_token_of_a_new_cluster_can_be_corrected() {
    let site = Site::start(|config| config.settings.orch_token = Some("wrong".into())).await;
    site.world
        .unwritten
        .store(true, std::sync::atomic::Ordering::SeqCst);
    site.wait_until("the hint", |view| {
        let mut reasons = view.waiting.iter().map(|waiting| &waiting.reason);
        reasons.any(|reason| reason.contains("encrypted with different token"))
    })
    .await;
    let site = site
        .restarted(|config| config.settings.orch_token = Some("right".into()))
        .await;
    transom_testkit::wait_for("a server with the token", async || {
        variable(&site, Kind::Server, "K3S_TOKEN") == "right"
    })
    .await;
}

#[tokio::test]
async fn a_changed_kind_driver_or_user_of_the_datastore_is_ignored_while_there_are_data() {
    let site = Site::start(configure(Some("first"))).await;
    site.wait_until_settled().await;
    let tasks = Kind::ALL.map(|kind| site.tasks(kind));
    let change = |config: &mut Config| {
        config.settings.ds_etcd = true;
        config.settings.image_kvstore = "etcd".to_owned();
        config.settings.ds_port = 2379;
        config.settings.ds_etcd_tls = true;
        config.kinds.datastore.count = 3;
        config.settings.volume_driver = "rexray".to_owned();
        config.settings.ds_mysql_username = "kube".to_owned();
    };
    let site = site.restarted(change).await;
    site.wait_until_settled().await;
    let found = reasons(&site);
    for name in [
        "DS_ETCD",
        "VOLUME_DRIVER",
        "DS_MYSQL_USERNAME",
        "fw move m3s",
        "--adopt",
    ] {
        assert!(found.contains(name), "{name}: {found}");
    }
    assert_eq!(Kind::ALL.map(|kind| site.tasks(kind)), tasks);
    assert_eq!(site.views.get().wanted.datastore, 1);
    // The settings in use outlast a change of the leader, and may be set back.
    let site = site
        .restarted(|config| {
            let username = config.settings.ds_mysql_username.clone();
            let password = config.settings.ds_mysql_password.clone();
            *config = crate::testing::config();
            config.settings.heartbeat_interval = std::time::Duration::from_millis(50).into();
            config.settings.ds_mysql_username = username;
            config.settings.ds_mysql_password = password;
        })
        .await;
    site.wait_until_settled().await;
    let found = reasons(&site);
    assert!(
        !found.contains("DS_ETCD") && found.contains("DS_MYSQL_USERNAME"),
        "{found}"
    );
    assert_eq!(Kind::ALL.map(|kind| site.tasks(kind)), tasks);
    // The user was made in the SQL server.
    site.ask(|reply| Command::AdoptPassword { reply }).await.unwrap();
    transom_testkit::wait_for("servers with the user", async || {
        variable(&site, Kind::Server, "K3S_DATASTORE_ENDPOINT").contains("kube:first@")
    })
    .await;
    site.wait_until("no reason", |view| view.waiting.is_empty()).await;
    let site = site.restarted(|_| {}).await;
    site.wait_until_settled().await;
    assert_eq!(reasons(&site), "");
}

#[tokio::test]
async fn another_kind_of_datastore_is_used_after_its_data_are_given_up() {
    let site = Site::start(|_| {}).await;
    site.wait_until_settled().await;
    site.ask(|reply| Command::MoveDatastore { reply }).await.unwrap();
    let kvstore = |config: &mut Config| config.settings.ds_etcd = true;
    let site = site.restarted(kvstore).await;
    site.wait_until("no reason", |view| !view.tasks.datastore.is_empty())
        .await;
    assert!(!reasons(&site).contains("DS_ETCD"));
    // A cluster whose first setup never answered has no data, either.
    let site = Site::start(|_| {}).await;
    site.world
        .unwritten
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let site = site.restarted(kvstore).await;
    assert!(!reasons(&site).contains("DS_ETCD"));
}
