//! Machines, as operators name them, and the validation of schedules and lists of machines.

use super::Agent;
use crate::wire::json as doc;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// A machine: the host name and the address of its agents. Host names are not case-sensitive. A
/// missing part reads as empty, so that it matches no agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineId {
    hostname: String,
    ip: String,
}

impl MachineId {
    /// Reads a `MachineID` message.
    pub(crate) fn parse(id: &Value) -> Self {
        let field = |name: &str| doc::text(id, &[name]).unwrap_or_default().to_owned();
        Self {
            hostname: field("hostname").to_lowercase(),
            ip: field("ip"),
        }
    }

    /// The machine of an agent.
    pub(crate) fn of(agent: &Agent) -> Self {
        Self {
            hostname: agent.config.hostname.to_lowercase(),
            ip: agent.addr.ip().to_string(),
        }
    }
}

/// The mode of a machine in the schedule. Machines that are not in it are up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineMode {
    /// Its maintenance is planned: frameworks are asked to leave it.
    Draining,
    /// Its maintenance has started: it has no agents.
    Down,
}

impl MachineMode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Draining => "DRAINING",
            Self::Down => "DOWN",
        }
    }
}

/// A machine in the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// `MachineID`, as the operator sent it.
    pub(crate) id: Value,
    pub(crate) mode: MachineMode,
    /// `Unavailability`.
    pub(crate) unavailability: Value,
}

/// The machines of a new schedule. A machine that was in the previous one keeps its mode. The error
/// is the text of the 400 response.
pub(crate) fn parse_schedule(
    schedule: &Value,
    previous: &BTreeMap<MachineId, Machine>,
) -> Result<BTreeMap<MachineId, Machine>, String> {
    let mut machines = BTreeMap::new();
    for window in doc::list(schedule, &["windows"]) {
        let ids = doc::list(window, &["machine_ids"]);
        if ids.is_empty() {
            return Err("List of machines in the maintenance window is empty".to_owned());
        }
        let unavailability = &window["unavailability"];
        if doc::number(unavailability, &["duration", "nanoseconds"]).is_some_and(|duration| duration < 0.0) {
            return Err("Unavailability 'duration' is negative".to_owned());
        }
        for id in ids {
            check_machine(id)?;
            let key = MachineId::parse(id);
            let machine = Machine {
                id: id.clone(),
                mode: previous.get(&key).map_or(MachineMode::Draining, |seen| seen.mode),
                unavailability: unavailability.clone(),
            };
            if machines.insert(key, machine).is_some() {
                return Err(duplicate_error(id));
            }
        }
    }
    let removed = previous
        .iter()
        .find(|(key, machine)| machine.mode == MachineMode::Down && !machines.contains_key(*key));
    match removed {
        Some((_, machine)) => Err(format!(
            "Machine '{}' is deactivated and cannot be removed from the schedule",
            machine.id
        )),
        None => Ok(machines),
    }
}

/// Checks an operator's list of machines whose maintenance starts or stops.
pub(crate) fn check_machines(ids: &[Value]) -> Result<(), String> {
    if ids.is_empty() {
        return Err("List of machines is empty".to_owned());
    }
    let mut seen = BTreeSet::new();
    for id in ids {
        check_machine(id)?;
        if !seen.insert(MachineId::parse(id)) {
            return Err(duplicate_error(id));
        }
    }
    Ok(())
}

fn check_machine(id: &Value) -> Result<(), String> {
    let MachineId { hostname, ip } = MachineId::parse(id);
    if hostname.is_empty() && ip.is_empty() {
        return Err("Both 'hostname' and 'ip' for a machine are empty".to_owned());
    }
    if !ip.is_empty() && ip.parse::<Ipv4Addr>().is_err() {
        return Err(format!("Failed to parse IPv4: {ip}"));
    }
    Ok(())
}

fn duplicate_error(id: &Value) -> String {
    format!("Machine '{id}' appears more than once in the schedule")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn window(ids: &Value) -> Value {
        json!({"machine_ids": ids, "unavailability": {"start": {"nanoseconds": 1}}})
    }

    #[test]
    fn invalid_schedules_are_rejected_with_the_masters_messages() {
        let negative = json!({"start": {"nanoseconds": 1}, "duration": {"nanoseconds": -1}});
        let cases = [
            (
                json!([window(&json!([]))]),
                "List of machines in the maintenance window is empty",
            ),
            (
                json!([{"machine_ids": [{"hostname": "a"}], "unavailability": negative}]),
                "Unavailability 'duration' is negative",
            ),
            (
                json!([window(&json!([{}]))]),
                "Both 'hostname' and 'ip' for a machine are empty",
            ),
            (
                json!([window(&json!([{"hostname": "a", "ip": "10.0.0"}]))]),
                "Failed to parse IPv4: 10.0.0",
            ),
            (
                json!([
                    window(&json!([{"hostname": "a", "ip": "10.0.0.1"}])),
                    window(&json!([{"hostname": "A", "ip": "10.0.0.1"}]))
                ]),
                r#"Machine '{"hostname":"A","ip":"10.0.0.1"}' appears more than once in the schedule"#,
            ),
        ];
        for (windows, expected) in cases {
            let rejected = parse_schedule(&json!({"windows": windows}), &BTreeMap::new());
            assert_eq!(rejected.unwrap_err(), expected, "{windows}");
        }
        assert!(parse_schedule(&json!({}), &BTreeMap::new()).unwrap().is_empty());
    }

    #[test]
    fn machines_keep_their_mode_and_stay_in_the_schedule_while_they_are_down() {
        let one = json!({"windows": [window(&json!([{"hostname": "a"}]))]});
        let mut previous = parse_schedule(&one, &BTreeMap::new()).unwrap();
        assert!(
            parse_schedule(&json!({"windows": []}), &previous)
                .unwrap()
                .is_empty()
        );
        for machine in previous.values_mut() {
            assert_eq!(machine.mode, MachineMode::Draining);
            machine.mode = MachineMode::Down;
        }
        let two = json!({"windows": [window(&json!([{"hostname": "A"}, {"ip": "10.0.0.1"}]))]});
        let after = parse_schedule(&two, &previous).unwrap();
        let modes: Vec<MachineMode> = after.values().map(|machine| machine.mode).collect();
        assert_eq!(modes, [MachineMode::Draining, MachineMode::Down]);
        assert_eq!(
            parse_schedule(&json!({}), &previous).unwrap_err(),
            r#"Machine '{"hostname":"a"}' is deactivated and cannot be removed from the schedule"#
        );
    }

    #[test]
    fn lists_of_machines_have_valid_and_distinct_ones() {
        let cases = [
            (json!([]), "List of machines is empty"),
            (json!([{}]), "Both 'hostname' and 'ip' for a machine are empty"),
            (json!([{"ip": "x"}]), "Failed to parse IPv4: x"),
            (
                json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]),
                r#"Machine '{"ip":"10.0.0.1"}' appears more than once in the schedule"#,
            ),
        ];
        for (ids, expected) in cases {
            let ids = ids.as_array().unwrap();
            assert_eq!(check_machines(ids).unwrap_err(), expected);
        }
        assert!(check_machines(&[json!({"hostname": "a"}), json!({"hostname": "b"})]).is_ok());
    }
}
