//! Ports that a job listens on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field_reader::kind;

/// One port of the host for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobPort {
    /// The port in the container's own network; `None`: the host port (`PORT0` and so on).
    #[serde(default)]
    pub(crate) container_port: Option<u16>,
    /// The port of the host; `None`: any free one.
    #[serde(default)]
    pub(crate) host_port: Option<u16>,
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// The name of the port in discovery.
    #[serde(default)]
    pub(crate) name: Option<String>,
}

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    #[default]
    Tcp,
    Udp,
}

impl Protocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

const EXPECTED: &str = "expected the container's port as a number (0: any), or an object with container_port, host_port \
                        (0: any), protocol (tcp or udp) and name";

impl JobPort {
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Number(_) => Ok(Self {
                container_port: number(value, "the port")?,
                host_port: None,
                protocol: Protocol::Tcp,
                name: None,
            }),
            Value::Object(fields) => {
                let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
                let port = |name: &str| field(name).map_or(Ok(None), |value| number(value, name));
                let protocol = match field("protocol").map(|value| value.as_str().unwrap_or_default()) {
                    None => Protocol::Tcp,
                    Some(text) if text.eq_ignore_ascii_case("tcp") => Protocol::Tcp,
                    Some(text) if text.eq_ignore_ascii_case("udp") => Protocol::Udp,
                    Some(_) => return Err("has another protocol; expected tcp or udp".to_owned()),
                };
                Ok(Self {
                    container_port: port("container_port")?,
                    host_port: port("host_port")?,
                    protocol,
                    name: field("name").and_then(Value::as_str).map(str::to_owned),
                })
            }
            other => Err(format!("is {}; {EXPECTED}", kind(other))),
        }
    }
}

/// Parses a port number; 0 means any port.
fn number(value: &Value, what: &str) -> Result<Option<u16>, String> {
    let found = value.as_u64().and_then(|number| u16::try_from(number).ok());
    found
        .map(|port| Some(port).filter(|port| *port != 0))
        .ok_or_else(|| format!("has {value} as {what}; expected 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_are_parsed_and_invalid_ones_rejected() {
        let all = json!({"container_port": 80, "host_port": 31000, "protocol": "UDP", "name": "web"});
        let port = JobPort::read(&all).unwrap();
        assert_eq!(
            (
                port.container_port,
                port.host_port,
                port.protocol,
                port.name.as_deref()
            ),
            (Some(80), Some(31000), Protocol::Udp, Some("web"))
        );
        let any = JobPort::read(&json!(0)).unwrap();
        assert_eq!((any.container_port, any.host_port), (None, None));
        for (value, expected) in [
            (json!("80"), "is a string"),
            (json!(70000), "0 to 65535"),
            (json!({"host_port": -1}), "0 to 65535"),
            (json!({"protocol": "sctp"}), "tcp or udp"),
        ] {
            let error = JobPort::read(&value).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }
}
