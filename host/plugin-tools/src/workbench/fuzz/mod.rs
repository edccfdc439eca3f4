//! Runs a component with generated calls and configurations, and searches for faults: traps,
//! exceeded limits, and answers that the interface forbids.
//!
//! A generated call is a case, so that `transom plugin test` can repeat it. Each case runs on a
//! separate instance, under the limits of the manifest. The same seed generates the same calls on
//! every machine. An attempt that does not end within its maximum number of steps does not count as
//! a fault, because a real peer might never answer either.

mod configurations;
mod random;
mod shrink;
mod values;
mod worlds;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use transom_common::text::clip;
use transom_plugin_host::trial::{CaseInstance, TrialComponent};

use values::Values;

/// Number of faults after which the search ends.
const MAX_FINDINGS: usize = 10;
/// Maximum number of attempts to shrink an input.
const MAX_SHRINK_ATTEMPTS: usize = 500;
/// Every eighth input is a configuration.
const CONFIGURATION_INTERVAL: u64 = 8;
/// Maximum number of bytes of a fault in a case's name.
const MAX_FAULT_BYTES: usize = 80;

/// Limits of a search, and its seed.
#[derive(Clone, Copy, Debug)]
pub struct FuzzPlan {
    /// The same seed makes the same calls.
    pub seed: u64,
    /// Maximum number of calls and configurations together.
    pub calls: u64,
    /// Maximum duration.
    pub time: Duration,
}

/// The numbers of generated inputs, and the faults found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FuzzReport {
    /// The seed of the plan.
    pub seed: u64,
    /// Number of calls. An attempt of a probe counts as one.
    pub calls: u64,
    /// Number of configurations that were accepted.
    pub accepted: u64,
    /// Number of configurations that the component or its schema rejected.
    pub rejected: u64,
    /// The faults, at most ten. Each kind is reported once.
    pub findings: Vec<Finding>,
}

/// A fault, and the smallest input found that causes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The input.
    #[serde(flatten)]
    pub input: Input,
    /// The fault.
    pub fault: String,
}

/// The input of a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// A case without an expectation.
    Case(Value),
    /// A document for `configure` that matches the schema.
    Config(Value),
}

impl FuzzReport {
    /// Returns the cases that cause faults, with names, for a file.
    pub fn cases(&self) -> Vec<Value> {
        let cases = self.findings.iter().filter_map(|it| match &it.input {
            Input::Case(Value::Object(case)) => {
                let mut case = case.clone();
                let fault = clip(&it.fault, MAX_FAULT_BYTES);
                case.insert("name".to_owned(), format!("seed {}: {fault}", self.seed).into());
                Some(Value::Object(case))
            }
            _ => None,
        });
        cases.collect()
    }
}

/// The outcome of one input.
enum Outcome {
    /// The component answered or rejected.
    Passed,
    /// The input is impossible: the case contradicts itself, or an answer does not fit the step.
    Impossible,
    Fault(String),
}

pub(super) async fn run(component: &TrialComponent, plan: FuzzPlan) -> Result<FuzzReport, String> {
    let mut first = component.instance().await?;
    let schema = first.schema().await?;
    drop(first);
    let schema: Option<Value> = schema
        .as_deref()
        .map(|it| serde_json::from_str(it).unwrap_or_default());
    let mut examples: Vec<&Value> = vec![component.config()];
    examples.extend(component.given_self_tests());
    let mut values = Values::new(plan.seed, &examples);
    let world = component.summary().world;
    let mut report = FuzzReport {
        seed: plan.seed,
        ..FuzzReport::default()
    };
    let mut reported_faults = BTreeSet::new();
    let start = Instant::now();
    for number in 1..=plan.calls {
        if start.elapsed() >= plan.time || report.findings.len() >= MAX_FINDINGS {
            break;
        }
        let (input, outcome) = if number % CONFIGURATION_INTERVAL == 0 {
            let document = configurations::configuration(schema.as_ref(), component.config(), &mut values);
            let configured = component.configure(&document).await;
            match configured {
                Ok(true) => report.accepted += 1,
                Ok(false) => report.rejected += 1,
                Err(_) => {}
            }
            let outcome = configured.map_or_else(Outcome::Fault, |_| Outcome::Passed);
            (Input::Config(document), outcome)
        } else {
            report.calls += 1;
            let mut case = Value::Object(worlds::case(world, &mut values));
            let outcome = complete_and_run(component, &mut case, &mut values).await;
            (Input::Case(case), outcome)
        };
        // The input is repeated, because a time limit may be exceeded once on a busy machine.
        if let Outcome::Fault(fault) = outcome
            && !reported_faults.contains(&fault)
            && causes_fault(component, &input).await
        {
            reported_faults.insert(fault.clone());
            let input = shrink_input(component, input).await;
            report.findings.push(Finding { input, fault });
        }
    }
    Ok(report)
}

/// Executes a case. For an attempt of a probe, an answer to each step is generated first and added
/// to the case.
async fn complete_and_run(component: &TrialComponent, case: &mut Value, values: &mut Values) -> Outcome {
    let steps = if case.get("answers").is_some() {
        component.max_steps()
    } else {
        0
    };
    for _ in 0..steps {
        let Ok(parsed) = component.case(case) else {
            return Outcome::Impossible;
        };
        let mut instance = match component.instance().await {
            Ok(instance) => instance,
            Err(fault) => return Outcome::Fault(fault),
        };
        let step = match instance.requested_step(&parsed).await {
            Ok(Some(step)) => step,
            Ok(None) => break,
            Err(_) => return fault_of(&instance).map_or(Outcome::Impossible, Outcome::Fault),
        };
        let answer = worlds::answer(step, values);
        if let Some(answers) = case.get_mut("answers").and_then(Value::as_array_mut) {
            answers.push(answer);
        }
    }
    run_case(component, case).await
}

/// Executes a case without changes.
async fn run_case(component: &TrialComponent, case: &Value) -> Outcome {
    let Ok(case) = component.case(case) else {
        return Outcome::Impossible;
    };
    let mut instance = match component.instance().await {
        Ok(instance) => instance,
        Err(fault) => return Outcome::Fault(fault),
    };
    let result = instance.execute(&case).await;
    // The guest resources of the case are dropped below, which also calls the component.
    drop(case);
    if result.is_ok()
        && let Err(fault) = instance.drop_resources().await
    {
        return Outcome::Fault(fault);
    }
    match fault_of(&instance) {
        Some(fault) => Outcome::Fault(fault),
        None if result.is_ok() => Outcome::Passed,
        None => Outcome::Impossible,
    }
}

fn fault_of(instance: &CaseInstance) -> Option<String> {
    instance.last_trap().map(|it| it.fault)
}

async fn causes_fault(component: &TrialComponent, input: &Input) -> bool {
    match input {
        Input::Case(case) => matches!(run_case(component, case).await, Outcome::Fault(_)),
        Input::Config(config) => config.is_object() && component.configure(config).await.is_err(),
    }
}

/// Shrinks an input. Returns the smallest one found that still causes a fault.
async fn shrink_input(component: &TrialComponent, mut input: Input) -> Input {
    let mut attempts = 0;
    'smaller: loop {
        let (document, to_input): (&Value, fn(Value) -> Input) = match &input {
            Input::Case(case) => (case, Input::Case),
            Input::Config(config) => (config, Input::Config),
        };
        for candidate in shrink::smaller(document).into_iter().map(to_input) {
            attempts += 1;
            if attempts > MAX_SHRINK_ATTEMPTS {
                break 'smaller;
            }
            if causes_fault(component, &candidate).await {
                input = candidate;
                continue 'smaller;
            }
        }
        break;
    }
    input
}
