//! The plugin host without a daemon, for those who write plugins: what admission says step by step, recorded cases put through the
//! very linker, limits and conversions that serve, and how long warm calls take.
//!
//! Nothing is reached and nothing is kept: a probe's steps are answered from the case, the compiled component is forgotten with the
//! [`Workbench`]. A case has the form of a manifest's `[[self-test]]` and may have a `name`; each world has its own keys, see the
//! manifest's documentation.
//!
//! Cases of [`Workbench::test`] get an instance each, so that one that traps harms no other and the memory shown is its own. Those of
//! [`Workbench::bench`] are put to one warm instance again and again; views and agent sets stay loaded, as they do in service.

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

/// The same text for each world, whose type is called `$W` in it.
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

/// Instances that a workbench has room for: it makes one after the other.
const INSTANCES: u32 = 4;

/// A plugin host of which nothing serves.
#[derive(Debug)]
pub struct Workbench {
    admission_context: AdmissionContext,
}

/// A component and the manifest beside it.
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

    /// With what lies beside it as `NAME.wasm.sig`.
    pub fn signed(mut self, signature: Option<Vec<u8>>) -> ComponentFiles {
        self.files.origin = Origin::File { signature };
        self
    }
}

/// What the host says to a component, stage by stage.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The stages that were entered, in order.
    pub stages: Vec<StageResult>,
    /// Why it would be refused, at the last of the stages. None: it would serve.
    pub refusal: Option<String>,
    /// What is known of it; none where it was refused before it was configured.
    pub component: Option<ComponentSummary>,
}

/// A stage of admission.
#[derive(Clone, Debug, Serialize)]
pub struct StageResult {
    /// Which.
    pub stage: Stage,
    /// False: the component is refused here.
    pub ok: bool,
    /// What was found, or why it is refused.
    pub detail: String,
    /// Milliseconds it took.
    pub millis: f64,
}

/// What is known of a component that would serve.
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
    /// What its manifest grants.
    pub grants: serde_json::Value,
    /// What it may use.
    pub limits: serde_json::Value,
}

/// Why a component's cases were not put to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// It would not be admitted; `Workbench::examine` has the whole story.
    #[error("it would be refused: {reason}")]
    Refused {
        /// Where.
        stage: Stage,
        /// Why.
        reason: String,
    },
    /// A case fails, so its duration means nothing.
    #[error("the case `{name}` is not passed, so there is nothing to measure: {reason}")]
    Case {
        /// Which.
        name: String,
        /// What was found, or why there was no answer.
        reason: String,
    },
}

impl Workbench {
    /// Starts an engine. Nobody has to have signed anything. Needs a runtime, as everything here.
    pub fn new() -> Result<Workbench, Error> {
        Workbench::trusting(&Signatures::default())
    }

    /// The same for a host that looks at signatures. Fails with what is wrong with a key, too.
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

    /// What the host would say at admission, the manifest's self-tests included.
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

    /// Puts each case to an instance of its own. The manifest's self-tests are not among them.
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

    /// Puts the cases to one warm instance for about `time`, an equal share of it each.
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
        // Nothing serves, so that there is nothing it could import more than that.
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
    // Whole nanoseconds are all that the clocks tell.
    time.as_nanos() as f64 / 1000.0
}
