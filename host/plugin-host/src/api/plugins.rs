//! [`Plugins`]: starts the host and passes each call to an instance.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::registry::Registry;
use tokio::sync::{broadcast, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transom_common::text::one_line;
use transom_plugin_cases::RecordedCalls;
use transom_registry::{FetchMetrics, Sources, Trust, artifacts::ArtifactStore};

use super::{
    agent_set::AgentSet,
    attempt,
    explain::{self, filter::FilterExplainer, probe::ProbeTranscript},
    extension_points::ExtensionPoints,
    views::{OpenViews, View},
};
use crate::{
    config::{Bindings, Config},
    error::{CallError, CommandError, Error, Result, UploadError},
    lifecycle::{
        admission::AdmissionContext,
        directory::{
            Command, Directory, DirectoryHandle,
            upload::{self, Uploaded},
        },
    },
    name::is_name,
    observe::{
        metrics::Metrics,
        recent_log::LogLine,
        status::{Change, Status},
    },
    runtime::{
        engine::{CompileLimits, Compilers, Engine},
        executor::{self, GuestExecutor, Priority},
        pool::Runtime,
        shadow::calls::{Open, Prepare, Validate},
    },
    storage::{
        admission_record::AdmissionRecord,
        call_log::{CallLog, LogError},
        compiled_cache::CompiledCache,
        history::{Durability, History},
        staged_files::PluginFiles,
    },
    worlds::{
        bootstrap,
        events::{self, OpenError, SharedQuery},
        matcher, probe,
    },
};

impl Config {
    /// Admits the plugins that are bound to an extension point, for at most
    /// [`Config::start_timeout`]; the admission of others is in progress when this returns. Then
    /// watches the directory. A rejected component is reported; an unreadable directory is fatal.
    pub async fn start(self, registry: &mut Registry, token: CancellationToken) -> Result<Plugins> {
        let metrics = Metrics::register(registry);
        let fetch_metrics = FetchMetrics::register(registry);
        let config = Arc::new(self);
        let trust = Arc::new(Trust::new(&config.signatures)?);
        let private = config.private.clone();
        let artifacts = executor::run_blocking(move || ArtifactStore::open(private.as_deref()))
            .await
            .map_err(|_| Error::Broke)?;
        let sources = Sources::open(
            config.registries.clone(),
            config.reserved.clone(),
            artifacts.clone(),
            Arc::clone(&trust),
            fetch_metrics,
        )
        .await?;
        let history = Arc::new(History::load(config.store.clone(), &config.prefix).await);
        let runtime = Runtime {
            engine: Engine::new(config.instances)?,
            tracker: TaskTracker::new(),
            token: token.child_token(),
            executor: GuestExecutor::new().map_err(Error::Thread)?,
        };
        let calls = config.recording.clone().map(|settings| {
            let (log, writer) = CallLog::new(settings, metrics.clone());
            // The writer runs at low priority, so that it does not delay calls. Records that it
            // cannot write in time are dropped.
            runtime
                .executor
                .spawn_low(&runtime.tracker, writer.run(runtime.token.clone()));
            log
        });
        let compilers = Compilers::new(
            config.compiler.clone(),
            CompileLimits::from(&*config),
            Priority::Background,
        );
        let admission_context = AdmissionContext {
            runtime: runtime.clone(),
            config: Arc::clone(&config),
            cache: CompiledCache::new(artifacts.clone(), compilers, metrics.cache()),
            trust,
            calls: calls.clone(),
        };
        let (directory, handle) = Directory::open(
            admission_context,
            artifacts,
            sources.clone(),
            Arc::clone(&history),
            metrics.clone(),
        )
        .await?;
        let inner = HostState {
            extension_points: Arc::new(ExtensionPoints {
                config,
                table: Arc::clone(&handle.table),
                token: runtime.token.clone(),
            }),
            metrics,
            sources: sources.clone(),
            directory: handle,
            history,
            calls,
            views: Mutex::default(),
            tracker: runtime.tracker.clone(),
            next_view: AtomicU64::new(1),
        };
        runtime.tracker.spawn(sources.run(runtime.token.clone()));
        // Admissions run guest code, so this needs the executor for guests.
        runtime.executor.spawn(&runtime.tracker, directory.run());
        runtime.tracker.close();
        Ok(Plugins(Arc::new(inner)))
    }
}

/// The plugin host's handle. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<HostState>);

struct HostState {
    extension_points: Arc<ExtensionPoints>,
    metrics: Metrics,
    sources: Sources,
    directory: DirectoryHandle,
    history: Arc<History>,
    /// The call log. `None`: no calls are recorded.
    calls: Option<CallLog>,
    /// Queries with open views.
    views: Mutex<OpenViews>,
    next_view: AtomicU64,
    tracker: TaskTracker,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugins")
            .field("dir", &self.0.extension_points.config.dir)
            .finish_non_exhaustive()
    }
}

impl Plugins {
    /// All plugins, by name.
    pub fn list(&self) -> Vec<Status> {
        let table = self.0.extension_points.table.load();
        table.status(&self.0.metrics, &self.0.sources)
    }

    /// The plugin directory, as configured.
    pub fn dir(&self) -> &Path {
        &self.0.extension_points.config.dir
    }

    /// Which plugin is bound to which extension point.
    pub fn bindings(&self) -> &Bindings {
        &self.0.extension_points.config.bindings
    }

    /// The newest lines of the log of the serving or disabled version, oldest first, with a
    /// sequence number above `after`. `None` if the plugin has no such version.
    pub fn log(&self, name: &str, after: u64) -> Option<Vec<LogLine>> {
        self.0.extension_points.table.load().log(name, after)
    }

    /// Subscribes to changes from now on. A subscriber that lags receives the number of missed
    /// changes.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.0.directory.changes.subscribe()
    }

    /// Scans the directory and returns the changes when all files have been admitted or rejected.
    /// Tags are fetched again in the background.
    pub async fn rescan(&self) -> Vec<Change> {
        let (answer, changes) = oneshot::channel();
        if self
            .0
            .directory
            .commands
            .send(Command::Rescan(answer))
            .await
            .is_err()
        {
            return Vec::new();
        }
        changes.await.unwrap_or_default()
    }

    /// The records of a plugin, newest first, and where they are stored. A removed plugin still has
    /// records.
    pub fn history(&self, name: &str) -> (Vec<AdmissionRecord>, Durability) {
        (self.0.history.records(name), self.0.history.durability())
    }

    /// Rolls back to `record`, or to the newest other version. The current files in the directory
    /// are ignored until they change; with a store this holds after a restart, too. `by`: the
    /// operator, for the record.
    pub async fn rollback(&self, name: &str, record: Option<u64>, by: &str) -> Result<Change, CommandError> {
        self.order(|answer| Command::Rollback {
            name: name.to_owned(),
            record,
            by: one_line(by),
            answer,
        })
        .await
    }

    /// Promotes the shadow or the canary regardless of its measurements. `by`: the operator, for
    /// the record.
    pub async fn promote(&self, name: &str, by: &str) -> Result<Change, CommandError> {
        self.order(|answer| Command::Promote {
            name: name.to_owned(),
            by: one_line(by),
            answer,
        })
        .await
    }

    /// Stops the shadow or the canary. Files in the directory are ignored until they change, as
    /// after a rollback. `by`: the operator, for the record.
    pub async fn abort_candidate(&self, name: &str, by: &str) -> Result<Change, CommandError> {
        self.order(|answer| Command::Abort {
            name: name.to_owned(),
            by: one_line(by),
            answer,
        })
        .await
    }

    /// Returns the size in bytes of the largest component that [`Self::upload`] accepts with this
    /// manifest. Without a manifest, the one in the plugin directory counts.
    pub async fn upload_limit(&self, name: &str, manifest: Option<&[u8]>) -> Result<u64, UploadError> {
        upload::component_limit(&self.0.extension_points.config, name, manifest).await
    }

    /// Writes files to the plugin directory and starts their admission. Files that are left out
    /// remain unchanged there. Files that could never be admitted are not written.
    pub async fn upload(&self, name: &str, files: PluginFiles) -> Result<Uploaded, UploadError> {
        let config = &self.0.extension_points.config;
        upload::check(config, name, &files).await?;
        let (dir, owned) = (config.dir.clone(), name.to_owned());
        let staged = executor::run_blocking(move || files.stage(&dir, &owned));
        let staged = staged.await.map_err(|_| UploadError::Stopped)?;
        let (answer, done) = oneshot::channel();
        let command = Command::Upload {
            name: name.to_owned(),
            files: staged.map_err(UploadError::Unwritable)?,
            answer,
        };
        let sent = self.0.directory.commands.send(command).await;
        sent.map_err(|_| UploadError::Stopped)?;
        done.await.unwrap_or(Err(UploadError::Stopped))
    }

    async fn order(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<Change, CommandError>>) -> Command,
    ) -> Result<Change, CommandError> {
        let (answer, done) = oneshot::channel();
        let sent = self.0.directory.commands.send(command(answer)).await;
        sent.map_err(|_| CommandError::Stopped)?;
        done.await.unwrap_or(Err(CommandError::Stopped))
    }

    /// Returns the newest recorded calls of a plugin, oldest first: at most `max`, and not older
    /// than `since`. A removed plugin may still have recorded calls. Waits until earlier calls are
    /// written.
    pub async fn recorded_calls(
        &self,
        name: &str,
        since: Duration,
        max: usize,
    ) -> Result<RecordedCalls, CommandError> {
        let owned = || name.to_owned();
        // The name becomes a folder's name.
        if !is_name(name) {
            return Err(CommandError::Unknown { name: owned() });
        }
        let Some(log) = &self.0.calls else {
            return Err(CommandError::NotRecorded {
                name: owned(),
                setting: "plugins.recording.enabled",
            });
        };
        let calls = log
            .read(name, since, max, None)
            .await
            .map_err(|error| match error {
                LogError::Stopped => CommandError::Stopped,
                error @ LogError::Unreadable { .. } => CommandError::Unreadable {
                    name: owned(),
                    message: error.to_string(),
                },
            })?;
        if !calls.calls.is_empty() {
            return Ok(calls);
        }
        let table = self.0.extension_points.table.load();
        match table.serving.get(name) {
            Some(serving) if serving.context_and_info().0.recorder().is_none() => {
                Err(CommandError::NotRecorded {
                    name: owned(),
                    setting: "record = false in its manifest",
                })
            }
            None if self.0.history.records(name).is_empty() => Err(CommandError::Unknown { name: owned() }),
            _ => Ok(calls),
        }
    }

    /// An empty agent set. `home_region`: the master's region.
    pub fn agent_set(&self, home_region: Option<String>) -> AgentSet {
        AgentSet::new(Arc::clone(&self.0.extension_points), home_region)
    }

    /// Validates these constraints. An empty list: all are valid. With several matchers, each one
    /// validates all constraints, and the messages contain the matcher's name.
    pub async fn validate_constraints(
        &self,
        constraints: &[matcher::Constraint],
    ) -> Result<Vec<matcher::ConstraintError>, CallError> {
        let matchers = self.0.extension_points.matchers()?;
        let mut errors = Vec::new();
        for (name, matcher) in &matchers {
            let found = matcher.ask(Validate(constraints.to_vec())).await?;
            errors.extend(found.into_iter().map(|error| match matchers.len() {
                1 => error,
                _ => matcher::ConstraintError {
                    message: format!("{name}: {}", error.message),
                    ..error
                },
            }));
        }
        Ok(errors)
    }

    /// Opens a view of a query in each filter. Equal queries share one guest resource.
    pub async fn open_view(&self, query: events::Query) -> Result<View, OpenError> {
        let filters = self.0.extension_points.filters()?;
        let opened = self.shared_query(query);
        for (name, filter) in &filters {
            let answer = filter.ask(Open(Arc::clone(&opened))).await?;
            answer.map_err(|rejection| match filters.len() {
                1 => OpenError::Rejected(rejection),
                _ => OpenError::Rejected(format!("{name}: {rejection}")),
            })?;
        }
        Ok(View::new(Arc::clone(&self.0.extension_points), opened))
    }

    /// Prepares the first script of a container.
    pub async fn prepare(
        &self,
        context: bootstrap::Context,
        script: Vec<u8>,
    ) -> Result<bootstrap::Prepared, bootstrap::PrepareError> {
        let active = self.0.extension_points.bootstrap()?;
        Ok(active.ask(Prepare { context, script }).await??)
    }

    /// The name of the probe plugin.
    pub fn prober<'a>(&'a self, kind: &'a probe::Kind) -> &'a str {
        self.0.extension_points.bound_prober(kind).1
    }

    /// Probes a task once. `runner` runs commands for components with the grant `command`.
    pub async fn probe(
        &self,
        kind: probe::Kind,
        request: probe::Request,
        runner: Option<Arc<dyn probe::Runner>>,
    ) -> Result<probe::Outcome, probe::Failure> {
        let active = self
            .0
            .extension_points
            .prober(&kind)
            .map_err(|error| attempt::failure(&error))?;
        let extension_points = &self.0.extension_points;
        attempt::run_probe(
            &active,
            request,
            runner,
            &extension_points.config.reserved,
            &extension_points.token,
        )
        .await
    }

    /// Starts an explanation of what the filters decide about past events for one query. The error
    /// is the text of a filter that rejects the query.
    pub async fn explain_filter(&self, query: events::Query) -> Result<FilterExplainer, String> {
        FilterExplainer::open(&self.0.extension_points, query).await
    }

    /// Probes a task once as [`Self::probe`] does, and returns the steps for an operator. The
    /// attempt does not count in metrics and health.
    pub async fn explain_probe(
        &self,
        kind: &probe::Kind,
        request: probe::Request,
        runner: Option<Arc<dyn probe::Runner>>,
    ) -> ProbeTranscript {
        explain::probe::explain(&self.0.extension_points, kind, request, runner).await
    }

    /// Returns when all tasks of the plugin host have ended, after the token given at the start was
    /// cancelled.
    pub async fn stopped(&self) {
        self.0.tracker.wait().await;
    }

    fn shared_query(&self, query: events::Query) -> Arc<SharedQuery> {
        let mut views = self.0.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.get_or_insert(query, || self.0.next_view.fetch_add(1, Relaxed))
    }
}
