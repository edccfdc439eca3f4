//! Runs recorded cases on an instance.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{OfWorld, TrialComponent, in_world};
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
    self_test::{Answer, Awaited, PreparedCase, Running, Testable, awaited},
};

/// A case of a component's world, parsed once. It has the keys of a manifest's `[[self-test]]`.
pub struct Case(CaseOf);

enum CaseOf {
    Probe(PreparedCase<Probe>),
    Matcher(PreparedCase<Matcher>),
    Filter(PreparedCase<Filter>),
    Bootstrap(PreparedCase<Bootstrap>),
}

/// An instance that runs cases.
pub struct CaseInstance(InstanceOf);

enum InstanceOf {
    Probe(Box<Running<Probe>>),
    Matcher(Box<Running<Matcher>>),
    Filter(Box<Running<Filter>>),
    Bootstrap(Box<Running<Bootstrap>>),
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
    ($instance:expr, $case:expr, ($running:ident, $prepared:ident) => $work:expr) => {
        match ($instance, $case) {
            (InstanceOf::Probe($running), CaseOf::Probe($prepared)) => $work,
            (InstanceOf::Matcher($running), CaseOf::Matcher($prepared)) => $work,
            (InstanceOf::Filter($running), CaseOf::Filter($prepared)) => $work,
            (InstanceOf::Bootstrap($running), CaseOf::Bootstrap($prepared)) => $work,
            _ => Err("the case is of another world".to_owned()),
        }
    };
}

/// Runs the same code for an instance of each world.
macro_rules! in_instance {
    ($instance:expr, $running:ident => $work:expr) => {
        match $instance {
            InstanceOf::Probe($running) => $work,
            InstanceOf::Matcher($running) => $work,
            InstanceOf::Filter($running) => $work,
            InstanceOf::Bootstrap($running) => $work,
        }
    };
}

impl TrialComponent {
    /// Parses a case, without its `name`. The error names the mistake in it.
    pub fn case(&self, case: &Value) -> Result<Case, String> {
        Ok(Case(match &self.inner {
            OfWorld::Probe(_) => CaseOf::Probe(PreparedCase::read(case)?),
            OfWorld::Matcher(_) => CaseOf::Matcher(PreparedCase::read(case)?),
            OfWorld::Filter(_) => CaseOf::Filter(PreparedCase::read(case)?),
            OfWorld::Bootstrap(_) => CaseOf::Bootstrap(PreparedCase::read(case)?),
        }))
    }

    /// Creates a configured instance with its own measurements. The error is the reason of a
    /// failure.
    pub async fn instance(&self) -> Result<CaseInstance, String> {
        let context = in_world!(&self.inner, trial => trial.new_context());
        self.instance_of(&context).await
    }

    /// Creates another instance that continues the measurements of an earlier one.
    pub async fn successor(&self, earlier: &CaseInstance) -> Result<CaseInstance, String> {
        let context = in_instance!(&earlier.0, running => Arc::clone(&running.context));
        self.instance_of(&context).await
    }

    /// Configures a separate instance with another document, after a check against the component's
    /// schema, as admission does. `Ok(false)`: the document is rejected. The error is a fault.
    pub async fn configure(&self, document: &Value) -> Result<bool, String> {
        async fn with<W: Testable>(
            trial: &TrialInstance<W>,
            engine: &Engine,
            document: &Value,
        ) -> Result<bool, String> {
            let context = trial.context_with(document.to_string());
            let mut running = Running::<W>::unconfigured(engine, &trial.pre, &context).await?;
            let schema = running.schema().await?;
            if schema::check(schema.as_deref(), document).is_err() {
                return Ok(false);
            }
            let configured = running.instance.configure().await;
            Ok(configured.map_err(|error| error.to_string())?.is_ok())
        }
        in_world!(&self.inner, trial => with(trial, &self.engine, document).await)
    }

    async fn instance_of(&self, context: &Arc<VersionContext>) -> Result<CaseInstance, String> {
        let engine = &self.engine;
        Ok(CaseInstance(match &self.inner {
            OfWorld::Probe(it) => InstanceOf::Probe(Box::new(Running::new(engine, &it.pre, context).await?)),
            OfWorld::Matcher(it) => {
                InstanceOf::Matcher(Box::new(Running::new(engine, &it.pre, context).await?))
            }
            OfWorld::Filter(it) => {
                InstanceOf::Filter(Box::new(Running::new(engine, &it.pre, context).await?))
            }
            OfWorld::Bootstrap(it) => {
                InstanceOf::Bootstrap(Box::new(Running::new(engine, &it.pre, context).await?))
            }
        }))
    }
}

impl Case {
    /// The expected answer. `None` if the case has no expectation.
    pub fn expected(&self) -> Option<&Answer> {
        match &self.0 {
            CaseOf::Probe(it) => it.expected.as_ref(),
            CaseOf::Matcher(it) => it.expected.as_ref(),
            CaseOf::Filter(it) => it.expected.as_ref(),
            CaseOf::Bootstrap(it) => it.expected.as_ref(),
        }
    }
}

impl CaseInstance {
    /// Executes a case, and returns the answer reduced to the expected keys. The error is the
    /// reason why there is no answer.
    pub async fn execute(&mut self, case: &Case) -> Result<Answer, String> {
        with_case!(&mut self.0, &case.0, (running, prepared) => {
            prepared.execute(&mut running.instance, &running.shared).await
        })
    }

    /// Returns what a probe requests after the last answer of a case. `None` if the attempt is
    /// over, or if the world has no steps.
    pub async fn awaited(&mut self, case: &Case) -> Result<Option<Awaited>, String> {
        match (&mut self.0, &case.0) {
            (InstanceOf::Probe(running), CaseOf::Probe(prepared)) => {
                awaited(&mut running.instance, &running.shared, &prepared.question).await
            }
            _ => Ok(None),
        }
    }

    /// The component's configuration schema. `None` if it takes no configuration.
    pub async fn schema(&mut self) -> Result<Option<String>, String> {
        in_instance!(&mut self.0, running => running.schema().await)
    }

    /// Executes a case and discards the answer, for measurements.
    pub async fn run(&mut self, case: &Case) -> Result<(), String> {
        with_case!(&mut self.0, &case.0, (running, prepared) => {
            prepared.run(&mut running.instance, &running.shared).await
        })
    }

    /// Drops the guest resources of dropped cases. This calls the component.
    pub async fn drop_resources(&mut self) -> Result<(), String> {
        in_instance!(&mut self.0, running => running.drop_resources().await)
    }

    /// Counts one run. Returns true if the instance has to be replaced now
    /// (`limits.max-calls-per-instance`).
    pub fn should_recycle(&mut self) -> bool {
        in_instance!(&mut self.0, running => running.instance.should_recycle())
    }

    /// The resources that it has used so far.
    pub fn usage(&self) -> Usage {
        let (calls, cpu) = in_instance!(&self.0, running => running.instance.usage());
        Usage {
            calls,
            cpu,
            memory: in_instance!(&self.0, running => running.context.metrics.memory_peak()),
        }
    }

    /// Its last fault.
    pub fn last_trap(&self) -> Option<Trap> {
        in_instance!(&self.0, running => running.context.metrics.last_fault())
    }
}
