//! The plugin host without a daemon, for plugin authors: admission stage by stage, recorded cases
//! under the production linker and limits, and benchmarks of warm calls.
//!
//! It does no input or output and stores nothing: a case contains the answers to a probe's steps,
//! and the compiled component is dropped with the [`Workbench`]. A case has the form of a
//! manifest's `[[self-test]]` and an optional `name`; the manifest's documentation lists the keys
//! of each world.
//!
//! [`Workbench::test`] runs each case on its own instance, so that a trap affects no other case and the
//! memory shown is that of the case. [`Workbench::bench`] runs all cases repeatedly on one warm
//! instance; views and agent sets stay loaded, as in production.

mod bench;
mod cases;

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::{AdmissionContext, AdmissionError, Steps, ValidatedComponent},
    admission_record,
    cache::Cache,
    config::Config,
    engine::{
        CompilePriority, Compilers, Engine,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::Error,
    executor::GuestExecutor,
    manifest::Manifest,
    metrics::{Metrics, VersionMetrics},
    origin::{Files, Origin},
    pool::{ComponentInfo, Runtime},
    text::one_line,
    trust::{Signatures, Trust},
    world::WorldName,
};

pub use crate::admission::Stage;
pub use bench::BenchResult;
pub use cases::{Cases, CasesError, Report, Verdict};

/// The same code for each world, whose type is `$W`.
macro_rules! in_world {
    ($world:expr, $W:ident => $work:block) => {
        match $world {
            WorldName::CheckProbe => {
                type $W = Probe;
                $work
            }
            WorldName::AttributeMatcher => {
                type $W = Matcher;
                $work
            }
            WorldName::EventFilter => {
                type $W = Filter;
                $work
            }
            WorldName::BootstrapHandler => {
                type $W = Bootstrap;
                $work
            }
        }
    };
}

/// Maximum instances of a workbench: it creates one after the other.
const INSTANCES: u32 = 4;

/// A plugin host without serving plugins.
#[derive(Debug)]
pub struct Workbench {
    admission_context: AdmissionContext,
}

/// A component and its manifest.
#[derive(Clone, Debug)]
pub struct ComponentFiles {
    name: String,
    files: Files,
}

impl ComponentFiles {
    /// The plugin's name, the bytes of `NAME.wasm` and the text of `NAME.toml`.
    pub fn new(name: &str, component: Vec<u8>, manifest: String) -> ComponentFiles {
        ComponentFiles {
            name: one_line(name),
            files: Files {
                component: Arc::new(component),
                manifest: Some(manifest),
                origin: Origin::File { signature: None },
            },
        }
    }

    /// With the content of `NAME.wasm.sig`.
    pub fn signed(mut self, signature: Option<Vec<u8>>) -> ComponentFiles {
        self.files.origin = Origin::File { signature };
        self
    }
}

/// The result of an admission, stage by stage.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The stages, in order.
    pub stages: Vec<StageResult>,
    /// Why the last stage refused it. None: it would be admitted.
    pub refusal: Option<String>,
    /// Its description; none if it was refused before it was configured.
    pub component: Option<ComponentSummary>,
}

/// A stage of admission.
#[derive(Clone, Debug, Serialize)]
pub struct StageResult {
    /// Which.
    pub stage: Stage,
    /// False: the component is refused here.
    pub ok: bool,
    /// The result, or why it is refused.
    pub detail: String,
    /// Milliseconds it took.
    pub millis: f64,
}

/// The description of a component.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentSummary {
    /// `check-probe` and so on.
    pub world: &'static str,
    /// Its own version.
    pub version: String,
    /// One line.
    pub summary: String,
    /// `sha256:` and the component's digest.
    pub digest: String,
    /// The interfaces that it imports, without versions.
    pub imports: Vec<String>,
    /// Its grants.
    pub grants: serde_json::Value,
    /// Its limits.
    pub limits: serde_json::Value,
}

/// Why a component's cases were not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// It would not be admitted; `Workbench::examine` gives the details.
    #[error("a daemon would refuse it: {reason}")]
    Refused {
        /// Where.
        stage: Stage,
        /// Why.
        reason: String,
    },
    /// A case fails, so its duration means nothing.
    #[error("the case `{name}` fails, so its duration means nothing: {reason}")]
    Case {
        /// Which.
        name: String,
        /// The difference, or the error.
        reason: String,
    },
}

impl Workbench {
    /// Starts an engine without signature checks. Needs a Tokio runtime, like all methods here.
    pub fn new() -> Result<Workbench, Error> {
        Workbench::trusting(&Signatures::default())
    }

    /// The same with signature checks. Also fails for an invalid key.
    pub fn trusting(signatures: &Signatures) -> Result<Workbench, Error> {
        let metrics = Metrics::register(&mut Registry::default());
        let runtime = Runtime {
            engine: Engine::new(INSTANCES)?,
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
            executor: GuestExecutor::new().map_err(Error::Thread)?,
        };
        let config = Config {
            private: None,
            ..Config::new("")
        };
        let compilers = Compilers::new(config.compile_timeout, CompilePriority::Interactive);
        Ok(Workbench {
            admission_context: AdmissionContext {
                runtime,
                config: Arc::new(config),
                cache: Cache::open(None, compilers, metrics.cache()),
                trust: Arc::new(Trust::new(signatures)?),
            },
        })
    }

    /// Runs all stages of admission, the manifest's self-tests included.
    pub async fn examine(&self, work: &ComponentFiles) -> Examination {
        let mut steps = Steps::default();
        let outcome = self.described(work, &mut steps).await;
        let steps = steps.into_steps();
        let last = steps.len();
        let refused = outcome.as_ref().err().map(ToString::to_string);
        let stages = steps.into_iter().zip(1..).map(|(step, number)| {
            let refusal = refused.clone().filter(|_| number == last);
            StageResult {
                stage: step.stage,
                ok: refusal.is_none(),
                detail: refusal.unwrap_or(step.note),
                millis: micros(step.took) / 1000.0,
            }
        });
        Examination {
            stages: stages.collect(),
            refusal: refused.clone(),
            component: outcome.ok(),
        }
    }

    async fn described(
        &self,
        work: &ComponentFiles,
        steps: &mut Steps,
    ) -> Result<ComponentSummary, AdmissionError> {
        let case = self.examine_files(work, steps).await?;
        in_world!(case.world(), W => {
            let mut trial = case.instantiate_trial::<W>(steps).await?;
            trial.self_tests(steps).await?;
            Ok(ComponentSummary::of(&trial.info, &trial.manifest))
        })
    }

    /// Runs each case on its own instance, without the manifest's self-tests.
    pub async fn test(&self, work: &ComponentFiles, cases: &Cases) -> Result<Vec<Report>, NotAdmitted> {
        let mut steps = Steps::default();
        let engine = &self.admission_context.runtime.engine;
        let reports = async {
            let case = self.examine_files(work, &mut steps).await?;
            in_world!(case.world(), W => {
                let trial = case.instantiate_trial::<W>(&mut steps).await?;
                Ok(cases::run(engine, trial, cases).await)
            })
        };
        reports
            .await
            .map_err(|refused| NotAdmitted::refused(steps, &refused))
    }

    /// Runs the cases on a warm instance for about `time`, an equal share each.
    pub async fn bench(
        &self,
        work: &ComponentFiles,
        cases: &Cases,
        time: Duration,
    ) -> Result<Vec<BenchResult>, NotAdmitted> {
        let mut steps = Steps::default();
        let engine = &self.admission_context.runtime.engine;
        let figures = async {
            let case = self.examine_files(work, &mut steps).await?;
            in_world!(case.world(), W => {
                let trial = case.instantiate_trial::<W>(&mut steps).await?;
                Ok(bench::run(engine, trial, cases, time).await)
            })
        };
        figures
            .await
            .map_err(|refused| NotAdmitted::refused(steps, &refused))?
    }

    async fn examine_files<'a>(
        &'a self,
        work: &'a ComponentFiles,
        steps: &mut Steps,
    ) -> Result<ValidatedComponent<'a>, AdmissionError> {
        // No version serves whose imports could be compared.
        self.admission_context
            .examine(&work.name, &work.files, None, VersionMetrics::unseen(), steps)
            .await
    }
}

impl NotAdmitted {
    fn refused(steps: Steps, refused: &AdmissionError) -> NotAdmitted {
        let stage = steps.into_steps().last().map_or(Stage::Manifest, |it| it.stage);
        let reason = refused.to_string();
        NotAdmitted::Refused { stage, reason }
    }
}

impl ComponentSummary {
    fn of(info: &ComponentInfo, manifest: &Manifest) -> ComponentSummary {
        ComponentSummary {
            world: info.world.short(),
            version: info.version.clone(),
            summary: info.summary.clone(),
            digest: info.digest.clone(),
            imports: info.imports.clone(),
            grants: admission_record::grants(&manifest.grants),
            limits: admission_record::limits(&manifest.limits),
        }
    }
}

fn micros(time: Duration) -> f64 {
    // The clocks have a resolution of nanoseconds.
    time.as_nanos() as f64 / 1000.0
}
