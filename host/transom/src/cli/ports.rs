//! `--port NAME=N`: overrides any port, so that several daemons can run on one machine.

use std::str::FromStr;
use transom_config::Overrides;

use crate::daemon::services::{PortName, SERVICES};

/// The ports by name, and the key that each one sets.
fn ports() -> impl Iterator<Item = PortName> {
    let services = SERVICES.iter().flat_map(|kind| kind.ports()).copied();
    services.chain([("admin", "admin.port")])
}

/// The help text of `--port`; `more`: the names that only one command knows.
pub(super) fn help(more: &[&str]) -> String {
    let mut names: Vec<&str> = ports().map(|(name, _)| name).collect();
    names.extend(more);
    let last = names.pop().unwrap_or_default();
    format!(
        "Override a listening port. NAME is {} or {last}",
        names.join(", ")
    )
}

/// One `--port NAME=N`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) number: u16,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once('=').ok_or("expected NAME=N, as in apps=18080")?;
        let number = number
            .parse()
            .map_err(|_| format!("`{number}` is not a port from 0 to 65535"))?;
        if name != "cluster" && !ports().any(|(candidate, _)| candidate == name) {
            let names: Vec<&str> = ports().map(|(name, _)| name).collect();
            return Err(format!(
                "unknown port `{name}`; expected one of {} and (for dev) cluster",
                names.join(", ")
            ));
        }
        Ok(Port {
            name: name.to_owned(),
            number,
        })
    }
}

/// The settings for the given ports. `cluster` is left out: it is not a setting, and only `dev` reads
/// it.
pub(crate) fn overrides(options: &[Port]) -> Overrides {
    let mut overrides = Overrides::default();
    for port in options {
        if let Some((_, key)) = ports().find(|(name, _)| *name == port.name) {
            overrides.set(key, port.number);
        }
    }
    overrides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_options_are_parsed_and_invalid_ones_explained() {
        assert_eq!(
            "apps=1".parse(),
            Ok(Port {
                name: "apps".into(),
                number: 1
            })
        );
        for (text, expected) in [
            ("apps", "NAME=N"),
            ("apps=x", "not a port"),
            ("moon=1", "unknown port"),
        ] {
            let error = text.parse::<Port>().expect_err(text);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn help_names_every_port() {
        let expected =
            "Override a listening port. NAME is apps, dns, discovery, kubernetes, workflow, admin or cluster";
        assert_eq!(help(&["cluster"]), expected);
    }
}
