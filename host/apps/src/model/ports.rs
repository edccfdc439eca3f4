//! Service ports: a port of 0 gets a free number from a range and keeps it over updates.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use super::App;

/// Assigns a service port from `free` to each port of 0. The port of the definition `before` with
/// the same name, or else in the same position, is kept if it lies in `range`. With `requirePorts`
/// nothing is assigned, because 0 then means any port. A port stays 0 if no service port is free.
pub(crate) fn assign(
    app: &mut App,
    before: Option<&App>,
    range: &RangeInclusive<u16>,
    mut free: impl FnMut() -> Option<u16>,
) {
    if app.require_ports {
        return;
    }
    let previous = before.map(named).unwrap_or_default();
    let mut by_name = HashMap::new();
    for (name, port) in &previous {
        if let Some(name) = name {
            by_name.entry(name.as_str()).or_insert(*port);
        }
    }
    let mut taken: BTreeSet<u16> = app.service_ports().collect();
    let wanted = named(app);
    let mut slots = slots(app);
    let mut is_exhausted = false;
    for (index, (name, port)) in wanted.into_iter().enumerate() {
        if port != 0 {
            continue;
        }
        let previous_port = name
            .and_then(|name| by_name.get(name.as_str()))
            .or_else(|| previous.get(index).map(|(_, port)| port))
            .copied()
            .filter(|port| range.contains(port) && !taken.contains(port));
        // The search is bounded, because this app may already have taken all free ports, and it is
        // not repeated when it has found none.
        let port = match previous_port {
            None if is_exhausted => None,
            None => {
                let mut search = std::iter::from_fn(&mut free).take(range.len());
                let found = search.find(|port| !taken.contains(port));
                is_exhausted = found.is_none();
                found
            }
            kept => kept,
        };
        if let (Some(port), Some(slot)) = (port, slots.get_mut(index)) {
            taken.insert(port);
            **slot = port;
        }
    }
}

/// The name and the service port of each port.
fn named(app: &App) -> Vec<(Option<String>, u16)> {
    let defined = app.port_definitions().iter().map(|port| port.name.clone());
    let mapped = app.port_mappings().iter().map(|port| port.name.clone());
    defined.chain(mapped).zip(app.service_ports()).collect()
}

/// The place of the service port of each port.
fn slots(app: &mut App) -> Vec<&mut u16> {
    let definitions = app.port_definitions.iter_mut().flatten();
    let mappings = app
        .container
        .iter_mut()
        .flat_map(|it| &mut it.port_mappings)
        .flatten();
    definitions
        .map(|port| &mut port.port)
        .chain(mappings.map(|mapping| &mut mapping.service_port))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::app;
    use serde_json::{Value, json};

    const RANGE: RangeInclusive<u16> = 10_000..=20_000;

    fn with_ports(ports: &Value) -> App {
        app(&json!({"cmd": "sleep 1", "portDefinitions": ports}))
    }

    fn with_mappings(ports: &Value) -> App {
        app(&json!({
            "cmd": "sleep 1", "networks": [{"mode": "container/bridge"}],
            "container": {"type": "MESOS", "portMappings": ports},
        }))
    }

    /// The ports of the range that are not in use, in order.
    fn free(used: &[u16]) -> impl FnMut() -> Option<u16> {
        let mut ports = RANGE.filter(|port| !used.contains(port));
        move || ports.next()
    }

    fn assigned(mut app: App, previous: Option<&App>, used: &[u16]) -> Vec<u16> {
        assign(&mut app, previous, &RANGE, free(used));
        app.service_ports().collect()
    }

    #[test]
    fn ports_of_zero_get_the_next_free_number() {
        for (app, expected) in [
            (
                with_ports(&json!([{"port": 0}, {"port": 80}, {}])),
                vec![10_001, 80, 10_002],
            ),
            (
                with_mappings(&json!([{}, {"servicePort": 80}, {"servicePort": 10_001}])),
                vec![10_002, 80, 10_001],
            ),
        ] {
            assert_eq!(assigned(app, None, &[10_000]), expected);
        }
    }

    #[test]
    fn assigned_ports_are_kept_by_name_or_position() {
        let mut old = with_mappings(&json!([{"name": "a"}, {"name": "b"}]));
        assign(&mut old, None, &RANGE, free(&[]));
        let swapped = with_mappings(&json!([{"name": "b"}, {"name": "a"}]));
        assert_eq!(assigned(swapped, Some(&old), &[]), [10_001, 10_000]);
        let renamed = with_mappings(&json!([{"name": "c"}, {"name": "b"}]));
        assert_eq!(assigned(renamed, Some(&old), &[]), [10_000, 10_001]);
        let host = with_ports(&json!([{"name": "b"}]));
        assert_eq!(
            assigned(host, Some(&old), &[]),
            [10_001],
            "over a change of the network"
        );
    }

    #[test]
    fn required_ports_are_not_assigned() {
        let app = app(&json!({"cmd": "sleep 1", "requirePorts": true, "portDefinitions": [{"port": 0}]}));
        assert_eq!(assigned(app, None, &[]), [0]);
    }
}
