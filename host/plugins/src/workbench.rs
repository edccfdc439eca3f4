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
    admission::{Case, Desk, Refused, Steps},
    cache::Cache,
    config::Config,
    engine::{
        Compilers, Engine, Haste,
        worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
    },
    error::Error,
    lanes::Lanes,
    manifest::Manifest,
    metrics::{Metrics, Stats},
    origin::{Files, Origin},
    pool::{Facts, Surroundings},
    records,
    text::one_line,
    trust::{Signatures, Trust},
    world::WorldName,
};

pub use crate::admission::Stage;
pub use bench::Figures;
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
    desk: Desk,
}

/// A component and the manifest beside it.
#[derive(Clone, Debug)]
pub struct Work {
    name: String,
    files: Files,
}

impl Work {
    /// The plugin's name, the bytes of `NAME.wasm` and the text of `NAME.toml`.
    pub fn new(name: &str, component: Vec<u8>, manifest: String) -> Work {
        Work {
            name: one_line(name),
            files: Files {
                component: Arc::new(component),
                manifest: Some(manifest),
                origin: Origin::File { signature: None },
            },
        }
    }

    /// With what lies beside it as `NAME.wasm.sig`.
    pub fn signed(mut self, signature: Option<Vec<u8>>) -> Work {
        self.files.origin = Origin::File { signature };
        self
    }
}

/// What the host says to a component, stage by stage.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The stages that were entered, in order.
    pub stages: Vec<Passed>,
    /// Why it would be refused, at the last of the stages. None: it would serve.
    pub refusal: Option<String>,
    /// What is known of it; none where it was refused before it was configured.
    pub facts: Option<Described>,
}

/// A stage of admission.
#[derive(Clone, Debug, Serialize)]
pub struct Passed {
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
pub struct Described {
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
pub enum Unusable {
    /// It would not be admitted; `Workbench::examine` has the whole story.
    #[error("it would be refused: {reason}")]
    Refused {
        /// Where.
        stage: Stage,
        /// Why.
        reason: String,
    },
    /// A case is not passed: how long it takes to fail is of no use.
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
        let around = Surroundings {
            engine: Engine::new(INSTANCES)?,
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
            lanes: Lanes::new().map_err(Error::Thread)?,
        };
        let config = Config {
            private: None,
            ..Config::new("")
        };
        let compilers = Compilers::new(config.compile_timeout, Haste::Some);
        Ok(Workbench {
            desk: Desk {
                around,
                config: Arc::new(config),
                cache: Cache::open(None, compilers, metrics.cache()),
                trust: Arc::new(Trust::new(signatures)?),
            },
        })
    }

    /// What the host would say at admission, the manifest's self-tests included.
    pub async fn examine(&self, work: &Work) -> Examination {
        let mut steps = Steps::default();
        let outcome = self.described(work, &mut steps).await;
        let steps = steps.into_steps();
        let last = steps.len();
        let refused = outcome.as_ref().err().map(ToString::to_string);
        let stages = steps.into_iter().zip(1..).map(|(step, number)| {
            let refusal = refused.clone().filter(|_| number == last);
            Passed {
                stage: step.stage,
                ok: refusal.is_none(),
                detail: refusal.unwrap_or(step.note),
                millis: micros(step.took) / 1000.0,
            }
        });
        Examination {
            stages: stages.collect(),
            refusal: refused.clone(),
            facts: outcome.ok(),
        }
    }

    async fn described(&self, work: &Work, steps: &mut Steps) -> Result<Described, Refused> {
        let case = self.looked_at(work, steps).await?;
        in_world!(case.world(), W => {
            let mut tried = case.try_out::<W>(steps).await?;
            tried.self_tests(steps).await?;
            Ok(Described::of(&tried.facts, &tried.manifest))
        })
    }

    /// Puts each case to an instance of its own. The manifest's self-tests are not among them.
    pub async fn test(&self, work: &Work, cases: &Cases) -> Result<Vec<Report>, Unusable> {
        let mut steps = Steps::default();
        let engine = &self.desk.around.engine;
        let reports = async {
            let case = self.looked_at(work, &mut steps).await?;
            in_world!(case.world(), W => {
                let tried = case.try_out::<W>(&mut steps).await?;
                Ok(cases::run(engine, tried, cases).await)
            })
        };
        reports
            .await
            .map_err(|refused| Unusable::refused(steps, &refused))
    }

    /// Puts the cases to one warm instance for about `time`, an equal share of it each.
    pub async fn bench(&self, work: &Work, cases: &Cases, time: Duration) -> Result<Vec<Figures>, Unusable> {
        let mut steps = Steps::default();
        let engine = &self.desk.around.engine;
        let figures = async {
            let case = self.looked_at(work, &mut steps).await?;
            in_world!(case.world(), W => {
                let tried = case.try_out::<W>(&mut steps).await?;
                Ok(bench::run(engine, tried, cases, time).await)
            })
        };
        figures
            .await
            .map_err(|refused| Unusable::refused(steps, &refused))?
    }

    async fn looked_at<'a>(&'a self, work: &'a Work, steps: &mut Steps) -> Result<Case<'a>, Refused> {
        // Nothing serves, so that there is nothing it could import more than that.
        self.desk
            .examine(&work.name, &work.files, None, Stats::unseen(), steps)
            .await
    }
}

impl Unusable {
    fn refused(steps: Steps, refused: &Refused) -> Unusable {
        let stage = steps.into_steps().last().map_or(Stage::Manifest, |it| it.stage);
        let reason = refused.to_string();
        Unusable::Refused { stage, reason }
    }
}

impl Described {
    fn of(facts: &Facts, manifest: &Manifest) -> Described {
        Described {
            world: facts.world.short(),
            version: facts.version.clone(),
            summary: facts.summary.clone(),
            digest: facts.digest.clone(),
            imports: facts.imports.clone(),
            grants: records::grants(&manifest.grants),
            limits: records::limits(&manifest.limits),
        }
    }
}

fn micros(time: Duration) -> f64 {
    // Whole nanoseconds are all that the clocks tell.
    time.as_nanos() as f64 / 1000.0
}
