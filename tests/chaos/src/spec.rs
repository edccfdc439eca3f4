//! An app or pod of the run: its definition, and the writes that change it.

use std::fmt;

use serde_json::{Value, json};

/// The variable that identifies the tasks of this run.
pub(crate) const RUN: &str = "CHAOS_RUN";
/// The variable that contains the app of a task.
pub(crate) const APP: &str = "CHAOS_APP";
/// The variable that contains the revision of the definition from which a task was launched.
pub(crate) const REVISION: &str = "CHAOS_REVISION";

/// Part of the command of agents' checks, which identifies their processes.
pub(crate) const CHECK: &str = "chaos-check";

/// A task that listens on its first port.
const LISTENER: &str = "exec python3 -SEc 'import os, socket
server = socket.create_server((\"\", int(os.environ[\"PORT0\"])))
while True: server.accept()[0].close()'";

/// The containers of a pod.
const CONTAINERS: [&str; 2] = ["main", "helper"];

/// One of the apps and pods of the run, by number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(crate) u16);

impl Slot {
    /// The id of the app or pod. Some are in groups.
    pub(crate) fn app(self) -> String {
        let number = self.0;
        match number % 5 {
            1 => format!("/chaos/group{}/back/a{number:02}", number % 3),
            _ => format!("/chaos/a{number:02}"),
        }
    }

    /// The app or pod with this id.
    pub(crate) fn of(app: &str) -> Option<Self> {
        let slot = app.rsplit_once("/a")?.1.parse().ok().map(Self)?;
        (slot.app() == app).then_some(slot)
    }

    /// Whether it is a pod.
    pub(crate) fn is_pod(self) -> bool {
        self.0 % 5 == 2
    }

    /// The component that checks the health of its tasks, if there is a check.
    pub(crate) fn health(self) -> Option<Health> {
        match self.0 % 5 {
            3 => Some(Health::Agent),
            4 => Some(Health::Daemon),
            _ => None,
        }
    }

    /// The number of processes of an instance.
    pub(crate) fn processes(self) -> usize {
        if self.is_pod() { CONTAINERS.len() } else { 1 }
    }
}

/// The component that checks the health of tasks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Health {
    /// Their agents, with a command.
    Agent,
    /// The daemon, with a connection to the first port.
    Daemon,
}

impl Health {
    fn check(self) -> Value {
        let mut check = json!({
            "gracePeriodSeconds": 60, "intervalSeconds": 2, "timeoutSeconds": 1, "maxConsecutiveFailures": 10,
        });
        match self {
            Self::Agent => {
                check["protocol"] = "COMMAND".into();
                check["command"] = json!({"value": format!("true # {CHECK}")});
            }
            Self::Daemon => {
                check["protocol"] = "TCP".into();
                check["portIndex"] = 0.into();
            }
        }
        check
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.app())
    }
}

/// The wanted state of an app.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Spec {
    pub(crate) instances: u32,
    /// Changes with every part of the definition except the number of instances; the environment of
    /// tasks contains it.
    pub(crate) revision: u32,
    /// Number of host ports of each task in addition to the one on which it listens.
    pub(crate) ports: u8,
    /// Whether an upgrade may exceed the wanted number of instances; otherwise it may fall below
    /// it.
    pub(crate) surge: bool,
}

impl Spec {
    /// The complete definition, as it is posted.
    pub(crate) fn definition(&self, slot: Slot, run: &str) -> Value {
        if slot.is_pod() {
            return self.pod(slot, run);
        }
        let listens = slot.health() == Some(Health::Daemon);
        let ports: Vec<Value> = (0..self.ports + u8::from(listens))
            .map(|_| json!({"port": 0, "protocol": "tcp"}))
            .collect();
        let (least, over) = if self.surge { (1.0, 0.5) } else { (0.5, 0.0) };
        let checks: Vec<Value> = slot.health().into_iter().map(Health::check).collect();
        json!({
            "id": slot.app(),
            "cmd": if listens { LISTENER } else { "exec sleep 1000000" },
            "healthChecks": checks,
            "cpus": 0.01,
            "mem": 1,
            "disk": 0,
            "instances": self.instances,
            "env": {RUN: run, APP: slot.app(), REVISION: self.revision.to_string()},
            "portDefinitions": ports,
            "requirePorts": false,
            "upgradeStrategy": {"minimumHealthCapacity": least, "maximumOverCapacity": over},
            // Faults end tasks here, which must not delay the next launch.
            "backoffSeconds": 1,
            "backoffFactor": 1.0,
            "maxLaunchDelaySeconds": 1,
            "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
        })
    }

    fn pod(&self, slot: Slot, run: &str) -> Value {
        let (least, over) = if self.surge { (1.0, 0.5) } else { (0.5, 0.0) };
        let container = |name: &str| {
            json!({
                "name": name,
                "exec": {"command": {"shell": "exec sleep 1000000"}},
                "resources": {"cpus": 0.01, "mem": 1, "disk": 0},
            })
        };
        let mut containers = CONTAINERS.map(container);
        let endpoints: Vec<Value> = (0..self.ports)
            .map(|number| json!({"name": format!("port{number}"), "hostPort": 0, "protocol": ["tcp"]}))
            .collect();
        containers[0]["endpoints"] = json!(endpoints);
        json!({
            "id": slot.app(),
            "containers": containers,
            "environment": {RUN: run, APP: slot.app(), REVISION: self.revision.to_string()},
            "scaling": {"kind": "fixed", "instances": self.instances},
            "scheduling": {
                "backoff": {"backoff": 1.0, "backoffFactor": 1.0, "maxLaunchDelay": 1.0},
                "upgrade": {"minimumHealthCapacity": least, "maximumOverCapacity": over},
                "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
            },
        })
    }

    /// Parses a definition from a response. The error names the mismatch.
    pub(crate) fn read(slot: Slot, run: &str, shown: &Value) -> Result<Self, String> {
        let number = |value: &Value, name: &str| {
            value
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .ok_or_else(|| format!("{slot} has {name} {value}"))
        };
        let at = |pointer: &str| shown.pointer(pointer).unwrap_or(&Value::Null);
        let (environment, instances, ports, over) = if slot.is_pod() {
            (
                "/environment",
                "/scaling/instances",
                "/containers/0/endpoints",
                "/scheduling/upgrade/maximumOverCapacity",
            )
        } else {
            (
                "/env",
                "/instances",
                "/portDefinitions",
                "/upgradeStrategy/maximumOverCapacity",
            )
        };
        let revision = &at(environment)[REVISION];
        let spec = Self {
            instances: number(at(instances), "instances")?,
            revision: revision
                .as_str()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| format!("{slot} has {REVISION} {revision}"))?,
            ports: u8::try_from(at(ports).as_array().map_or(0, Vec::len))
                .unwrap_or(u8::MAX)
                .saturating_sub(u8::from(slot.health() == Some(Health::Daemon))),
            surge: at(over).as_f64() != Some(0.0),
        };
        let posted = spec.definition(slot, run);
        let unreachable = "/scheduling/unreachableStrategy";
        for pointer in ["/id", "/cmd", environment, "/unreachableStrategy", unreachable] {
            let expected = posted.pointer(pointer).unwrap_or(&Value::Null);
            if expected != at(pointer) {
                return Err(format!("{slot} has {pointer} {} and not {expected}", at(pointer)));
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            instances,
            revision,
            ports,
            surge,
        } = self;
        let surge = if *surge { " surge" } else { "" };
        write!(f, "r{revision} x{instances} ports={ports}{surge}")
    }
}

/// A write of one app.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Op {
    /// POST of a new app or pod.
    Create(Spec),
    /// PUT of the complete definition; creates a missing app.
    Change(Spec),
    /// PUT of only the number of instances of an app.
    Scale(u32),
    Delete,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(spec) => write!(f, "create {spec}"),
            Self::Change(spec) => write!(f, "change to {spec}"),
            Self::Scale(instances) => write!(f, "scale to {instances}"),
            Self::Delete => f.write_str("delete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_parsed_as_it_was_posted() {
        for (slot, ports, surge) in [
            (Slot(4), 0, true),
            (Slot(1), 2, false),
            (Slot(7), 2, true),
            (Slot(8), 1, true),
        ] {
            let spec = Spec {
                instances: 3,
                revision: 17,
                ports,
                surge,
            };
            let mut shown = spec.definition(slot, "x");
            assert_eq!(Spec::read(slot, "x", &shown), Ok(spec));
            shown["id"] = json!("/chaos/other");
            assert!(Spec::read(slot, "x", &shown).unwrap_err().contains("/id"));
            assert_eq!(Slot::of(&slot.app()), Some(slot));
        }
        assert_eq!(Slot::of("/other/a1"), None);
    }
}
