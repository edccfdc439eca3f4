//! An app of the run: its definition, and the writes that change it.

use std::fmt;

use serde_json::{Value, json};

/// The variable that identifies the tasks of this run.
pub(crate) const RUN: &str = "CHAOS_RUN";
/// The variable with the app of a task.
pub(crate) const APP: &str = "CHAOS_APP";
/// The variable with the content of the definition that a task was launched from.
pub(crate) const REVISION: &str = "CHAOS_REVISION";

/// One of the apps of the run, by number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(pub(crate) u16);

impl Slot {
    /// The app's id.
    pub(crate) fn app(self) -> String {
        format!("/chaos/a{:02}", self.0)
    }

    /// The app of that id.
    pub(crate) fn of(app: &str) -> Option<Self> {
        app.strip_prefix("/chaos/a")?.parse().ok().map(Self)
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
    /// Changes with everything but the number of instances; tasks carry it in their environment.
    pub(crate) revision: u32,
    /// Host ports of each task.
    pub(crate) ports: u8,
    /// Whether an upgrade may have more instances than wanted, or must make do with fewer.
    pub(crate) surge: bool,
}

impl Spec {
    /// The whole definition, as it is posted.
    pub(crate) fn definition(&self, slot: Slot, run: &str) -> Value {
        let ports: Vec<Value> = (0..self.ports)
            .map(|_| json!({"port": 0, "protocol": "tcp"}))
            .collect();
        let (least, over) = if self.surge { (1.0, 0.5) } else { (0.5, 0.0) };
        json!({
            "id": slot.app(),
            "cmd": "exec sleep 1000000",
            "cpus": 0.01,
            "mem": 1,
            "disk": 0,
            "instances": self.instances,
            "env": {RUN: run, APP: slot.app(), REVISION: self.revision.to_string()},
            "portDefinitions": ports,
            "requirePorts": false,
            "upgradeStrategy": {"minimumHealthCapacity": least, "maximumOverCapacity": over},
            // Tasks end by faults here, which must not delay the next launch.
            "backoffSeconds": 1,
            "backoffFactor": 1.0,
            "maxLaunchDelaySeconds": 1,
            "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
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
        let revision = shown["env"][REVISION]
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("{slot} has {REVISION} {}", shown["env"][REVISION]))?;
        let spec = Self {
            instances: number(&shown["instances"], "instances")?,
            revision,
            ports: u8::try_from(shown["portDefinitions"].as_array().map_or(0, Vec::len)).unwrap_or(u8::MAX),
            surge: shown["upgradeStrategy"]["maximumOverCapacity"].as_f64() != Some(0.0),
        };
        let posted = spec.definition(slot, run);
        for name in ["id", "cmd", "env", "unreachableStrategy"] {
            if posted[name] != shown[name] {
                return Err(format!(
                    "{slot} has {name} {} and not {}",
                    shown[name], posted[name]
                ));
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
    /// POST of a new app.
    Create(Spec),
    /// PUT of the whole definition; creates a missing app.
    Change(Spec),
    /// PUT of the number of instances alone.
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
        for (ports, surge) in [(0, true), (2, false)] {
            let spec = Spec {
                instances: 3,
                revision: 17,
                ports,
                surge,
            };
            let mut shown = spec.definition(Slot(4), "x");
            assert_eq!(Spec::read(Slot(4), "x", &shown), Ok(spec));
            shown["cmd"] = json!("exec sleep 1");
            assert!(Spec::read(Slot(4), "x", &shown).unwrap_err().contains("cmd"));
        }
        assert_eq!(Slot::of(&Slot(123).app()), Some(Slot(123)));
        assert_eq!(Slot::of("/other/a1"), None);
    }
}
