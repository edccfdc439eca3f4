//! The shared core of the master and the agents: the state under one lock, and the execution of its
//! effects.

use crate::{
    agent::{container::Launcher, journal::Journals, nested::NestedContainers},
    config::Config,
    guard,
    state::{Effect, ExecutorEnd, Gate, KillOrder, Launch, Port, State, TaskKey},
    wire::recordio::ConnectionCut,
};
use futures::future::BoxFuture;
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transom_web::Access;

/// The state and services that the master and all agents of one cluster share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The host names of the ports.
    pub(crate) access: Access,
    state: Mutex<State>,
    running: Mutex<RunningProcesses>,
    /// Notified when a fault starts or ends.
    faults: watch::Sender<()>,
    /// Delay of every response and event, in milliseconds: a copy of the state's value that is read
    /// without the lock.
    delay: AtomicU64,
    /// All asynchronous tasks of the cluster, awaited when it stops.
    pub(crate) tracker: TaskTracker,
    /// Stops the cluster.
    pub(crate) token: CancellationToken,
    /// The client of the agents' HTTP checks.
    pub(crate) http: reqwest::Client,
    pub(crate) journals: Journals,
    pub(crate) nested_containers: NestedContainers,
    /// Starts the containers of tasks with an image.
    pub(crate) launcher: Launcher,
    run: RunFunctions,
}

/// The functions that run processes. They are passed in because they depend on [`Shared`].
pub(crate) struct RunFunctions {
    /// Runs one task until its processes have ended.
    pub(crate) task: TaskRunFn,
    /// Runs one custom executor until its processes have ended, or until the token kills it.
    pub(crate) executor: ExecutorRunFn,
}

pub(crate) type TaskRunFn = Box<
    dyn Fn(Arc<Shared>, Launch, watch::Receiver<Option<KillOrder>>) -> BoxFuture<'static, ()> + Send + Sync,
>;

pub(crate) type ExecutorRunFn =
    Box<dyn Fn(Arc<Shared>, Launch, CancellationToken) -> BoxFuture<'static, ExecutorEnd> + Send + Sync>;

/// The tasks and custom executors that have a process or will have one.
#[derive(Default)]
struct RunningProcesses {
    kills: HashMap<TaskKey, watch::Sender<Option<KillOrder>>>,
    /// The cancellation tokens of the executors, by container.
    executors: HashMap<String, CancellationToken>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("master", &self.config.listen)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        state: State,
        token: CancellationToken,
        http: reqwest::Client,
        run: RunFunctions,
    ) -> Arc<Self> {
        let tracker = TaskTracker::new();
        Arc::new(Self {
            nested_containers: NestedContainers::new(tracker.clone(), token.clone()),
            launcher: Launcher::new(&config, tracker.clone()),
            access: guard::access(&config),
            config,
            state: Mutex::new(state),
            running: Mutex::default(),
            faults: watch::Sender::new(()),
            delay: AtomicU64::new(0),
            tracker,
            token,
            http,
            journals: Journals::default(),
            run,
        })
    }

    /// Reads or changes the state, then executes the resulting effects in order. It never blocks
    /// for long, because the state does no input or output.
    pub(crate) fn with_state<R>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        // Executing an effect on a custom executor changes the state again and can add effects.
        while !state.effects.is_empty() {
            for effect in std::mem::take(&mut state.effects) {
                self.execute(&mut state, effect);
            }
        }
        result
    }

    fn execute(self: &Arc<Self>, state: &mut State, effect: Effect) {
        match effect {
            Effect::Launch(launch) if launch.in_executor => state.deliver_task(&launch.key, Instant::now()),
            Effect::Launch(launch) => self.launch(*launch),
            Effect::Kill(key, order) => {
                state.kill_in_executor(&key, &order, Instant::now());
                self.kill(&key, order);
            }
            Effect::StartExecutor(launch) => self.start_executor(*launch),
            Effect::ShutDownExecutor(container) => state.shut_down(&container, Instant::now()),
            Effect::KillExecutor(container) => {
                if let Some(kill) = self.running().executors.get(&container) {
                    kill.cancel();
                }
            }
            Effect::DeleteVolume(volume) => self.delete_volume(volume),
            Effect::ContinueJournal { previous, current } => self.journals.continue_as(&previous, &current),
            Effect::ExecutorMessage(agent, line) => {
                self.journals.write_line(&agent, &line);
                state.deliver_message(&agent, &line);
            }
            Effect::SendEvent(framework, event) => state.send(&framework, &event),
        }
    }

    /// Changes the active faults and wakes the requests that wait for them.
    pub(crate) fn change_faults<R>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, delay) = self.with_state(|state| {
            let result = change(state);
            (result, state.faults.delay)
        });
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay.store(delay, Ordering::Relaxed);
        self.faults.send_replace(());
        result
    }

    /// The delay of responses and events.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay.load(Ordering::Relaxed))
    }

    /// Waits while a fault keeps this port from answering. The error means that the connection is
    /// to be closed, because the port is closed.
    pub(crate) async fn wait_for_port(self: &Arc<Self>, port: &Port) -> Result<(), ConnectionCut> {
        let mut changes = self.faults.subscribe();
        loop {
            let change = match self.with_state(|state| state.gate(port, Instant::now())) {
                Gate::Open => break,
                Gate::Closed => return Err(ConnectionCut),
                Gate::Silent => self.token.run_until_cancelled(changes.changed()).await,
            };
            if !matches!(change, Some(Ok(()))) {
                return Err(ConnectionCut);
            }
        }
        let delay = self.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    fn launch(self: &Arc<Self>, launch: Launch) {
        let (sender, kills) = watch::channel(None);
        self.running().kills.insert(launch.key.clone(), sender);
        let shared = Arc::clone(self);
        self.tracker.spawn(async move {
            let key = launch.key.clone();
            (shared.run.task)(Arc::clone(&shared), launch, kills).await;
            shared.running().kills.remove(&key);
            shared.with_state(|state| state.process_ended(&key));
        });
    }

    fn start_executor(self: &Arc<Self>, launch: Launch) {
        let kill = CancellationToken::new();
        let container = launch.container.clone();
        self.running().executors.insert(container.clone(), kill.clone());
        let shared = Arc::clone(self);
        self.tracker.spawn(async move {
            let end = (shared.run.executor)(Arc::clone(&shared), launch, kill).await;
            shared.running().executors.remove(&container);
            if !shared.token.is_cancelled() {
                shared.with_state(|state| state.executor_ended(&container, end, Instant::now()));
            }
        });
    }

    fn delete_volume(&self, volume: PathBuf) {
        self.tracker.spawn(async move {
            match tokio::fs::remove_dir_all(&volume).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(volume = %volume.display(), %error, "cannot delete a persistent volume");
                }
                // It is deleted, or no task ever used it.
                _ => {}
            }
        });
    }

    fn kill(&self, key: &TaskKey, order: KillOrder) {
        if let Some(kill) = self.running().kills.get(key) {
            kill.send_replace(Some(order));
        }
    }

    fn running(&self) -> MutexGuard<'_, RunningProcesses> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
