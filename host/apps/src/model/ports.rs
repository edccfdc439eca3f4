//! Service ports: a port of 0 gets a free number from a range and keeps it over updates.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::{App, PortDefinition};

/// Assigns a service port from `range` that is not in `used` to each port of 0. The `previous`
/// definition's port with the same name, or else in the same position, is kept. With `requirePorts`
/// nothing is assigned: 0 means any port there. A port stays 0 when the range is exhausted.
pub(crate) fn assign(
    app: &mut App,
    previous: &[PortDefinition],
    used: &BTreeSet<u16>,
    range: &RangeInclusive<u16>,
) {
    if app.require_ports {
        return;
    }
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
            .filter(|port| range.contains(port) && !taken.contains(port));
        let port = kept.or_else(|| {
            range
                .clone()
                .find(|port| !used.contains(port) && !taken.contains(port))
        });
        if let Some(port) = port {
            taken.insert(port);
            app.port_definitions[index].port = port;
        }
    }
}
