//! The core with a scripted scheduler, cluster and orchestrator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cluster::v1::TaskState;
use transom_cluster::{FrameworkId, TaskId};
use transom_common::HostPort;
use transom_framework::{Abdication, LeaderTerm, ask};
use transom_scheduler::{AgentLocation, SchedulerApi};
use transom_store::Store;
use transom_testkit::{ScriptedScheduler, wait_for};

use super::command::{Command, Refusal, Reply, Scope};
use super::term::{Handles, TermDependencies};
use crate::bootstrap::{Bootstrap, NotPrepared, Prepared, Scripts};
use crate::config::Config;
use crate::dependencies::{Cluster, Connector};
use crate::kind::{Kind, PerKind};
use crate::metrics::Metrics;
use crate::orchestrator::{
    ClientConfig, ClientConfigError, Drained, Node, Observation, Orchestrator, OrchestratorError,
};
use crate::task::Draft;
use crate::testing::{agent, config};
use crate::view::{View, Views};

const CLIENT_CONFIG: &str =
    "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: default\nkind: Config\n";

/// Everything outside of the service: nodes, sandboxes, scripts.
#[derive(Debug, Default)]
struct World {
    nodes: Mutex<BTreeMap<String, Node>>,
    /// Tasks whose nodes do not register.
    without_node: Mutex<BTreeSet<String>>,
    scheduler: Mutex<Option<Arc<ScriptedScheduler>>>,
    /// What happened to nodes, in words.
    done: Mutex<Vec<String>>,
    /// Whether the API answers.
    silent: Mutex<bool>,
    /// Why the component rejects scripts.
    rejection: Mutex<Option<String>>,
    /// The script that the component returns.
    script: watch::Sender<&'static str>,
    listed: Mutex<bool>,
}

impl World {
    /// Every running server and agent is a ready node.
    fn register(&self) {
        let scheduler = self.scheduler.lock().unwrap().clone();
        let Some(scheduler) = scheduler else { return };
        let mut nodes = self.nodes.lock().unwrap();
        let without = self.without_node.lock().unwrap();
        for (task, record) in scheduler.tasks().iter() {
            let is_node = !record.run_spec.ends_with("datastore") && record.state == TaskState::Running;
            if is_node && !without.contains(task.as_str()) {
                let name = format!("node-{task}");
                nodes.entry(name.clone()).or_insert_with(|| Node {
                    name,
                    task: Some(task.to_string()),
                    ready: true,
                    ready_since: None,
                    control_plane: false,
                    cordoned: false,
                    info: serde_json::json!({"kubeletVersion": "v1.31.5+k3s1"}),
                });
            }
        }
    }

    fn note(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

#[async_trait]
impl Orchestrator for World {
    async fn observe(&self) -> Result<Observation, OrchestratorError> {
        if *self.silent.lock().unwrap() {
            return Err(OrchestratorError::Nonsense {
                request: "GET /version".to_owned(),
                why: "silent".to_owned(),
            });
        }
        self.register();
        Ok(Observation {
            version: "v1.31.5+k3s1".to_owned(),
            nodes: self.nodes.lock().unwrap().values().cloned().collect(),
        })
    }

    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), OrchestratorError> {
        self.note(format!("{} {node}", if cordoned { "cordon" } else { "uncordon" }));
        if let Some(node) = self.nodes.lock().unwrap().get_mut(node) {
            node.cordoned = cordoned;
        }
        Ok(())
    }

    async fn drain(&self, node: &str, _: tokio::time::Instant) -> Result<Drained, OrchestratorError> {
        self.note(format!("drain {node}"));
        Ok(Drained::default())
    }

    async fn remove_node(&self, node: &str) -> Result<(), OrchestratorError> {
        self.note(format!("remove {node}"));
        let removed = self.nodes.lock().unwrap().remove(node);
        let task = removed.and_then(|node| node.task);
        self.without_node.lock().unwrap().extend(task);
        Ok(())
    }
}

/// The parts that a core is given.
#[derive(Clone, Debug)]
struct Outside(Arc<World>);

impl Connector for Outside {
    fn connect(&self, _: &ClientConfig, _: &HostPort) -> Result<Arc<dyn Orchestrator>, ClientConfigError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Orchestrator>)
    }
}

#[async_trait]
impl Cluster for Outside {
    async fn read_file(
        &self,
        _: &AgentLocation,
        _: &FrameworkId,
        task: &TaskId,
        file: &str,
    ) -> transom_cluster::Result<Option<Vec<u8>>> {
        assert_eq!(file, "k3s.yaml");
        Ok(Some(format!("{CLIENT_CONFIG}# {task}\n").into_bytes()))
    }

    async fn lists_framework(&self, _: &FrameworkId) -> transom_cluster::Result<bool> {
        Ok(*self.0.listed.lock().unwrap())
    }
}

#[async_trait]
impl Bootstrap for Outside {
    async fn prepare(&self, _: Kind, _: u32, _: &str, draft: Draft) -> Result<Prepared, NotPrepared> {
        match self.0.rejection.lock().unwrap().clone() {
            Some(reason) => Err(NotPrepared::Rejected(reason)),
            None => Ok(Prepared {
                script: self.0.script.borrow().as_bytes().into(),
                draft,
            }),
        }
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let receiver = self.0.script.subscribe();
        let changes = futures::stream::unfold(receiver, async |mut receiver| {
            receiver.changed().await.ok()?;
            Some(((), receiver))
        });
        changes.boxed()
    }
}

/// A running core.
struct Site {
    handles: Handles,
    views: Arc<Views>,
    scheduler: Arc<ScriptedScheduler>,
    world: Arc<World>,
    store: Arc<dyn Store>,
    abdication: Abdication,
    token: CancellationToken,
    running: JoinHandle<()>,
    config: Config,
    folder: tempfile::TempDir,
}

impl Site {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        config.heartbeat_interval = Duration::from_millis(50);
        change(&mut config);
        let folder = tempfile::tempdir().unwrap();
        let server = format!("file:{}", folder.path().display());
        let store = transom_store::Config::new(&server).open().await.unwrap();
        let scheduler = ScriptedScheduler::new(agent());
        scheduler.set_immediate_launches(true);
        scheduler.set_immediate_kills(true);
        let world = Arc::new(World::default());
        *world.scheduler.lock().unwrap() = Some(Arc::clone(&scheduler));
        Self::run(config, scheduler, world, store, folder).await
    }

    async fn run(
        config: Config,
        scheduler: Arc<ScriptedScheduler>,
        world: Arc<World>,
        store: Arc<dyn Store>,
        folder: tempfile::TempDir,
    ) -> Self {
        let (views, token) = (Arc::new(Views::default()), CancellationToken::new());
        let outside = Arc::new(Outside(Arc::clone(&world)));
        let dependencies = TermDependencies {
            config: Arc::new(config.clone()),
            views: Arc::clone(&views),
            metrics: Metrics::register(&mut Registry::default()),
            bootstrap: outside.clone(),
            scripts: Arc::new(Scripts::default()),
            script_base: "http://fw.test:10000".to_owned(),
            cluster: outside.clone(),
            connector: outside,
        };
        let abdication = Abdication::default();
        let term = LeaderTerm {
            scheduler: scheduler.clone(),
            events: scheduler.attach(),
            store: Arc::clone(&store),
            token: token.clone(),
            abdication: abdication.clone(),
        };
        let (handles, running) = dependencies.start(term).await.unwrap();
        let (_elected, election) = watch::channel(transom_store::Leadership::Leader);
        let leader = transom_framework::Leader::new("localhost:1", election);
        let installed = leader.install(Handles {
            core: handles.core.clone(),
            scheduler: handles.scheduler.clone(),
        });
        Self {
            handles,
            views,
            scheduler,
            world,
            store,
            abdication,
            token,
            running: tokio::spawn(running.ended(installed)),
            config,
            folder,
        }
    }

    /// Another core on the same store and tasks, as after a restart of the daemon.
    async fn restarted(self, change: impl FnOnce(&mut Config)) -> Self {
        self.token.cancel();
        self.running.await.unwrap();
        let mut config = self.config;
        change(&mut config);
        Self::run(config, self.scheduler, self.world, self.store, self.folder).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        ask(&self.handles.core, Duration::from_secs(20), command).await
    }

    async fn scale(&self, kind: Kind, count: u32) -> Result<i64, Refusal> {
        self.ask(|reply| Command::Scale { kind, count, reply }).await
    }

    async fn until(&self, what: &str, condition: impl Fn(&View) -> bool) {
        wait_for(what, async || condition(&self.views.get())).await;
    }

    async fn until_settled(&self) {
        self.until("everything to run", |view| view.ready).await;
    }

    /// The launched tasks of a kind that have not ended.
    fn tasks(&self, kind: Kind) -> Vec<String> {
        let tasks = self.scheduler.tasks();
        let live = tasks
            .values()
            .filter(|record| record.run_spec.ends_with(kind.as_str()) && !record.is_terminal());
        live.map(|record| record.id.to_string()).collect()
    }
}

fn counts(datastore: u32, server: u32, agent: u32) -> PerKind<u32> {
    PerKind {
        datastore,
        server,
        agent,
    }
}

#[tokio::test]
async fn a_cluster_starts_and_its_client_configuration_is_served() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.until_settled().await;
    let view = site.views.get();
    assert_eq!(view.wanted, counts(1, 1, 2));
    assert_eq!(site.tasks(Kind::Agent).len(), 2);
    let server = &view.tasks.server[0];
    let address = format!("{}:{}", server.host.as_ref().unwrap(), server.ports[0]);
    let expected = CLIENT_CONFIG.replace("127.0.0.1:6443", &address);
    assert_eq!(
        view.client_config.as_deref(),
        Some(&*format!("{expected}# {}\n", server.id))
    );
    assert_eq!(view.orchestrator.as_ref().unwrap().version, "v1.31.5+k3s1");
    assert!(view.waiting.is_empty(), "{:?}", view.waiting);
}

#[tokio::test]
async fn scaled_counts_survive_a_restart_unless_the_configured_count_changes() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    assert_eq!(site.scale(Kind::Agent, 3).await.unwrap(), 2);
    site.until("three agents", |view| view.running(Kind::Agent) == 3)
        .await;
    let before = site.tasks(Kind::Agent);
    let site = site.restarted(|_| {}).await;
    site.until_settled().await;
    assert_eq!(site.views.get().wanted, counts(1, 1, 3));
    assert_eq!(site.tasks(Kind::Agent), before, "no task was restarted");

    let site = site.restarted(|config| config.kinds.agent.count = 2).await;
    site.until("two agents", |view| view.ready && view.running(Kind::Agent) == 2)
        .await;
}

#[tokio::test]
async fn agents_are_drained_and_their_nodes_removed_before_they_end() {
    let site = Site::start(|config| config.kinds.agent.count = 3).await;
    site.until_settled().await;
    assert_eq!(site.scale(Kind::Agent, 1).await.unwrap(), -2);
    site.until("one agent", |view| view.ready && view.running(Kind::Agent) == 1)
        .await;
    let done = site.world.done();
    let verbs = |verb: &str| done.iter().filter(|what| what.starts_with(verb)).count();
    assert_eq!((verbs("drain"), verbs("remove")), (2, 2), "{done:?}");
    let last_drain = done.iter().rposition(|what| what.starts_with("drain")).unwrap();
    assert!(
        done[last_drain..].iter().any(|what| what.starts_with("remove")),
        "{done:?}"
    );
}

#[tokio::test]
async fn counts_that_cannot_be_are_rejected() {
    let site = Site::start(|_| {}).await;
    let rejected = site.scale(Kind::Agent, 101).await;
    assert!(
        matches!(
            rejected,
            Err(Refusal::AboveMaximum {
                count: 101,
                maximum: 100
            })
        ),
        "{rejected:?}"
    );
    let rejected = site.scale(Kind::Datastore, 2).await;
    assert!(
        matches!(rejected, Err(Refusal::SeveralSqlDatastores(2))),
        "{rejected:?}"
    );
    let site = Site::start(|config| config.datastore.engine = crate::config::Engine::Kvstore).await;
    let rejected = site.scale(Kind::Datastore, 2).await;
    assert!(matches!(rejected, Err(Refusal::EvenKvstore(2))), "{rejected:?}");
    assert_eq!(site.scale(Kind::Datastore, 3).await.unwrap(), 2);
}

#[tokio::test]
async fn a_failed_agent_is_replaced_once_and_its_node_removed() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.until_settled().await;
    let failed = site.tasks(Kind::Agent).remove(0);
    site.scheduler
        .update(&failed, TaskState::Failed, Some("out of memory"));
    let node = format!("node-{failed}");
    site.until("the replacement", |view| {
        view.ready && view.tasks.agent.iter().all(|task| task.id != failed)
    })
    .await;
    assert_eq!(site.tasks(Kind::Agent).len(), 2);
    assert!(
        site.world.done().contains(&format!("remove {node}")),
        "{:?}",
        site.world.done()
    );
    site.scheduler.until_purged(&failed).await;
}

#[tokio::test]
async fn the_client_configuration_follows_the_server() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    let server = site.tasks(Kind::Server).remove(0);
    let before = site.views.get().client_config.clone();
    site.scheduler.update(&server, TaskState::Lost, None);
    site.until("another configuration", |view| {
        view.ready && view.client_config != before
    })
    .await;
    let view = site.views.get();
    let config = view.client_config.as_deref().unwrap();
    assert!(config.contains(&view.tasks.server[0].id), "{config}");
}

#[tokio::test]
async fn a_rejected_script_starts_nothing_and_the_reason_is_shown() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    *site.world.rejection.lock().unwrap() = Some("line 7: no".to_owned());
    site.scale(Kind::Agent, 2).await.unwrap();
    site.until("the reason", |view| {
        view.waiting
            .iter()
            .any(|waiting| waiting.reason.contains("line 7: no"))
    })
    .await;
    assert_eq!(site.tasks(Kind::Agent).len(), 1);
    *site.world.rejection.lock().unwrap() = None;
    // Another component serves.
    site.world.script.send_replace("#!/bin/sh\nexec \"$@\"\n");
    site.until("two agents", |view| view.ready && view.running(Kind::Agent) == 2)
        .await;
}

#[tokio::test]
async fn a_pending_task_gets_the_script_of_the_component_that_serves() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    site.scheduler.set_immediate_launches(false);
    site.scale(Kind::Agent, 2).await.unwrap();
    let submitted = |site: &Site| site.scheduler.submitted().pop();
    let script = |site: &Site| {
        let request = submitted(site)?;
        let build = request.spec.build.task()?;
        let info = build.build(&crate::testing::placement(request.id.as_str(), &[31002, 31003]))?;
        Some(info.command?.uris[0].value.clone())
    };
    wait_for("a request", async || script(&site).is_some()).await;
    let before = script(&site);
    let digest = |url: &Option<String>| {
        url.as_ref()
            .and_then(|url| url.split('/').nth(4).map(str::to_owned))
    };
    site.world.script.send_replace("#!/bin/sh\n# another\n");
    wait_for("another script", async || {
        digest(&script(&site)) != digest(&before)
    })
    .await;

    // Without a component the request is withdrawn.
    *site.world.rejection.lock().unwrap() = Some("no plugin".to_owned());
    site.world.script.send_replace("#!/bin/sh\n# gone\n");
    wait_for("the withdrawal", async || submitted(&site).is_none()).await;
}

#[tokio::test]
async fn a_stopped_cluster_starts_again_with_its_counts() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.until_settled().await;
    let refused = site.ask(|reply| Command::Start { reply }).await;
    assert!(matches!(refused, Err(Refusal::AlreadyStarted)), "{refused:?}");
    site.ask(|reply| Command::Stop { reply }).await.unwrap();
    assert_eq!(site.views.get().wanted, counts(0, 0, 0));
    wait_for("all tasks to end", async || {
        Kind::ALL.into_iter().all(|kind| site.tasks(kind).is_empty())
    })
    .await;
    assert!(!site.world.done().iter().any(|what| what.starts_with("drain")));
    let refused = site
        .ask(|reply| Command::Restart {
            scope: Scope::All,
            reply,
        })
        .await;
    assert!(matches!(refused, Err(Refusal::NothingToRestart)), "{refused:?}");
    let site = site.restarted(|_| {}).await;
    site.ask(|reply| Command::Start { reply }).await.unwrap();
    assert_eq!(site.views.get().wanted, counts(1, 1, 2));
    site.until_settled().await;
}

#[tokio::test]
async fn nodes_are_cordoned_and_uncordoned_on_request() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.until_settled().await;
    let cordon = async |cordoned| {
        site.ask(|reply| Command::Cordon { cordoned, reply })
            .await
            .unwrap();
        wait_for("the nodes", async || {
            let nodes = site.world.nodes.lock().unwrap();
            let agents = site.tasks(Kind::Agent);
            let mut nodes = nodes
                .values()
                .filter(|node| agents.contains(node.task.as_ref().unwrap()));
            nodes.all(|node| node.cordoned == cordoned)
        })
        .await;
    };
    cordon(true).await;
    cordon(false).await;
    let server = format!("node-{}", site.tasks(Kind::Server)[0]);
    assert!(!site.world.done().iter().any(|what| what.ends_with(&server)));
}

#[tokio::test]
async fn a_restart_replaces_every_task_of_its_kinds() {
    let site = Site::start(|config| config.kinds.agent.count = 2).await;
    site.until_settled().await;
    let before = PerKind::from_fn(|kind| site.tasks(kind));
    site.ask(|reply| Command::Restart {
        scope: Scope::Agents,
        reply,
    })
    .await
    .unwrap();
    site.until("other agents", |view| {
        view.ready
            && view
                .tasks
                .agent
                .iter()
                .all(|task| !before.agent.contains(&task.id))
    })
    .await;
    assert_eq!(site.tasks(Kind::Server), before.server);
    let drains = site
        .world
        .done()
        .iter()
        .filter(|what| what.starts_with("drain"))
        .count();
    assert_eq!(drains, 2);
}

#[tokio::test]
async fn a_changed_image_replaces_tasks_and_an_unchanged_one_does_not() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    let before = PerKind::from_fn(|kind| site.tasks(kind));
    let site = site
        .restarted(|config| config.datastore.image = "docker.io/mariadb:11".to_owned())
        .await;
    site.until("another datastore and server", |view| {
        view.ready
            && view
                .tasks
                .datastore
                .iter()
                .all(|task| !before.datastore.contains(&task.id))
            && view
                .tasks
                .server
                .iter()
                .all(|task| !before.server.contains(&task.id))
    })
    .await;
    assert_eq!(
        site.tasks(Kind::Agent),
        before.agent,
        "agents do not use the datastore"
    );
}

#[tokio::test]
async fn the_framework_id_is_dropped_only_if_the_master_does_not_list_it() {
    let site = Site::start(|_| {}).await;
    site.until_settled().await;
    *site.world.listed.lock().unwrap() = true;
    site.ask(|reply| Command::ForgetFramework { reply })
        .await
        .unwrap();
    assert!(!site.abdication.is_requested());
    *site.world.listed.lock().unwrap() = false;
    site.ask(|reply| Command::ForgetFramework { reply })
        .await
        .unwrap();
    assert!(site.abdication.is_requested());
}

#[tokio::test]
async fn while_the_api_is_silent_no_agent_is_replaced() {
    let site = Site::start(|config| {
        config.kinds.agent.count = 2;
        config.orchestrator.node_timeout = Duration::from_hours(1);
    })
    .await;
    site.until_settled().await;
    let before = site.tasks(Kind::Agent);
    *site.world.silent.lock().unwrap() = true;
    site.until("the reason", |view| {
        view.orchestrator.is_none() && view.waiting.iter().any(|it| it.reason.contains("silent"))
    })
    .await;
    *site.world.silent.lock().unwrap() = false;
    site.until_settled().await;
    assert_eq!(site.tasks(Kind::Agent), before);
}
