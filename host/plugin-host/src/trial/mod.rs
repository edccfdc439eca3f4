//! Tests a component without a daemon: runs the admission stage by stage, and creates single
//! instances for recorded cases or direct calls. `transom-plugin-tools` is built on this.
//!
//! A component runs with the same linker, limits and self-tests as in a daemon. There is no input
//! or output: a case contains the answers to a probe's steps. Only compiled components are stored,
//! if there is a [`CompileCache`].

mod case;
mod compile_cache;
mod direct_matcher;

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transom_common::text::one_line;
use transom_plugin_cases::RecordedCalls;
use transom_registry::{Origin, Signatures, Trust, artifacts::ArtifactStore};

use crate::{
    config::Config,
    error::Error,
    lifecycle::{
        admission::{AdmissionContext, AdmissionError, StageLog, StageRecord, TrialInstance},
        replay::replay,
    },
    manifest::{
        Manifest,
        files::{Files, ManifestFile},
        imports,
    },
    observe::{metrics::Metrics, version_metrics::VersionMetrics},
    runtime::{
        engine::{
            CompileLimits, Compilers, Engine,
            worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
        },
        executor::{GuestExecutor, Priority},
        pool::Runtime,
    },
    self_test::Testable,
    storage::{admission_record, compiled_cache::CompiledCache},
    worlds::WorldName,
};

pub use crate::{
    lifecycle::{
        admission::Stage,
        replay::{DifferenceExample, DifferenceGroup, ReplayReport, Sides, Skipped},
    },
    observe::latency_histogram::LatencyHistogram,
    self_test::RequestedStep,
};
pub use case::{Case, CaseInstance, Usage};
pub use compile_cache::CompileCache;
pub use direct_matcher::DirectMatcher;

/// Maximum number of instances at a time. They are created one after the other.
const MAX_INSTANCES: u32 = 4;

/// A plugin host without serving plugins. Needs a Tokio runtime, like all methods here.
#[derive(Debug)]
pub struct TrialHost {
    admission_context: AdmissionContext,
}

/// A component and its manifest.
#[derive(Clone, Debug)]
pub struct ComponentFiles {
    name: String,
    component: Arc<Vec<u8>>,
    manifest: String,
    signature: Option<Vec<u8>>,
}

/// A component that passed all stages of admission except for its self-tests.
pub struct TrialComponent {
    trial_instance: AnyTrialInstance,
    engine: Engine,
    stage_log: StageLog,
}

/// A trial instance of any world.
enum AnyTrialInstance {
    Probe(Box<TrialInstance<Probe>>),
    Matcher(Box<TrialInstance<Matcher>>),
    Filter(Box<TrialInstance<Filter>>),
    Bootstrap(Box<TrialInstance<Bootstrap>>),
}

/// Runs the same code for each world.
macro_rules! in_world {
    ($of:expr, $trial:ident => $work:expr) => {
        match $of {
            AnyTrialInstance::Probe($trial) => $work,
            AnyTrialInstance::Matcher($trial) => $work,
            AnyTrialInstance::Filter($trial) => $work,
            AnyTrialInstance::Bootstrap($trial) => $work,
        }
    };
}
use in_world;

/// The reason why a daemon would reject the component.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The stages so far. The last one rejected the component.
    pub stages: Vec<StageResult>,
    /// The reason, for an operator.
    pub reason: String,
}

/// A stage of admission.
#[derive(Clone, Debug, Serialize)]
pub struct StageResult {
    /// The stage.
    pub stage: Stage,
    /// False if this stage rejected the component.
    pub ok: bool,
    /// The result, or the reason of the rejection.
    pub detail: String,
    /// Duration in milliseconds.
    pub millis: f64,
}

/// The description of a component.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentSummary {
    /// `check-probe` and so on.
    pub world: &'static str,
    /// Its own version.
    pub version: String,
    /// The summary in one line.
    pub summary: String,
    /// `sha256:` and the component's digest.
    pub digest: String,
    /// The interfaces that it imports, without versions.
    pub imports: Vec<String>,
    /// Its grants.
    pub grants: serde_json::Value,
    /// Its limits.
    pub limits: serde_json::Value,
    #[serde(skip)]
    manifest: Arc<Manifest>,
}

impl ComponentSummary {
    /// Returns the interfaces that it imports and that a version with the imports `before` does not
    /// import.
    pub fn added_imports(&self, before: &[String]) -> Vec<String> {
        imports::added(&self.imports, before)
    }

    /// Why a daemon would reject this component as the successor of a version with the imports
    /// `before`.
    pub fn rejection_as_upgrade(&self, before: &[String]) -> Option<String> {
        let checked = imports::check(&self.imports, Some(before), &self.manifest.grants);
        checked.err().map(|error| error.to_string())
    }
}

impl ComponentFiles {
    /// Creates the files from the plugin's name, the bytes of `NAME.wasm` and the text of
    /// `NAME.toml`.
    pub fn new(name: &str, component: Vec<u8>, manifest: String) -> ComponentFiles {
        ComponentFiles {
            name: one_line(name),
            component: Arc::new(component),
            manifest,
            signature: None,
        }
    }

    /// Adds the content of `NAME.wasm.sig`.
    pub fn signed(mut self, signature: Option<Vec<u8>>) -> ComponentFiles {
        self.signature = signature;
        self
    }
}

impl TrialHost {
    /// Starts an engine. Fails for an invalid key.
    pub fn new(signatures: &Signatures) -> Result<TrialHost, Error> {
        let metrics = Metrics::register(&mut Registry::default());
        let runtime = Runtime {
            engine: Engine::new(MAX_INSTANCES)?,
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
            executor: GuestExecutor::new().map_err(Error::Thread)?,
        };
        let config = Config {
            private: None,
            ..Config::new("")
        };
        let compilers = Compilers::new(
            config.compiler.clone(),
            CompileLimits::from(&config),
            Priority::Interactive,
        );
        Ok(TrialHost {
            admission_context: AdmissionContext {
                runtime,
                config: Arc::new(config),
                cache: CompiledCache::new(ArtifactStore::default(), compilers, metrics.cache()),
                trust: Arc::new(Trust::new(signatures)?),
                calls: None,
            },
        })
    }

    /// Returns the same host with a cache of compiled components.
    pub fn caching(mut self, cache: CompileCache) -> TrialHost {
        let context = &mut self.admission_context;
        context.cache = context.cache.with_artifacts(cache.into_artifacts());
        self
    }

    /// Runs the stages of admission, except for the manifest's self-tests.
    pub async fn admit(&self, files: &ComponentFiles) -> Result<TrialComponent, Rejected> {
        let mut stage_log = StageLog::default();
        match self.instantiate(files, &mut stage_log).await {
            Ok(trial_instance) => Ok(TrialComponent {
                trial_instance,
                engine: self.admission_context.runtime.engine.clone(),
                stage_log,
            }),
            Err(error) => Err(Rejected::new(stage_log, &error)),
        }
    }

    async fn instantiate(
        &self,
        component_files: &ComponentFiles,
        stage_log: &mut StageLog,
    ) -> Result<AnyTrialInstance, AdmissionError> {
        let config = &self.admission_context.config;
        let files = Files {
            component: Arc::clone(&component_files.component),
            manifest: Some(ManifestFile::parse(
                component_files.manifest.clone(),
                &config.limits,
                config.probation,
            )),
            origin: Origin::File {
                signature: component_files.signature.clone(),
            },
        };
        // No version serves, so there are no imports to compare.
        let component = self
            .admission_context
            .examine(
                &component_files.name,
                &files,
                None,
                VersionMetrics::unexported(),
                stage_log,
            )
            .await?;
        Ok(match component.world() {
            WorldName::CheckProbe => {
                AnyTrialInstance::Probe(Box::new(component.instantiate_trial(stage_log).await?))
            }
            WorldName::AttributeMatcher => {
                AnyTrialInstance::Matcher(Box::new(component.instantiate_trial(stage_log).await?))
            }
            WorldName::EventFilter => {
                AnyTrialInstance::Filter(Box::new(component.instantiate_trial(stage_log).await?))
            }
            WorldName::BootstrapHandler => {
                AnyTrialInstance::Bootstrap(Box::new(component.instantiate_trial(stage_log).await?))
            }
        })
    }
}

impl TrialComponent {
    /// Runs the manifest's self-tests, which are the last stage of admission. Returns all stages.
    pub async fn self_tests(&mut self) -> Result<Vec<StageResult>, Rejected> {
        let tested =
            in_world!(&mut self.trial_instance, trial => trial.self_tests(&mut self.stage_log).await);
        let stage_log = std::mem::take(&mut self.stage_log);
        match tested {
            Ok(()) => Ok(stages(stage_log, None)),
            Err(error) => Err(Rejected::new(stage_log, &error)),
        }
    }

    /// The configuration in the manifest.
    pub fn config(&self) -> &serde_json::Value {
        in_world!(&self.trial_instance, trial => &trial.manifest.config)
    }

    /// The cases of the manifest.
    pub fn given_self_tests(&self) -> &[serde_json::Value] {
        in_world!(&self.trial_instance, trial => &trial.manifest.self_tests)
    }

    /// The limit on the steps of an attempt.
    pub fn max_steps(&self) -> usize {
        in_world!(&self.trial_instance, trial => usize::try_from(trial.manifest.limits.steps).unwrap_or(usize::MAX))
    }

    /// The stages so far.
    pub fn stages(&self) -> Vec<StageResult> {
        stages(self.stage_log.clone(), None)
    }

    /// Replays the recorded calls of another version and compares the answers.
    pub async fn replay(&self, recorded: &RecordedCalls) -> ReplayReport {
        in_world!(&self.trial_instance, trial => replay(trial.replay_target(&self.engine), recorded, None).await)
    }

    /// Its description.
    pub fn summary(&self) -> ComponentSummary {
        fn of<W: Testable>(trial: &TrialInstance<W>) -> ComponentSummary {
            let (info, manifest) = (&trial.info, &trial.manifest);
            ComponentSummary {
                world: info.world.short(),
                version: info.version.clone(),
                summary: info.summary.clone(),
                digest: info.digest.clone(),
                imports: info.imports.clone(),
                grants: admission_record::grants(&manifest.grants),
                limits: admission_record::limits(&manifest.limits),
                manifest: Arc::clone(manifest),
            }
        }
        in_world!(&self.trial_instance, trial => of(trial))
    }
}

impl Rejected {
    fn new(stage_log: StageLog, error: &AdmissionError) -> Rejected {
        let reason = error.to_string();
        Rejected {
            stages: stages(stage_log, Some(&reason)),
            reason,
        }
    }
}

/// `rejection`: why the last stage rejected the component.
fn stages(stage_log: StageLog, rejection: Option<&str>) -> Vec<StageResult> {
    let records = stage_log.into_records();
    let last = records.len();
    let results = records.into_iter().zip(1..).map(|(record, number)| {
        let StageRecord {
            stage,
            note,
            duration,
        } = record;
        let rejection = rejection.filter(|_| number == last);
        StageResult {
            stage,
            ok: rejection.is_none(),
            detail: rejection.map_or(note, str::to_owned),
            millis: micros(duration) / 1000.0,
        }
    });
    results.collect()
}

/// A duration in microseconds, with fractions.
pub fn micros(time: Duration) -> f64 {
    // The clocks have a resolution of nanoseconds, so the conversion loses nothing.
    time.as_nanos() as f64 / 1000.0
}
