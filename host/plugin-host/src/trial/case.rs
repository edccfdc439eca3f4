//! Runs recorded cases on an instance.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use transom_plugin_cases::Answer;

use super::{AnyTrialInstance, TrialComponent, in_world};
use crate::{
    lifecycle::admission::TrialInstance,
    manifest::schema,
    observe::status::Trap,
    runtime::{
        engine::{
            Engine,
            worlds::{bootstrap::Bootstrap, events::Filter, matcher::Matcher, probe::Probe},
        },
        version_context::VersionContext,
    },
    self_test::{PreparedCase, RequestedStep, TestInstance, Testable, requested_step},
};

/// A case of a component's world, parsed once. It has the keys of a manifest's `[[self-test]]`.
pub struct Case(AnyCase);

enum AnyCase {
    Probe(PreparedCase<Probe>),
    Matcher(PreparedCase<Matcher>),
    Filter(PreparedCase<Filter>),
    Bootstrap(PreparedCase<Bootstrap>),
}

/// An instance that runs cases.
pub struct CaseInstance(AnyInstance);

enum AnyInstance {
    Probe(Box<TestInstance<Probe>>),
    Matcher(Box<TestInstance<Matcher>>),
    Filter(Box<TestInstance<Filter>>),
    Bootstrap(Box<TestInstance<Bootstrap>>),
}

/// The resources that an instance has used, including its creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Calls into the instance.
    pub calls: u64,
    /// Processor time of these calls.
    pub cpu: Duration,
    /// Peak linear memory in bytes.
    pub memory: u64,
}

/// Runs the same code for a case and an instance of one world. Different worlds are an error.
macro_rules! with_case {
    ($instance:expr, $case:expr, ($test_instance:ident, $prepared:ident) => $work:expr) => {
        match ($instance, $case) {
            (AnyInstance::Probe($test_instance), AnyCase::Probe($prepared)) => $work,
            (AnyInstance::Matcher($test_instance), AnyCase::Matcher($prepared)) => $work,
            (AnyInstance::Filter($test_instance), AnyCase::Filter($prepared)) => $work,
            (AnyInstance::Bootstrap($test_instance), AnyCase::Bootstrap($prepared)) => $work,
            _ => Err("the case is of another world".to_owned()),
        }
    };
}

/// Runs the same code for an instance of each world.
macro_rules! in_instance {
    ($instance:expr, $test_instance:ident => $work:expr) => {
        match $instance {
            AnyInstance::Probe($test_instance) => $work,
            AnyInstance::Matcher($test_instance) => $work,
            AnyInstance::Filter($test_instance) => $work,
            AnyInstance::Bootstrap($test_instance) => $work,
        }
    };
}

impl TrialComponent {
    /// Parses a case, without its `name`. The error names the mistake in it.
    pub fn case(&self, case: &Value) -> Result<Case, String> {
        Ok(Case(match &self.trial_instance {
            AnyTrialInstance::Probe(_) => AnyCase::Probe(PreparedCase::parse(case)?),
            AnyTrialInstance::Matcher(_) => AnyCase::Matcher(PreparedCase::parse(case)?),
            AnyTrialInstance::Filter(_) => AnyCase::Filter(PreparedCase::parse(case)?),
            AnyTrialInstance::Bootstrap(_) => AnyCase::Bootstrap(PreparedCase::parse(case)?),
        }))
    }

    /// Creates a configured instance with its own measurements. The error is the reason of a
    /// failure.
    pub async fn instance(&self) -> Result<CaseInstance, String> {
        let context = in_world!(&self.trial_instance, trial => trial.new_context());
        self.instance_of(&context).await
    }

    /// Creates another instance that continues the measurements of an earlier one.
    pub async fn successor(&self, earlier: &CaseInstance) -> Result<CaseInstance, String> {
        let context = in_instance!(&earlier.0, test_instance => Arc::clone(&test_instance.context));
        self.instance_of(&context).await
    }

    /// Configures a separate instance with another document, after a check against the component's
    /// schema, as admission does. `Ok(false)`: the document is rejected. The error is a fault.
    pub async fn configure(&self, document: &Value) -> Result<bool, String> {
        async fn configure_trial<W: Testable>(
            trial: &TrialInstance<W>,
            engine: &Engine,
            document: &Value,
        ) -> Result<bool, String> {
            let context = trial.context_with(document.to_string());
            let mut test_instance = TestInstance::<W>::unconfigured(engine, &trial.pre, &context).await?;
            let schema = test_instance.schema().await?;
            if schema::check(schema.as_deref(), document).is_err() {
                return Ok(false);
            }
            let configured = test_instance.instance.configure().await;
            Ok(configured.map_err(|error| error.to_string())?.is_ok())
        }
        in_world!(&self.trial_instance, trial => configure_trial(trial, &self.engine, document).await)
    }

    async fn instance_of(&self, context: &Arc<VersionContext>) -> Result<CaseInstance, String> {
        let engine = &self.engine;
        Ok(CaseInstance(match &self.trial_instance {
            AnyTrialInstance::Probe(it) => {
                AnyInstance::Probe(Box::new(TestInstance::new(engine, &it.pre, context).await?))
            }
            AnyTrialInstance::Matcher(it) => {
                AnyInstance::Matcher(Box::new(TestInstance::new(engine, &it.pre, context).await?))
            }
            AnyTrialInstance::Filter(it) => {
                AnyInstance::Filter(Box::new(TestInstance::new(engine, &it.pre, context).await?))
            }
            AnyTrialInstance::Bootstrap(it) => {
                AnyInstance::Bootstrap(Box::new(TestInstance::new(engine, &it.pre, context).await?))
            }
        }))
    }
}

impl Case {
    /// The expected answer. `None` if the case has no expectation.
    pub fn expected(&self) -> Option<&Answer> {
        match &self.0 {
            AnyCase::Probe(it) => it.expected.as_ref(),
            AnyCase::Matcher(it) => it.expected.as_ref(),
            AnyCase::Filter(it) => it.expected.as_ref(),
            AnyCase::Bootstrap(it) => it.expected.as_ref(),
        }
    }
}

impl CaseInstance {
    /// Executes a case, and returns the answer reduced to the expected keys. The error is the
    /// reason why there is no answer.
    pub async fn execute(&mut self, case: &Case) -> Result<Answer, String> {
        with_case!(&mut self.0, &case.0, (test_instance, prepared) => {
            prepared.execute(&mut test_instance.instance, &test_instance.shared).await
        })
    }

    /// Returns what a probe requests after the last answer of a case. `None` if the attempt is
    /// over, or if the world has no steps.
    pub async fn requested_step(&mut self, case: &Case) -> Result<Option<RequestedStep>, String> {
        match (&mut self.0, &case.0) {
            (AnyInstance::Probe(test_instance), AnyCase::Probe(prepared)) => {
                requested_step(
                    &mut test_instance.instance,
                    &test_instance.shared,
                    &prepared.question,
                )
                .await
            }
            _ => Ok(None),
        }
    }

    /// The component's configuration schema. `None` if it takes no configuration.
    pub async fn schema(&mut self) -> Result<Option<String>, String> {
        in_instance!(&mut self.0, test_instance => test_instance.schema().await)
    }

    /// Executes a case and discards the answer, for measurements.
    pub async fn run(&mut self, case: &Case) -> Result<(), String> {
        with_case!(&mut self.0, &case.0, (test_instance, prepared) => {
            prepared.run(&mut test_instance.instance, &test_instance.shared).await
        })
    }

    /// Drops the guest resources of dropped cases. This calls the component.
    pub async fn drop_resources(&mut self) -> Result<(), String> {
        in_instance!(&mut self.0, test_instance => test_instance.drop_resources().await)
    }

    /// Counts one run. Returns true if the instance has to be replaced now
    /// (`limits.max-calls-per-instance`).
    pub fn should_recycle(&mut self) -> bool {
        in_instance!(&mut self.0, test_instance => test_instance.instance.should_recycle())
    }

    /// The resources that it has used so far.
    pub fn usage(&self) -> Usage {
        let (calls, cpu) = in_instance!(&self.0, test_instance => test_instance.instance.usage());
        Usage {
            calls,
            cpu,
            memory: in_instance!(&self.0, test_instance => test_instance.context.metrics.memory_peak()),
        }
    }

    /// Its last fault.
    pub fn last_trap(&self) -> Option<Trap> {
        in_instance!(&self.0, test_instance => test_instance.context.metrics.last_fault())
    }
}
