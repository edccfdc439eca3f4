//! A client's definition of a pod, and its conversion to a canonical one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::checks::read_check;
use super::container_input::{read_container, required_name};
use super::{Backoff, Placement, Pod, PodCheck, PodContainer, PodVolume, Scaling, Scheduling};
use crate::ids::SpecId;
use crate::model::app::Disabled;
use crate::model::container_input::read_linux_info;
use crate::model::input::{
    read_id, read_kill_selection, read_role, read_roles, read_unreachable, read_version,
};
use crate::model::limits_input::{read_env, read_executor_resources, read_secrets};
use crate::model::network_input::{fill_defaults, read_network};
use crate::model::network_rules::repeats;
use crate::model::reader::{Reader, nul_characters, read_choice};
use crate::model::volume_input::read_persistent;
use crate::model::{
    Constraint, DefinitionSettings, EnvValue, ExecutorResources, Invalid, KillSelection, LinuxInfo, Network,
    NetworkMode, SecretDef, UnreachableStrategy, UpgradeStrategy,
};
use crate::time::Moment;
use transom_web::Problems;

/// The operators of constraints in documents, with their canonical names.
const OPERATORS: &[(&str, &str)] = &[
    ("UNIQUE", "UNIQUE"),
    ("CLUSTER", "CLUSTER"),
    ("GROUP_BY", "GROUP_BY"),
    ("LIKE", "LIKE"),
    ("UNLIKE", "UNLIKE"),
    ("MAX_PER", "MAX_PER"),
    ("IS", "IS"),
];

/// A client's document. Pods have no partial updates: members that it omits get their defaults.
#[derive(Clone, Debug)]
pub(crate) struct PodInput {
    pub(crate) id: Option<SpecId>,
    labels: BTreeMap<String, String>,
    user: Option<String>,
    environment: BTreeMap<String, EnvValue>,
    containers: Vec<PodContainer>,
    secrets: BTreeMap<String, SecretDef>,
    volumes: Vec<PodVolume>,
    networks: Vec<Network>,
    instances: u32,
    scheduling: SchedulingInput,
    executor_resources: Option<ExecutorResources>,
    role: Option<String>,
    linux_info: Option<LinuxInfo>,
    legacy_shared_cgroups: bool,
    check: Option<PodCheck>,
    /// Violated rules, which are reported together with those of the whole definition.
    pub(crate) broken: Problems,
}

/// `scheduling`; the defaults of some members depend on the volumes.
#[derive(Clone, Debug, Default)]
struct SchedulingInput {
    backoff: Option<Backoff>,
    upgrade: Option<UpgradeStrategy>,
    placement: Placement,
    kill_selection: Option<KillSelection>,
    unreachable: Option<UnreachableStrategy>,
}

/// Parses a document and reports all problems of shape together.
pub(crate) fn read_pod(body: &Value) -> Result<PodInput, Invalid> {
    let mut shape = Problems::default();
    let Some(members) = body.as_object() else {
        shape.add("/", "error.expected.jsobject");
        return Err(Invalid::Shape(shape));
    };
    let mut input = read_members(&mut Reader::new(members, "", &mut shape));
    input.broken.extend(nul_characters(body));
    if shape.is_empty() {
        Ok(input)
    } else {
        Err(Invalid::Shape(shape))
    }
}

fn read_members(pod: &mut Reader<'_>) -> PodInput {
    let mut broken = Problems::default();
    let id = pod.string("id").and_then(|text| {
        // Upstream resolves relative ids only of apps.
        if !text.starts_with('/') {
            broken.add("/id", "Path needs to be absolute");
        }
        read_id(pod, "id", &text, &mut broken)
    });
    // The service sets the version; a client's version is only parsed.
    read_version(pod);
    let containers = pod.list("containers", |container| read_container(container, &mut broken));
    match &containers {
        None if pod.raw("containers").is_none() => {
            pod.problem("containers", "is undefined: a pod needs its containers");
        }
        Some(containers) if containers.is_empty() && is_empty(pod, "containers") => {
            pod.problem("containers", "error.minLength");
            pod.problem("containers", "must not be empty");
        }
        _ => {}
    }
    PodInput {
        id,
        labels: pod.texts("labels").unwrap_or_default(),
        user: pod.string("user"),
        environment: read_env(pod, "environment").unwrap_or_default(),
        containers: containers.unwrap_or_default(),
        secrets: read_secrets(pod).unwrap_or_default(),
        volumes: pod.list("volumes", read_volume).unwrap_or_default(),
        networks: pod
            .list("networks", |network| Some(read_network(network)))
            .unwrap_or_default(),
        instances: pod.nested("scaling", read_scaling).flatten().unwrap_or(1),
        scheduling: pod
            .nested("scheduling", |scheduling| {
                read_scheduling(scheduling, &mut broken)
            })
            .unwrap_or_default(),
        executor_resources: read_executor_resources(pod),
        role: read_role(pod),
        linux_info: pod.nested("linuxInfo", read_linux_info),
        legacy_shared_cgroups: pod.boolean("legacySharedCgroups").unwrap_or(false),
        check: pod.nested("check", read_check).flatten(),
        broken,
    }
}

fn is_empty(reader: &Reader<'_>, key: &str) -> bool {
    let items = reader.raw(key).and_then(Value::as_array);
    items.is_some_and(Vec::is_empty)
}

/// The kind of a volume is recognized by its members.
fn read_volume(volume: &mut Reader<'_>) -> Option<PodVolume> {
    const WHY: &str = "containers mount a volume by its name";
    if volume.raw("persistent").is_some() {
        let name = volume.required("name", WHY);
        let persistent = volume.nested("persistent", read_persistent).flatten();
        return Some(PodVolume::Persistent {
            name: name?,
            persistent: persistent?,
        });
    }
    if volume.raw("secret").is_some() {
        let name = volume.required("name", WHY);
        let secret = volume.required("secret", "a secret volume needs its secret");
        return Some(PodVolume::Secret {
            name: name?,
            secret: secret?,
        });
    }
    let name = required_name(volume, "name", WHY)?;
    if volume.raw("host").is_none() {
        return Some(PodVolume::Ephemeral { name });
    }
    let host = volume.string("host")?;
    Some(PodVolume::Host { name, host })
}

fn read_scaling(scaling: &mut Reader<'_>) -> Option<u32> {
    if scaling.raw("kind").is_none() {
        scaling.problem("kind", "is undefined: expected the kind of the scaling, fixed");
    }
    read_choice(scaling, "kind", &[("fixed", ())]);
    scaling.count("instances")
}

fn read_scheduling(scheduling: &mut Reader<'_>, broken: &mut Problems) -> SchedulingInput {
    SchedulingInput {
        backoff: scheduling.nested("backoff", |backoff| Backoff {
            initial_delay: backoff.number("backoff", 0.0).unwrap_or(BACKOFF.initial_delay),
            factor: backoff.number("backoffFactor", 0.0).unwrap_or(BACKOFF.factor),
            max_delay: backoff.number("maxLaunchDelay", 0.0).unwrap_or(BACKOFF.max_delay),
        }),
        upgrade: scheduling.nested("upgrade", |upgrade| UpgradeStrategy {
            minimum_health_capacity: upgrade.fraction("minimumHealthCapacity").unwrap_or(1.0),
            maximum_over_capacity: upgrade.fraction("maximumOverCapacity").unwrap_or(1.0),
        }),
        placement: scheduling
            .nested("placement", |placement| Placement {
                constraints: read_constraints(placement),
                accepted_resource_roles: read_roles(placement).unwrap_or_default(),
            })
            .unwrap_or_default(),
        kill_selection: read_kill_selection(scheduling),
        unreachable: read_unreachable(scheduling, broken),
    }
}

/// The default delays.
const BACKOFF: Backoff = Backoff {
    initial_delay: 1.0,
    factor: 1.15,
    max_delay: 300.0,
};

fn read_constraints(placement: &mut Reader<'_>) -> Vec<Constraint> {
    let constraints = placement.list("constraints", |constraint| {
        for key in ["fieldName", "operator"] {
            if constraint.raw(key).is_none() {
                constraint.problem(key, "is undefined: a constraint has a field and an operator");
            }
        }
        let field = constraint.string("fieldName");
        let operator = read_choice(constraint, "operator", OPERATORS);
        let value = constraint.string("value");
        let pair = [field?, operator?.to_owned()];
        Some(Constraint(pair.into_iter().chain(value).collect()))
    });
    let constraints = constraints.unwrap_or_default();
    if repeats(constraints.iter().map(|constraint| &constraint.0)) {
        placement.problem("constraints", "error.uniqueItems");
    }
    constraints
}

impl PodInput {
    /// Its constraints, to be validated.
    pub(crate) fn constraints(&self) -> &[Constraint] {
        &self.scheduling.placement.constraints
    }

    /// The canonical definition, with defaults for missing fields.
    pub(crate) fn pod(self, id: SpecId, settings: &DefinitionSettings, version: Moment) -> Pod {
        let persistent = |volume: &PodVolume| matches!(volume, PodVolume::Persistent { .. });
        let resident = self.volumes.iter().any(persistent);
        let mut networks = self.networks;
        fill_defaults(&mut networks, settings);
        let mut containers = self.containers;
        let container_network = |network: &Network| network.mode == NetworkMode::Container;
        if !networks.iter().any(container_network) {
            for endpoint in containers.iter_mut().flat_map(|it| &mut it.endpoints) {
                endpoint.host_port.get_or_insert(0);
            }
        }
        let scheduling = self.scheduling;
        Pod {
            id,
            labels: self.labels,
            version,
            user: self.user,
            environment: self.environment,
            containers,
            secrets: self.secrets,
            volumes: self.volumes,
            networks,
            scaling: Scaling::Fixed {
                instances: self.instances,
            },
            scheduling: Scheduling {
                backoff: scheduling.backoff.unwrap_or(BACKOFF),
                upgrade: scheduling.upgrade.unwrap_or_else(|| default_upgrade(resident)),
                placement: scheduling.placement,
                kill_selection: scheduling.kill_selection.unwrap_or(KillSelection::YoungestFirst),
                unreachable_strategy: scheduling
                    .unreachable
                    .unwrap_or_else(|| default_unreachable(resident)),
            },
            executor_resources: self.executor_resources.unwrap_or(ExecutorResources {
                cpus: 0.1,
                mem: 32.0,
                disk: 10.0,
            }),
            role: self.role.unwrap_or_else(|| settings.role.clone()),
            linux_info: self.linux_info,
            legacy_shared_cgroups: self.legacy_shared_cgroups,
            check: self.check,
            version_info: None,
        }
    }
}

/// Instances with persistent volumes must not exceed the wanted number.
fn default_upgrade(resident: bool) -> UpgradeStrategy {
    if resident {
        return UpgradeStrategy {
            minimum_health_capacity: 0.5,
            maximum_over_capacity: 0.0,
        };
    }
    UpgradeStrategy {
        minimum_health_capacity: 1.0,
        maximum_over_capacity: 1.0,
    }
}

/// A persistent volume exists only on its agent, so the instance is not replaced elsewhere.
fn default_unreachable(resident: bool) -> UnreachableStrategy {
    if resident {
        return UnreachableStrategy::Disabled(Disabled::Disabled);
    }
    UnreachableStrategy::Enabled {
        inactive_after_seconds: 0,
        expunge_after_seconds: 0,
    }
}
