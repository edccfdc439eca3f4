//! A framework with a scripted service: an embedded store, a plugin host without plugins, and the
//! address of a master that does not exist.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails may panic"
)]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_framework::{Error, Framework, FrameworkService, LeaderTerm, ServiceError};
use transom_plugin_host::Plugins;
use transom_scheduler::Metrics;
use transom_store::{Election, Store};

/// The timeout of each wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How a term ends.
#[derive(Debug)]
enum TermScript {
    /// The service runs until the term ends.
    UntilStopped,
    Abdicates,
    Unexpectedly,
    Fails(Failure),
}

#[derive(Debug, thiserror::Error)]
#[error("scripted")]
struct Failure {
    permanent: bool,
}

impl ServiceError for Failure {
    fn is_permanent(&self) -> bool {
        self.permanent
    }
}

/// Reports each start of a term.
struct ScriptedService {
    terms: VecDeque<TermScript>,
    started: mpsc::UnboundedSender<()>,
}

impl FrameworkService for ScriptedService {
    type Error = Failure;

    async fn lead(&mut self, term: LeaderTerm) -> Result<(), Failure> {
        let script = self.terms.pop_front().expect("a script for each term");
        self.started.send(()).expect("the test waits");
        match script {
            TermScript::UntilStopped => {
                term.token.cancelled().await;
                Ok(())
            }
            TermScript::Abdicates => {
                term.abdication.abdicate();
                term.token.cancelled().await;
                Ok(())
            }
            TermScript::Unexpectedly => Ok(()),
            TermScript::Fails(failure) => Err(failure),
        }
    }
}

/// The time to live of the lease.
const LEASE: Duration = Duration::from_secs(5);

/// A candidate for the lease.
fn candidate(store: &Arc<dyn Store>, address: &str) -> Election {
    Election::new(Arc::clone(store), Framework::lease("f"), address, LEASE)
}

/// A framework with its store and its plugin host, until `token` is cancelled.
async fn framework(dir: &Path, token: &CancellationToken) -> (Framework, Arc<dyn Store>, Plugins) {
    let store = format!("file:{}", dir.join("store").display());
    let store = transom_store::open(&store).await.unwrap();
    let mut registry = Registry::default();
    let plugins = dir.join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let plugins = transom_plugin_host::Config::new(plugins);
    let plugins = plugins.start(&mut registry, token.child_token()).await.unwrap();
    let cluster = transom_cluster::Config {
        masters: vec!["127.0.0.1:1".to_owned()],
        ..transom_cluster::Config::default()
    };
    let framework = Framework {
        election: candidate(&store, "own:1"),
        info: v1::FrameworkInfo {
            name: "f".to_owned(),
            ..v1::FrameworkInfo::default()
        },
        prefix: "f".to_owned(),
        cluster: Client::new(cluster).unwrap(),
        matchers: plugins.clone().into(),
        revive_interval: Duration::from_secs(1),
        refuse_rest: None,
        maintenance: transom_scheduler::MaintenanceMode::default(),
        metrics: Metrics::register(&mut registry, "f"),
    };
    (framework, store, plugins)
}

/// Runs a framework with these terms, and stops it when all of them have started. Returns how many
/// have started.
async fn run(terms: Vec<TermScript>) -> (usize, transom_framework::Result<()>) {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (framework, _store, plugins) = framework(dir.path(), &token).await;
    let (count, (started, mut starts)) = (terms.len(), mpsc::unbounded_channel());
    let service = ScriptedService {
        terms: terms.into(),
        started,
    };
    let stop = CancellationToken::new();
    let running = Box::pin(framework.run(service, stop.clone()));
    let stopping = async {
        let mut begun = 0;
        while begun < count && starts.recv().await.is_some() {
            begun += 1;
        }
        stop.cancel();
        begun
    };
    let both = Box::pin(async { tokio::join!(stopping, running) });
    let outcome = tokio::time::timeout(TIMEOUT, both)
        .await
        .expect("the framework ends");
    token.cancel();
    plugins.stopped().await;
    outcome
}

#[tokio::test]
async fn a_service_leads_until_the_framework_is_stopped() {
    let (starts, outcome) = run(vec![TermScript::UntilStopped]).await;
    outcome.unwrap();
    assert_eq!(starts, 1);
}

#[tokio::test]
async fn a_term_that_could_not_start_is_followed_by_another() {
    let failure = || TermScript::Fails(Failure { permanent: false });
    let (starts, outcome) = run(vec![failure(), failure(), TermScript::UntilStopped]).await;
    outcome.unwrap();
    assert_eq!(starts, 3);
}

#[tokio::test]
async fn an_abdicated_lease_is_left_to_another_candidate() {
    let (dir, token) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let (framework, store, plugins) = framework(dir.path(), &token).await;
    let (started, mut starts) = mpsc::unbounded_channel();
    let service = ScriptedService {
        terms: [TermScript::Abdicates, TermScript::UntilStopped].into(),
        started,
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(framework.run(service, stop.clone()));
    let changes = async {
        starts.recv().await.unwrap();
        let other = candidate(&store, "other:2").campaign().await;
        assert!(
            starts.is_empty(),
            "the first daemon leads again before the second one could"
        );
        // When the other candidate has resigned, the first one leads again.
        other.resign().await;
        starts.recv().await.unwrap();
    };
    tokio::time::timeout(TIMEOUT, changes)
        .await
        .expect("the first daemon leads again");
    stop.cancel();
    running.await.unwrap().unwrap();
    token.cancel();
    plugins.stopped().await;
}

#[tokio::test]
async fn a_permanent_error_ends_the_framework() {
    let (starts, outcome) = run(vec![TermScript::Fails(Failure { permanent: true })]).await;
    assert_eq!(starts, 1);
    assert!(
        matches!(&outcome, Err(Error::Service { framework, permanent: true, .. }) if framework == "f"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_service_that_ends_while_it_leads_ends_the_framework() {
    // The second term never starts, so the framework can end only because the service ends.
    let (starts, outcome) = run(vec![TermScript::Unexpectedly, TermScript::UntilStopped]).await;
    assert_eq!(starts, 1);
    assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
}
