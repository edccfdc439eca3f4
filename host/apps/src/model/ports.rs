//! Service ports: a port of 0 gets a free number from a range and keeps it over updates.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::App;

/// The range of service ports.
pub(crate) const RANGE: RangeInclusive<u16> = 10_000..=20_000;

/// Assigns a service port from `free` to each port of 0. The port of the definition before with the
/// same name, or else in the same position, is kept. With `requirePorts` nothing is assigned: 0
/// means any port there. A port stays 0 when there is none free.
pub(crate) fn assign(app: &mut App, before: Option<&App>, mut free: impl FnMut() -> Option<u16>) {
    if app.require_ports {
        return;
    }
    let previous = before.map_or(&[][..], |before| &before.port_definitions);
    let mut taken: BTreeSet<u16> = app
        .port_definitions
        .iter()
        .map(|definition| definition.port)
        .collect();
    for index in 0..app.port_definitions.len() {
        if app.port_definitions[index].port != 0 {
            continue;
        }
        let named = app.port_definitions[index].name.as_deref();
        let kept = previous
            .iter()
            .find(|old| named.is_some() && old.name.as_deref() == named)
            .or_else(|| previous.get(index))
            .map(|old| old.port)
            .filter(|port| RANGE.contains(port) && !taken.contains(port));
        // Bounded: all that is free may be taken by this app.
        let mut search = std::iter::from_fn(&mut free).take(RANGE.len());
        let port = kept.or_else(|| search.find(|port| !taken.contains(port)));
        if let Some(port) = port {
            taken.insert(port);
            app.port_definitions[index].port = port;
        }
    }
}
