//! A core with a scripted scheduler, cluster and orchestrator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cluster::agent::FileBytes;
use transom_cluster::v1::TaskState;
use transom_cluster::{FrameworkId, TaskId};
use transom_common::HostPort;
use transom_framework::{Abdication, LeaderTerm, ask};
use transom_scheduler::SchedulerApi;
use transom_store::Store;
use transom_testkit::{ScriptedScheduler, wait_for};

use super::super::command::{Command, Rejection, Reply};
use super::super::term::{Handles, TermDependencies};
use super::etcd::Etcd;
use crate::backup::delivery::Delivery;
use crate::bootstrap::{Bootstrap, Prepared, ScriptError, Scripts};
use crate::config::Config;
use crate::dependencies::{Cluster, Connector, SandboxFile};
use crate::explain::Explainer;
use crate::kind::Kind;
use crate::metrics::Metrics;
use crate::orchestrator::{
    ClientConfig, ClientConfigError, Drained, Node, NodeLoad, Observation, Orchestrator, OrchestratorError,
    Pods, Resources, WaitingPod,
};
use crate::task::Draft;
use crate::testing::{agent, config};
use crate::view::{View, Views};

pub(super) const CLIENT_CONFIG: &str =
    "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: default\nkind: Config\n";

/// The resources of each agent for pods.
const ALLOCATABLE: Resources = Resources {
    cpu_millis: 1000,
    memory: 1 << 30,
    pods: 110,
};

/// How a master is away.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    /// It accepts no connection.
    Rejects,
    /// It does not answer.
    Silent,
}

/// Everything outside of the service: nodes, sandboxes, scripts.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) nodes: Mutex<BTreeMap<String, Node>>,
    /// Tasks whose nodes do not register.
    pub(super) without_node: Mutex<BTreeSet<String>>,
    pub(super) scheduler: Mutex<Option<Arc<ScriptedScheduler>>>,
    /// The events of nodes, in words.
    pub(super) done: Mutex<Vec<String>>,
    /// The requests of the pods, in CPUs. Each pod runs on a free agent, if there is one.
    pub(super) pods: Mutex<Vec<u64>>,
    /// Why the pods are not listed.
    pub(super) unlisted: Mutex<Option<&'static str>>,
    /// Nodes that accept no pods.
    pub(super) reserved: Mutex<BTreeSet<String>>,
    /// Whether further nodes do not register.
    pub(super) no_new_nodes: AtomicBool,
    /// Whether drains do not end.
    pub(super) stuck_drains: Mutex<bool>,
    /// Whether the API does not answer.
    pub(super) silent: Mutex<bool>,
    /// Why the component rejects scripts.
    pub(super) rejection: Mutex<Option<String>>,
    /// The scripts that agents may fetch. All terms of a daemon share them.
    pub(super) scripts: Arc<Scripts>,
    /// The script that the component returns.
    pub(super) script: watch::Sender<&'static str>,
    /// While it is true, the component does not answer.
    pub(super) held: watch::Sender<bool>,
    /// While it is true, no cordon ends.
    pub(super) held_cordons: watch::Sender<bool>,
    /// How many drains fail.
    pub(super) failing_drains: Mutex<u32>,
    /// Whether nodes cannot be cordoned, uncordoned or removed.
    pub(super) failing_changes: AtomicBool,
    /// Whether deleted nodes remain, because they have finalizers.
    pub(super) has_finalizers: AtomicBool,
    /// How often the nodes have been listed.
    pub(super) observations: AtomicUsize,
    /// Files in sandboxes, by task and name.
    pub(super) files: Mutex<BTreeMap<(String, String), Vec<u8>>>,
    /// Whether servers have not written their client configuration.
    pub(super) unwritten: AtomicBool,
    /// Whether agents do not answer requests for the client configuration.
    pub(super) unreadable: AtomicBool,
    /// Whether the master lists the framework.
    pub(super) listed: Mutex<bool>,
    /// How the master is away, if it is.
    pub(super) master_away: Mutex<Option<Away>>,
    /// The cluster of the datastore's members.
    pub(super) etcd: Mutex<Etcd>,
}

impl World {
    /// Registers a ready node for every running server and agent.
    pub(super) fn register(&self) {
        let scheduler = self.scheduler.lock().unwrap().clone();
        let Some(scheduler) = scheduler else { return };
        if self.no_new_nodes.load(Ordering::SeqCst) {
            return;
        }
        let mut nodes = self.nodes.lock().unwrap();
        let without = self.without_node.lock().unwrap();
        for (task, record) in scheduler.tasks().iter() {
            let is_node = !record.run_spec.ends_with("datastore")
                && !record.run_spec.ends_with("backup")
                && record.state == TaskState::Running;
            if is_node && !without.contains(task.as_str()) {
                let name = format!("node-{task}");
                nodes.entry(name.clone()).or_insert_with(|| Node {
                    name,
                    task: Some(task.to_string()),
                    ready: true,
                    ready_since: None,
                    control_plane: false,
                    cordoned: false,
                    draining: false,
                    deleting: false,
                    allocatable: Some(ALLOCATABLE),
                    info: serde_json::json!({"kubeletVersion": "v1.31.5+k3s1"}),
                });
            }
        }
    }

    /// Places each pod on a separate node of an agent, in the order of names. The remaining pods wait.
    fn placed(&self) -> Pods {
        let agents: Vec<String> = {
            let scheduler = self.scheduler.lock().unwrap().clone().unwrap();
            let tasks = scheduler.tasks();
            let is_agent = |node: &&Node| {
                let record = node
                    .task
                    .as_ref()
                    .and_then(|task| tasks.get(&TaskId::from(task.as_str())));
                record.is_some_and(|record| record.run_spec.ends_with("agent"))
            };
            let nodes = self.nodes.lock().unwrap();
            let open = nodes.values().filter(|node| node.ready && !node.cordoned);
            let reserved = self.reserved.lock().unwrap();
            let open = open.filter(|node| !reserved.contains(&node.name));
            open.filter(is_agent).map(|node| node.name.clone()).collect()
        };
        let (mut pods, mut agents) = (Pods::default(), agents.into_iter());
        for (number, cpus) in self.pods.lock().unwrap().iter().enumerate() {
            let requests = Resources {
                cpu_millis: cpus * 1000,
                memory: 1,
                pods: 1,
            };
            let free = if requests.fits_in(ALLOCATABLE) {
                agents.next()
            } else {
                None
            };
            match free {
                Some(node) => {
                    let busy = NodeLoad {
                        busy: true,
                        ..NodeLoad::default()
                    };
                    pods.loads.insert(node, busy);
                }
                None => pods.waiting.push(WaitingPod {
                    uid: number.to_string(),
                    name: format!("default/pod-{number}"),
                    requests,
                    unschedulable: true,
                }),
            }
        }
        pods
    }

    pub(super) fn note(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }

    pub(super) fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }

    /// The drains that have begun, as `drain NODE`.
    pub(super) fn drains(&self) -> Vec<String> {
        let mut done = self.done();
        done.retain(|what| what.starts_with("drain"));
        done
    }
}

#[async_trait]
impl Orchestrator for World {
    async fn observe(&self) -> Result<Observation, OrchestratorError> {
        if *self.silent.lock().unwrap() {
            return Err(no_answer("GET /version"));
        }
        self.register();
        self.observations.fetch_add(1, Ordering::SeqCst);
        Ok(Observation {
            version: "v1.31.5+k3s1".to_owned(),
            nodes: self.nodes.lock().unwrap().values().cloned().collect(),
        })
    }

    async fn pods(&self) -> Result<Pods, OrchestratorError> {
        if let Some(why) = *self.unlisted.lock().unwrap() {
            return Err(OrchestratorError::Nonsense {
                request: "GET /api/v1/pods".to_owned(),
                why: why.to_owned(),
            });
        }
        self.register();
        Ok(self.placed())
    }

    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), OrchestratorError> {
        self.note(format!("{} {node}", if cordoned { "cordon" } else { "uncordon" }));
        let mut held = self.held_cordons.subscribe();
        held.wait_for(|held| !held).await.unwrap();
        if self.failing_changes.load(Ordering::SeqCst) {
            return Err(no_answer("PATCH node"));
        }
        if let Some(node) = self.nodes.lock().unwrap().get_mut(node) {
            (node.cordoned, node.draining) = (cordoned, false);
        }
        Ok(())
    }

    async fn drain(&self, node: &str, _: tokio::time::Instant) -> Result<Drained, OrchestratorError> {
        self.note(format!("drain {node}"));
        if let Some(node) = self.nodes.lock().unwrap().get_mut(node) {
            (node.cordoned, node.draining) = (true, true);
        }
        if *self.stuck_drains.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let mut failing = self.failing_drains.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return Err(no_answer("POST eviction"));
        }
        Ok(Drained::default())
    }

    async fn remove_node(&self, node: &str) -> Result<(), OrchestratorError> {
        self.note(format!("remove {node}"));
        if self.failing_changes.load(Ordering::SeqCst) {
            return Err(no_answer("DELETE node"));
        }
        if self.has_finalizers.load(Ordering::SeqCst) {
            if let Some(node) = self.nodes.lock().unwrap().get_mut(node) {
                node.deleting = true;
            }
            return Ok(());
        }
        let removed = self.nodes.lock().unwrap().remove(node);
        let task = removed.and_then(|node| node.task);
        self.without_node.lock().unwrap().extend(task);
        Ok(())
    }
}

fn no_answer(request: &str) -> OrchestratorError {
    OrchestratorError::Nonsense {
        request: request.to_owned(),
        why: "silent".to_owned(),
    }
}

/// The dependencies of a core, implemented by the world.
#[derive(Clone, Debug)]
pub(super) struct FakeDependencies(pub(super) Arc<World>);

impl Connector for FakeDependencies {
    fn connect(&self, _: &ClientConfig, _: &HostPort) -> Result<Arc<dyn Orchestrator>, ClientConfigError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Orchestrator>)
    }
}

#[async_trait]
impl Cluster for FakeDependencies {
    async fn read_file(&self, file: SandboxFile<'_>) -> transom_cluster::Result<Option<Vec<u8>>> {
        assert_eq!(file.path, "k3s.yaml");
        if self.0.unreadable.load(Ordering::SeqCst) {
            let what = "no answer".to_owned();
            return Err(transom_cluster::Error::Config { what });
        }
        if self.0.unwritten.load(Ordering::SeqCst) {
            return Ok(None);
        }
        Ok(Some(format!("{CLIENT_CONFIG}# {}\n", file.task).into_bytes()))
    }

    async fn read_bytes(
        &self,
        file: SandboxFile<'_>,
        offset: u64,
        _: u64,
    ) -> transom_cluster::Result<Option<FileBytes>> {
        let files = self.0.files.lock().unwrap();
        Ok(files
            .get(&(file.task.to_string(), file.path.to_owned()))
            .map(|data| FileBytes {
                // Agents may return less than requested.
                data: data
                    .iter()
                    .skip(usize::try_from(offset).unwrap())
                    .take(3)
                    .copied()
                    .collect(),
                size: data.len() as u64,
            }))
    }

    async fn lists_framework(&self, _: &FrameworkId) -> transom_cluster::Result<bool> {
        let away = *self.0.master_away.lock().unwrap();
        match away {
            None => Ok(*self.0.listed.lock().unwrap()),
            Some(Away::Silent) => std::future::pending().await,
            Some(Away::Rejects) => Err(transom_cluster::Error::Config {
                what: "refused".to_owned(),
            }),
        }
    }
}

#[async_trait]
impl Bootstrap for FakeDependencies {
    async fn prepare(&self, kind: Kind, _: u32, _: &str, draft: Draft) -> Result<Prepared, ScriptError> {
        let (rejection, script) = (
            self.0.rejection.lock().unwrap().clone(),
            self.0.script.borrow().as_bytes().into(),
        );
        self.0.note(format!("prepare {kind}"));
        let mut held = self.0.held.subscribe();
        held.wait_for(|held| !held).await.unwrap();
        match rejection {
            Some(reason) => Err(ScriptError::Rejected(reason)),
            None => Ok(Prepared { script, draft }),
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
pub(super) struct Site {
    pub(super) handles: Handles,
    pub(super) explainer: Explainer,
    pub(super) views: Arc<Views>,
    pub(super) delivery: Arc<Delivery>,
    pub(super) scheduler: Arc<ScriptedScheduler>,
    pub(super) world: Arc<World>,
    pub(super) store: Arc<dyn Store>,
    pub(super) abdication: Abdication,
    pub(super) token: CancellationToken,
    pub(super) running: JoinHandle<()>,
    pub(super) config: Config,
    pub(super) folder: tempfile::TempDir,
}

impl Site {
    pub(super) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        config.settings.heartbeat_interval = Duration::from_millis(50).into();
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

    pub(super) async fn run(
        config: Config,
        scheduler: Arc<ScriptedScheduler>,
        world: Arc<World>,
        store: Arc<dyn Store>,
        folder: tempfile::TempDir,
    ) -> Self {
        let (views, token) = (Arc::new(Views::default()), CancellationToken::new());
        let delivery = Arc::<Delivery>::default();
        let outside = Arc::new(FakeDependencies(Arc::clone(&world)));
        let dependencies = TermDependencies {
            config: Arc::new(config.clone()),
            views: Arc::clone(&views),
            metrics: Metrics::register(&mut Registry::default()),
            bootstrap: outside.clone(),
            scripts: Arc::clone(&world.scripts),
            delivery: Arc::clone(&delivery),
            script_base: "http://fw.test:10000".to_owned(),
            backup_base: "http://fw.test:10000".to_owned(),
            cluster: outside.clone(),
            connector: outside.clone(),
            kvstore: outside,
        };
        let abdication = Abdication::default();
        let term = LeaderTerm {
            scheduler: scheduler.clone(),
            events: scheduler.attach(),
            lease: None,
            store: Arc::clone(&store),
            token: token.clone(),
            abdication: abdication.clone(),
        };
        let (handles, running) = dependencies.start(term).await.unwrap();
        let (_elected, election) = watch::channel(transom_store::Leadership::Leader);
        let leader = transom_framework::Leader::new("localhost:1", election);
        let own = Handles {
            core: handles.core.clone(),
            scheduler: handles.scheduler.clone(),
        };
        let installed = leader.install(own, None);
        let explainer = Explainer {
            config: Arc::new(config.clone()),
            views: Arc::clone(&views),
            leader,
        };
        Self {
            handles,
            explainer,
            views,
            delivery,
            scheduler,
            world,
            store,
            abdication,
            token,
            running: tokio::spawn(running.run_to_end(installed)),
            config,
            folder,
        }
    }

    /// Starts another core with the same store and tasks, as after a restart of the daemon.
    pub(super) async fn restarted(self, change: impl FnOnce(&mut Config)) -> Self {
        self.token.cancel();
        self.running.await.unwrap();
        let mut config = self.config;
        change(&mut config);
        Self::run(config, self.scheduler, self.world, self.store, self.folder).await
    }

    pub(super) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Rejection> {
        ask(&self.handles.core, Duration::from_secs(20), command).await
    }

    pub(super) async fn scale(&self, kind: Kind, count: u32) -> Result<i64, Rejection> {
        self.ask(|reply| Command::Scale { kind, count, reply }).await
    }

    pub(super) async fn wait_until(&self, what: &str, condition: impl Fn(&View) -> bool) {
        wait_for(what, async || condition(&self.views.get())).await;
    }

    pub(super) async fn wait_until_settled(&self) {
        self.wait_until("everything to run", |view| view.ready).await;
    }

    /// The launched tasks of a kind that have not ended.
    pub(super) fn tasks(&self, kind: Kind) -> Vec<String> {
        let tasks = self.scheduler.tasks();
        let live = tasks
            .values()
            .filter(|record| record.run_spec.ends_with(kind.as_str()) && !record.is_terminal());
        live.map(|record| record.id.to_string()).collect()
    }

    /// The digest in the URL of the script of the task that was requested last.
    pub(super) fn requested_script(&self) -> Option<String> {
        self.requested_script_path().map(|(digest, _)| digest)
    }

    /// Digest and token in that URL.
    pub(super) fn requested_script_path(&self) -> Option<(String, String)> {
        let request = self.scheduler.submitted().pop()?;
        let build = request.spec.build.task()?;
        let info = build.build(&crate::testing::placement(request.id.as_str(), &[31002, 31003]))?;
        let url = info.command?.uris.pop()?.value;
        let (path, token) = url.rsplit_once('/')?;
        let (_, digest) = path.rsplit_once('/')?;
        Some((digest.to_owned(), token.to_owned()))
    }
}
