//! Parses limits, the resources of an executor, residency, secrets and the environment.

use std::collections::BTreeMap;

use serde_json::Value;

use super::limits::Unlimited;
use super::reader::Reader;
use super::reader::read_choice;
use super::{
    EnvValue, ExecutorResources, Residency, ResourceLimit, ResourceLimits, SecretDef, TaskLostBehavior,
};

/// Parses `resourceLimits`.
pub(super) fn read_limits(reader: &mut Reader<'_>) -> Option<ResourceLimits> {
    reader.nested("resourceLimits", |limits| ResourceLimits {
        cpus: read_limit(limits, "cpus"),
        mem: read_limit(limits, "mem"),
    })
}

fn read_limit(limits: &mut Reader<'_>, key: &str) -> Option<ResourceLimit> {
    match limits.raw(key)? {
        Value::String(text) if text == "unlimited" => Some(ResourceLimit::Unlimited(Unlimited::Unlimited)),
        Value::String(text) => {
            limits.problem(key, "error.unknown.enum.literal");
            limits.problem(key, format!("got {text}, expected a number or unlimited"));
            None
        }
        _ => limits.number(key, 0.0).map(ResourceLimit::Amount),
    }
}

/// Parses `executorResources`. Upstream's minimum of CPUs is 0.1, which its parser truncates to 0.
pub(super) fn read_executor_resources(reader: &mut Reader<'_>) -> Option<ExecutorResources> {
    reader.nested("executorResources", |resources| ExecutorResources {
        cpus: resources.number("cpus", 0.0).unwrap_or(0.1),
        mem: resources.number("mem", 32.0).unwrap_or(32.0),
        disk: resources.number("disk", 10.0).unwrap_or(10.0),
    })
}

/// Parses `residency`.
pub(super) fn read_residency(reader: &mut Reader<'_>) -> Option<Residency> {
    reader.nested("residency", |residency| Residency {
        relaunch_escalation_timeout_seconds: residency
            .integer("relaunchEscalationTimeoutSeconds")
            .unwrap_or(3600),
        task_lost_behavior: read_choice(
            residency,
            "taskLostBehavior",
            &[
                ("WAIT_FOREVER", TaskLostBehavior::WaitForever),
                ("RELAUNCH_AFTER_TIMEOUT", TaskLostBehavior::RelaunchAfterTimeout),
            ],
        )
        .unwrap_or(TaskLostBehavior::WaitForever),
    })
}

/// Parses `secrets`.
pub(super) fn read_secrets(reader: &mut Reader<'_>) -> Option<BTreeMap<String, SecretDef>> {
    let names: Vec<String> = reader.map("secrets")?.keys().cloned().collect();
    reader.nested("secrets", |secrets| {
        let read = |name: String| {
            let source = secrets.nested(&name, |secret| {
                secret.required("source", "a secret needs its source")
            });
            if source.is_none() && secrets.raw(&name).is_none() {
                secrets.problem(&name, "error.expected.jsobject");
            }
            Some((name, SecretDef { source: source?? }))
        };
        names.into_iter().filter_map(read).collect()
    })
}

/// Parses an environment, the member `key`: texts, and references to secrets.
pub(super) fn read_env(reader: &mut Reader<'_>, key: &str) -> Option<BTreeMap<String, EnvValue>> {
    let members = reader.map(key)?;
    reader.nested(key, |env| {
        let mut values = BTreeMap::new();
        for (name, value) in members {
            let value = match value {
                Value::String(text) => Some(EnvValue::Plain(text.clone())),
                Value::Object(_) => env
                    .nested(name, |value| {
                        value.required("secret", "expected the name of a secret")
                    })
                    .flatten()
                    .map(|secret| EnvValue::Secret { secret }),
                _ => {
                    env.problem(name, "error.expected.jsstring");
                    None
                }
            };
            values.extend(value.map(|value| (name.clone(), value)));
        }
        values
    })
}
