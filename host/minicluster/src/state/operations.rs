//! Operations on resources (reservations, persistent volumes) and their outcomes.
//!
//! An operation changes the accepted offers and the agent's total. Its outcome is sent to
//! frameworks that gave it an id. The outcome of an operation that the agent carried out is sent
//! again until it is acknowledged.

use super::{
    Agent, AgentId, Connection, Effect, FrameworkId, State, accepted::Accepted, accepted::is_valid_id,
    model::OperationOutcome,
};
use crate::wire::{json as doc, resources::Resources};
use base64::Engine;
use serde_json::{Value, json};
use std::{
    path::{Component, Path, PathBuf},
    time::Instant,
};

/// Maximum outcomes that wait for an acknowledgement. Beyond it, the outcome with the smallest key
/// is dropped.
const MAX_PENDING_OUTCOMES: usize = 10_000;

/// A change of resources from one bundle to another.
struct ResourceChange {
    from: Resources,
    to: Resources,
}

impl State {
    /// Executes an operation other than a launch, and reports its outcome.
    pub(super) fn run_resource_operation(&mut self, accepted: &mut Accepted, operation: &Value, kind: &str) {
        let outcome = parse_change(operation, kind, &accepted.role)
            .and_then(|change| self.apply(accepted, kind, &change));
        if let Err(why) = &outcome {
            tracing::warn!(framework = %accepted.framework, kind, why, "offer operation rejected");
        }
        let Some(id) = operation.get("id") else { return };
        let mut status = doc::object(json!({
            "operation_id": id,
            "state": if outcome.is_ok() { "OPERATION_FINISHED" } else { "OPERATION_ERROR" },
            "agent_id": doc::id(accepted.agent.as_str()),
        }));
        if let Err(why) = outcome {
            status.insert("message".to_owned(), json!(why));
        } else {
            // The agent carried it out, so the outcome is sent again until it is acknowledged.
            let uuid = base64::engine::general_purpose::STANDARD.encode(super::new_uuid().as_bytes());
            status.insert("uuid".to_owned(), json!({ "value": uuid }));
            self.store_outcome(&accepted.framework, id, Value::Object(status.clone()));
        }
        self.send_operation_status(&accepted.framework, &Value::Object(status));
    }

    fn store_outcome(&mut self, framework: &FrameworkId, operation: &Value, status: Value) {
        if self.operations.len() >= MAX_PENDING_OUTCOMES {
            self.operations.pop_first();
        }
        let wait = self.config.update_retry;
        let outcome = OperationOutcome {
            status,
            retry_at: Instant::now() + wait,
            wait,
        };
        let operation_id = doc::text(operation, &["value"]).unwrap_or_default().to_owned();
        self.operations.insert((framework.clone(), operation_id), outcome);
    }

    fn send_operation_status(&mut self, framework: &FrameworkId, status: &Value) {
        self.send(
            framework,
            &json!({"type": "UPDATE_OPERATION_STATUS", "update_operation_status": {"status": status}}),
        );
    }

    fn apply(&mut self, accepted: &mut Accepted, kind: &str, change: &ResourceChange) -> Result<(), String> {
        if !accepted.remaining.contains(&change.from) {
            return Err(format!(
                "Invalid {kind} Operation: {} does not contain {}",
                accepted.remaining.describe(&accepted.role),
                change.from.describe(&accepted.role)
            ));
        }
        let Some(agent) = self.agents.get_mut(&accepted.agent) else {
            return Err(format!("Agent {} is gone", accepted.agent));
        };
        for volume in change.to.volumes() {
            let key = (volume.role, volume.id);
            if agent.volumes.contains_key(&key) {
                return Err(format!("Persistent volume '{}' exists already", key.1));
            }
            // Each volume gets a new directory, so that the deletion of the previous one cannot
            // affect it.
            let disk = volume.root.as_ref().unwrap_or(&agent.work_dir);
            let directory = disk.join("volumes").join("roles").join(&key.0).join(&key.1);
            agent
                .volumes
                .insert(key, directory.join(super::new_uuid().to_string()));
        }
        for volume in change.from.volumes() {
            if let Some(directory) = agent.volumes.remove(&(volume.role, volume.id)) {
                self.effects.push(Effect::DeleteVolume(directory));
            }
        }
        agent.total.subtract(&change.from);
        agent.total.add(&change.to);
        accepted.remaining.subtract(&change.from);
        accepted.remaining.add(&change.to);
        Ok(())
    }

    /// The persistent volumes of a task or an executor: the directory of each, and its name in the
    /// sandbox.
    pub(super) fn volume_links(&self, agent: &AgentId, resources: &Resources) -> Vec<(PathBuf, PathBuf)> {
        let Some(agent) = self.agents.get(agent) else {
            return Vec::new();
        };
        let links = resources.volumes().into_iter().filter_map(|volume| {
            let directory = agent.volumes.get(&(volume.role, volume.id))?;
            Some((directory.clone(), PathBuf::from(volume.path)))
        });
        links.collect()
    }

    /// `ACKNOWLEDGE_OPERATION_STATUS`: stops sending the outcome again.
    pub(super) fn acknowledge_operation(&mut self, id: &FrameworkId, acknowledge: &Value) {
        let operation = doc::text(acknowledge, &["operation_id", "value"]).unwrap_or_default();
        let key = (id.clone(), operation.to_owned());
        let stored = self.operations.get(&key);
        if stored.is_some_and(|outcome| outcome.status["uuid"]["value"] == acknowledge["uuid"]) {
            self.operations.remove(&key);
        }
    }

    /// Sends outcomes whose retry is due; drops those of removed frameworks.
    pub(super) fn retry_operations(&mut self, now: Instant) {
        let frameworks = &self.frameworks;
        let forgotten_frameworks = &self.forgotten_frameworks;
        self.operations
            .retain(|(id, _), _| frameworks.contains_key(id) || forgotten_frameworks.contains_key(id));
        let mut due = Vec::new();
        for ((framework, _), outcome) in &mut self.operations {
            if outcome.retry_at <= now {
                outcome.wait = (outcome.wait * 2).min(super::updates::MAX_RETRY_INTERVAL);
                outcome.retry_at = now + outcome.wait;
                due.push((framework.clone(), outcome.status.clone()));
            }
        }
        for (framework, status) in due {
            self.send_operation_status(&framework, &status);
        }
    }

    /// `RECONCILE_OPERATIONS`: reports the outcome of operations that are not acknowledged, and all
    /// others as unknown.
    pub(super) fn reconcile_operations(&mut self, id: &FrameworkId, reconcile: &Value) {
        for operation in doc::list(reconcile, &["operations"]) {
            let operation_id = doc::text(operation, &["operation_id", "value"]).unwrap_or_default();
            let known = self.operations.get(&(id.clone(), operation_id.to_owned()));
            let status = known.map_or_else(|| unknown_status(operation), |outcome| outcome.status.clone());
            self.send_operation_status(id, &status);
        }
    }

    /// `MESSAGE`: custom executors receive it, the other executors drop it. The agent's journal
    /// records it in either case.
    pub(super) fn message(&mut self, id: &FrameworkId, message: &Value) {
        let agent = AgentId::from(doc::text(message, &["agent_id", "value"]).unwrap_or_default());
        let line = json!({
            "event": "message",
            "framework": id.as_str(),
            "executor": message["executor_id"]["value"],
            "data": message["data"],
            "at": super::epoch(),
        });
        // As with real masters, a message to an agent whose connection is broken is dropped.
        let is_disconnected = |agent: &Agent| matches!(agent.connection, Connection::Broken(_));
        if self
            .agents
            .get(&agent)
            .is_some_and(|agent| !is_disconnected(agent))
        {
            self.send_order(&agent.clone(), Effect::ExecutorMessage(agent, line));
        }
    }
}

fn unknown_status(operation: &Value) -> Value {
    let message = if operation.get("agent_id").is_some() {
        "Reconciliation: Operation is unknown"
    } else {
        "Reconciliation: Operation is unknown and no 'agent_id' was provided"
    };
    let mut status = doc::object(json!({
        "operation_id": operation["operation_id"],
        "state": "OPERATION_UNKNOWN",
        "message": message,
    }));
    doc::copy(operation, &mut status, &["agent_id"]);
    Value::Object(status)
}

/// The change of a valid operation.
fn parse_change(operation: &Value, kind: &str, role: &str) -> Result<ResourceChange, String> {
    let read = |part: &str, list: &str| {
        let bundle = Resources::parse(doc::list(operation, &[part, list]))?;
        if bundle.is_empty() {
            return Err(format!(
                "Invalid {kind} Operation: Expecting '{part}.{list}' to be present"
            ));
        }
        Ok(bundle)
    };
    let invalid = |why: String| format!("Invalid {kind} Operation: {why}");
    match kind {
        "RESERVE" => {
            let to = read("reserve", "resources")?;
            let from = to.without_reservation().map_err(invalid)?;
            match to.reserved().keys().find(|reserved| *reserved != role) {
                Some(other) => Err(invalid(format!(
                    "A resource is reserved for role '{other}' but allocated to role '{role}'"
                ))),
                None => Ok(ResourceChange { from, to }),
            }
        }
        "UNRESERVE" => {
            let from = read("unreserve", "resources")?;
            let to = from.without_reservation().map_err(invalid)?;
            Ok(ResourceChange { from, to })
        }
        "CREATE" => {
            let to = read("create", "volumes")?;
            let from = to.without_volume().map_err(invalid)?;
            check_volumes(&to).map_err(invalid)?;
            Ok(ResourceChange { from, to })
        }
        "DESTROY" => {
            let from = read("destroy", "volumes")?;
            let to = from.without_volume().map_err(invalid)?;
            Ok(ResourceChange { from, to })
        }
        other => Err(format!(
            "Operation {other} is not supported: this cluster reserves, and creates volumes of fixed size"
        )),
    }
}

fn check_volumes(bundle: &Resources) -> Result<(), String> {
    let volumes = bundle.volumes();
    for (index, volume) in volumes.iter().enumerate() {
        if !is_valid_id(&volume.id) {
            return Err(format!(
                "Persistence ID '{}' is not a valid path component",
                volume.id
            ));
        }
        if volumes[..index].iter().any(|other| other.id == volume.id) {
            return Err(format!("Persistence ID '{}' is used twice", volume.id));
        }
        let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if volume.path.is_empty() || !Path::new(&volume.path).components().all(plain) {
            return Err(format!(
                "Container path '{}' of volume '{}' must be relative to the sandbox, and inside it",
                volume.path, volume.id
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(id: &str, path: &str, reservations: &Value) -> Result<ResourceChange, String> {
        let volume = json!({
            "name": "disk", "type": "SCALAR", "scalar": {"value": 5.0}, "reservations": reservations,
            "disk": {"persistence": {"id": id}, "volume": {"container_path": path, "mode": "RW"}},
        });
        parse_change(&json!({"create": {"volumes": [volume]}}), "CREATE", "a")
    }

    #[test]
    fn invalid_volumes_are_rejected() {
        let reserved = json!([{"type": "DYNAMIC", "role": "a"}]);
        assert!(create("v", "data/x", &reserved).is_ok());
        let cases = [
            ("v", "data", json!([]), "unreserved"),
            ("..", "data", reserved.clone(), "path component"),
            ("v", "../data", reserved.clone(), "inside it"),
            ("v", "/data", reserved, "inside it"),
        ];
        for (id, path, reservations, why) in cases {
            let Err(rejection) = create(id, path, &reservations) else {
                panic!("{id} at {path} is rejected");
            };
            assert!(rejection.contains(why), "{rejection}");
        }
    }

    #[test]
    fn resources_are_reserved_for_the_role_they_are_offered_to() {
        let resource = json!({"name": "cpus", "type": "SCALAR", "scalar": {"value": 1.0},
            "reservations": [{"type": "DYNAMIC", "role": "a"}]});
        let reserve = json!({"reserve": {"resources": [resource]}});
        assert!(parse_change(&reserve, "RESERVE", "a").is_ok());
        assert!(parse_change(&reserve, "RESERVE", "b").is_err());
        assert!(parse_change(&json!({"reserve": {"resources": []}}), "RESERVE", "a").is_err());
    }
}
