//! The plugin host without a daemon, for plugin authors: admission stage by stage, recorded cases
//! under the production linker and limits, and benchmarks of warm calls.
//!
//! There is no input or output: a case contains the answers to a probe's steps. Only compiled
//! components are stored, if [`Workbench::caching`] names a directory. A case has the form of a
//! manifest's `[[self-test]]` and an optional `name`; the manifest's documentation lists the keys
//! of each world.
//!
//! [`Candidate::test`] runs each case on a separate instance, so that a trap affects no other case
//! and the reported memory is that of the case. [`Candidate::fuzz`] generates calls.
//! [`Candidate::replay`] repeats recorded calls, which [`export`] converts to cases.
//! [`Candidate::bench`] runs all cases repeatedly on one warm instance; views and agent sets stay
//! loaded, as in production.

mod bench;
mod cases;
mod fuzz;

use std::time::Duration;

use serde::Serialize;
use transom_plugin_cases::RecordedCalls;
use transom_plugin_host::{
    Error,
    trial::{Rejected, TrialComponent, TrialHost},
};
use transom_registry::Signatures;

pub use bench::BenchResult;
pub use cases::{Report, Verdict};
pub use fuzz::{Finding, FuzzPlan, FuzzReport, Input};
pub use transom_plugin_cases::{ANSWER_KEYS, Cases, CasesError, Exported, export};
pub use transom_plugin_host::trial::{
    CompileCache, ComponentFiles, ComponentSummary, ReplayReport, Stage, StageResult,
};

/// A plugin host without serving plugins.
#[derive(Debug)]
pub struct Workbench(TrialHost);

/// The result of an admission, stage by stage.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The stages, in order.
    pub stages: Vec<StageResult>,
    /// Why the last stage rejected it. `None`: it would be admitted.
    #[serde(rename = "refusal")]
    pub rejection: Option<String>,
    /// The component's description. `None` if it was rejected.
    pub component: Option<ComponentSummary>,
}

/// Why a component's cases were not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// It would not be admitted; `Workbench::examine` gives the details.
    #[error("a daemon would reject it: {reason}")]
    Rejected {
        /// The stage that rejected it.
        stage: Stage,
        /// The reason.
        reason: String,
    },
    /// A case fails, so its duration is meaningless.
    #[error("the case `{name}` fails, so its duration means nothing: {reason}")]
    Case {
        /// The name of the case.
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

    /// Starts an engine with signature checks. Also fails if a key is invalid.
    pub fn trusting(signatures: &Signatures) -> Result<Workbench, Error> {
        TrialHost::new(signatures).map(Workbench)
    }

    /// Returns the same workbench with a cache of compiled components.
    pub fn caching(self, cache: CompileCache) -> Workbench {
        Workbench(self.0.caching(cache))
    }

    /// Runs all stages of admission, including the manifest's self-tests.
    pub async fn examine(&self, files: &ComponentFiles) -> Examination {
        match self.run_stages(files).await {
            Ok((stages, component)) => Examination {
                stages,
                rejection: None,
                component: Some(component),
            },
            Err(rejected) => Examination {
                stages: rejected.stages,
                rejection: Some(rejected.reason),
                component: None,
            },
        }
    }

    async fn run_stages(
        &self,
        files: &ComponentFiles,
    ) -> Result<(Vec<StageResult>, ComponentSummary), Rejected> {
        let mut component = self.0.admit(files).await?;
        let stages = component.self_tests().await?;
        Ok((stages, component.summary()))
    }

    /// Runs the stages of admission, except for the manifest's self-tests.
    pub async fn admit(&self, files: &ComponentFiles) -> Result<Candidate, NotAdmitted> {
        self.0.admit(files).await.map(Candidate).map_err(not_admitted)
    }
}

fn not_admitted(rejected: Rejected) -> NotAdmitted {
    NotAdmitted::Rejected {
        stage: rejected.stages.last().map_or(Stage::Manifest, |it| it.stage),
        reason: rejected.reason,
    }
}

/// A component that passed all stages of admission except for the manifest's self-tests.
pub struct Candidate(TrialComponent);

impl Candidate {
    /// The stages, in order.
    pub fn stages(&self) -> Vec<StageResult> {
        self.0.stages()
    }

    /// Runs the manifest's self-tests, the last stage of admission.
    pub async fn self_tests(&mut self) -> Result<(), NotAdmitted> {
        let result = self.0.self_tests().await;
        result.map(drop).map_err(not_admitted)
    }

    /// Runs each case on its own instance.
    pub async fn test(&self, cases: &Cases) -> Vec<Report> {
        cases::run(&self.0, cases).await
    }

    /// Runs the cases on a warm instance for about `time` in total, with an equal share for each
    /// case.
    pub async fn bench(&self, cases: &Cases, time: Duration) -> Result<Vec<BenchResult>, NotAdmitted> {
        bench::run(&self.0, cases, time).await
    }

    /// Runs the component with generated calls and configurations, and searches for faults.
    pub async fn fuzz(&self, plan: FuzzPlan) -> Result<FuzzReport, NotAdmitted> {
        let result = fuzz::run(&self.0, plan).await;
        result.map_err(|reason| NotAdmitted::Rejected {
            stage: Stage::Trial,
            reason,
        })
    }

    /// Replays recorded calls on the component, and compares its answers with the recorded ones.
    pub async fn replay(&self, recorded: &RecordedCalls) -> ReplayReport {
        self.0.replay(recorded).await
    }
}
