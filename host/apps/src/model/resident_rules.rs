//! Rules of apps with persistent volumes, whose instances stay on their agents.

use super::{App, ExternalVolume, UnreachableStrategy, Volume};
use transom_web::Problems;

/// Adds the problems of an app with persistent volumes. Neither it nor an app with an unshared
/// volume of a Docker driver may exceed the wanted number of instances.
pub(super) fn check(app: &App, problems: &mut Problems) {
    let single = |volume: &Volume| matches!(volume, Volume::External { external: ExternalVolume::Dvdi(volume), .. } if !volume.shared);
    let over = app.upgrade_strategy.maximum_over_capacity;
    if over != 0.0 && (app.is_resident() || app.volumes().iter().any(single)) {
        problems.add(
            "/upgradeStrategy/maximumOverCapacity",
            format!("got {over:?}, expected 0.0"),
        );
    }
    if !app.is_resident() {
        if app.residency.is_some() {
            problems.add("/", "App must contain persistent volumes and define residency");
        }
        return;
    }
    if app.role == "*" {
        problems.add("/role", "Resident apps cannot have the role *");
    }
    if !matches!(app.accepted_resource_roles.as_slice(), []) && app.accepted_resource_roles != ["*"] {
        problems.add(
            "/acceptedResourceRoles",
            "A resident app must have `acceptedResourceRoles = [\"*\"]`.",
        );
    }
    if !matches!(app.unreachable_strategy, UnreachableStrategy::Disabled(_)) {
        problems.add(
            "/unreachableStrategy",
            "unreachableStrategy must be disabled for resident tasks",
        );
    }
}

/// All problems of a change from `old` to `new`. The reserved resources and volumes of an app with
/// persistent volumes cannot change. Its role can, with `force`.
#[expect(
    clippy::float_cmp,
    reason = "a number that a client did not change is the same"
)]
pub(crate) fn check_update(old: &App, new: &App, force: bool) -> Problems {
    let mut problems = Problems::default();
    if !old.is_resident() {
        return problems;
    }
    if persistent(old) != persistent(new) {
        problems.add("/container/volumes", "Persistent volumes can not be changed!");
    }
    for (field, same) in [
        ("/cpus", old.cpus == new.cpus),
        ("/mem", old.mem == new.mem),
        ("/disk", old.disk == new.disk),
        ("/gpus", old.gpus == new.gpus),
    ] {
        if !same {
            problems.add(
                field,
                "Services with persistent volumes configured may not change resource requirements.",
            );
        }
    }
    if host_ports(old) != host_ports(new) || old.require_ports != new.require_ports {
        problems.add(
            "/",
            "Services with persistent volumes configured may not change host ports.",
        );
    }
    if old.role != new.role && !force {
        problems.add(
            "/role",
            "The role of a service with persistent volumes may only be changed with force",
        );
    }
    problems
}

fn persistent(app: &App) -> Vec<&Volume> {
    let volumes = app.volumes().iter();
    volumes
        .filter(|volume| matches!(volume, Volume::Persistent { .. }))
        .collect()
}

/// The ports of the agent that a definition requests; `Some(0)`: any.
fn host_ports(app: &App) -> Vec<Option<u16>> {
    let defined = app.port_definitions().iter().map(|port| Some(port.port));
    let mapped = app.port_mappings().iter().map(|port| port.host_port);
    defined.chain(mapped).collect()
}
