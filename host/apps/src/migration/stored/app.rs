//! Definitions of apps, in the form in which Marathon's API shows them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::messages::{Command, Network, Port, Resource, Service};
use super::{StoredError, checks, container, unsupported, values};
use crate::time::Moment;

const OPERATORS: &[&str] = &["UNIQUE", "LIKE", "CLUSTER", "GROUP_BY", "UNLIKE", "MAX_PER", "IS"];
/// `EnvVarReference.Type`.
const SECRET: i32 = 1;

/// The document of a definition.
pub(super) fn document(service: &Service) -> Result<Value, StoredError> {
    reject_obsolete(service)?;
    let networks = networks(&service.networks)?;
    let is_host = networks.iter().all(|network| network["mode"] == "host");
    let container = service.container.as_ref();
    let container = container
        .map(|one| container::document(one, !is_host))
        .transpose()?;
    let resources = resources(&service.resources)?;
    let ports = is_host.then(|| service.port_definitions.iter().map(port).collect::<Vec<_>>());
    let mut document = json!({
        "id": service.id,
        "version": service.version,
        "versionInfo": version_info(service)?,
        "instances": service.instances,
        "executor": service.executor,
        "constraints": all(&service.constraints, |one| {
            let operator = values::named(OPERATORS, one.operator, "operator of a constraint")?;
            Ok(json!([Some(one.field.as_str()), Some(operator), one.value.as_deref()]))
        })?,
        "healthChecks": all(&service.health_checks, checks::health)?,
        "readinessChecks": all(&service.readiness_checks, checks::readiness)?,
        "check": service.check.as_ref().map(checks::check).transpose()?,
        "backoffSeconds": service.backoff.unwrap_or(1_000) / 1_000,
        "backoffFactor": service.backoff_factor.unwrap_or(1.15),
        "maxLaunchDelaySeconds": service.max_launch_delay.unwrap_or(3_600_000) / 1_000,
        "upgradeStrategy": service.upgrade_strategy.as_ref().map(|strategy| json!({
            "minimumHealthCapacity": strategy.minimum_health_capacity,
            "maximumOverCapacity": strategy.maximum_over_capacity.unwrap_or(1.0),
        })),
        "dependencies": service.dependencies,
        "storeUrls": service.store_urls,
        "requirePorts": service.require_ports.unwrap_or_default(),
        "container": container,
        "labels": values::pairs(&service.labels),
        "acceptedResourceRoles": service.accepted_resource_roles.as_ref().map(|roles| &roles.role),
        "portDefinitions": ports,
        "networks": networks,
        "secrets": service.secrets.iter()
            .map(|secret| (secret.id.clone(), json!({"source": secret.source})))
            .collect::<Map<_, _>>(),
        "env": env(service)?,
        "taskKillGracePeriodSeconds": service.task_kill_grace_period.map(|millis| millis / 1_000),
        "role": service.role,
        "tty": service.tty.as_ref().map(|_| true),
    });
    command(&service.cmd, &mut document);
    strategies(service, &mut document)?;
    for (name, value) in resources {
        document[name] = json!(value);
    }
    Ok(without_nulls(document))
}

/// Marathon reads what versions before 1.5 wrote only to migrate it.
fn reject_obsolete(service: &Service) -> Result<(), StoredError> {
    let obsolete = [
        ("ports", !service.obsolete_ports.is_empty()),
        ("container", service.obsolete_container.is_some()),
        ("ipAddress", service.obsolete_ip_address.is_some()),
    ];
    match obsolete.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(unsupported(format!(
            "its {name} has the form of a Marathon before 1.5"
        ))),
        None => Ok(()),
    }
}

fn version_info(service: &Service) -> Result<Option<Value>, StoredError> {
    let Some(scaling) = service.last_scaling_at else {
        return Ok(None);
    };
    let time = |millis: i64| {
        let time = Timestamp::from_millisecond(millis);
        let time = time.map_err(|_| unsupported(format!("{millis} is not a time")));
        time.map(|time| Moment::from(time).to_string())
    };
    let change = service.last_config_change_at.unwrap_or_default();
    Ok(Some(json!({
        "lastScalingAt": time(scaling)?, "lastConfigChangeAt": time(change)?,
    })))
}

/// Arguments take precedence over a value, which is then their first.
fn command(command: &Command, document: &mut Value) {
    let value = command.value.as_deref().filter(|value| !value.is_empty());
    document["cmd"] = json!(value.filter(|_| command.arguments.is_empty()));
    document["args"] = json!(command.arguments);
    document["user"] = json!(command.user);
    document["fetch"] = command
        .uris
        .iter()
        .map(|uri| {
            json!({
                "uri": uri.value,
                "executable": uri.executable.unwrap_or_default(),
                "extract": uri.extract.unwrap_or(true),
                "cache": uri.cache.unwrap_or_default(),
                "destPath": uri.output_file,
            })
        })
        .collect();
}

fn strategies(service: &Service, document: &mut Value) -> Result<(), StoredError> {
    document["unreachableStrategy"] = json!(service.unreachable_strategy.as_ref().map(|strategy| {
        match (strategy.inactive_after_seconds, strategy.expunge_after_seconds) {
            (Some(inactive), Some(expunge)) => {
                json!({"inactiveAfterSeconds": inactive, "expungeAfterSeconds": expunge})
            }
            _ => json!("disabled"),
        }
    }));
    let selection = service.kill_selection.unwrap_or(1);
    let selections = &["", "YOUNGEST_FIRST", "OLDEST_FIRST"];
    document["killSelection"] = json!(values::named(selections, selection, "killSelection")?);
    if let Some(residency) = &service.residency {
        let behavior = residency.task_lost_behavior.map(|behavior| {
            let behaviors = &["RELAUNCH_AFTER_TIMEOUT", "WAIT_FOREVER"];
            values::named(behaviors, behavior, "taskLostBehavior")
        });
        document["residency"] = json!({
            "relaunchEscalationTimeoutSeconds": residency.relaunch_escalation_timeout_seconds,
            "taskLostBehavior": behavior.transpose()?,
        });
    }
    if !service.executor_resources.is_empty() {
        document["executorResources"] = json!(resources(&service.executor_resources)?);
    }
    if let Some(limits) = &service.resource_limits {
        let limit = |limit: Option<f64>| match limit {
            Some(limit) if limit == f64::INFINITY => json!("unlimited"),
            limit => json!(limit),
        };
        document["resourceLimits"] = json!({"cpus": limit(limits.cpus), "mem": limit(limits.mem)});
    }
    Ok(())
}

fn env(service: &Service) -> Result<Map<String, Value>, StoredError> {
    let variables = service.cmd.environment.iter().flat_map(|env| &env.variables);
    let mut env: Map<String, Value> = variables
        .map(|pair| (pair.key.clone(), json!(pair.value.as_deref().unwrap_or_default())))
        .collect();
    for reference in &service.env_references {
        let secret = reference.secret.as_ref().filter(|_| reference.kind == SECRET);
        let secret = secret.ok_or_else(|| unsupported("its environment has an unknown reference"))?;
        env.insert(reference.name.clone(), json!({"secret": secret.value}));
    }
    Ok(env)
}

/// The quantity of each resource by the name of its member.
fn resources(resources: &[Resource]) -> Result<BTreeMap<&str, Value>, StoredError> {
    let quantity = |resource: &'_ Resource| {
        let value = resource.scalar.as_ref().map_or(0.0, |scalar| scalar.value);
        match resource.name.as_str() {
            "cpus" | "mem" | "disk" if value.is_finite() => Ok(json!(value)),
            // The API shows a whole number.
            "gpus" => match value.to_string().parse::<u32>() {
                Ok(gpus) => Ok(json!(gpus)),
                Err(_) => Err(unsupported(format!("{value} is not a number of GPUs"))),
            },
            name => Err(unsupported(format!(
                "{value} is not a quantity of a resource {name:?}"
            ))),
        }
    };
    let all = resources
        .iter()
        .map(|one| Ok((one.name.as_str(), quantity(one)?)));
    all.collect()
}

fn networks(networks: &[Network]) -> Result<Vec<Value>, StoredError> {
    if networks.is_empty() {
        return Ok(vec![json!({"mode": "host"})]);
    }
    all(networks, |network| {
        let mode = match network.mode {
            Some(1) => "host",
            Some(2) => "container",
            Some(3) => "container/bridge",
            _ => return Err(unsupported("one of its networks has an unknown mode")),
        };
        Ok(json!({"mode": mode, "name": network.name, "labels": values::pairs(&network.labels)}))
    })
}

fn port(port: &Port) -> Value {
    let labels = port.labels.as_ref().map(|labels| values::pairs(&labels.labels));
    json!({"port": port.number, "name": port.name, "protocol": port.protocol, "labels": labels})
}

fn all<T>(
    items: &[T],
    convert: impl Fn(&T) -> Result<Value, StoredError>,
) -> Result<Vec<Value>, StoredError> {
    items.iter().map(convert).collect()
}

/// Without the members and items that have no value, at any depth.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            members
                .map(|(name, value)| (name, without_nulls(value)))
                .collect()
        }
        Value::Array(items) => {
            let items = items.into_iter().filter(|item| !item.is_null());
            items.map(without_nulls).collect()
        }
        value => value,
    }
}
