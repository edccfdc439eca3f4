//! A host with a port.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host and a port, such as those of an agent's HTTP API. Serialised as a list of two:
/// `["10.0.0.1", 5051]`.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(from = "(String, u16)", into = "(String, u16)")]
pub struct HostPort {
    /// A host name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl HostPort {
    /// A host name or an address, and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }
}

impl From<(String, u16)> for HostPort {
    fn from((host, port): (String, u16)) -> Self {
        Self { host, port }
    }
}

impl From<HostPort> for (String, u16) {
    fn from(HostPort { host, port }: HostPort) -> Self {
        (host, port)
    }
}

/// `host:port`; an IPv6 address in brackets.
impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv6_addresses_are_in_brackets() {
        for (host, text) in [
            ("agent.example", "agent.example:5051"),
            ("10.0.0.1", "10.0.0.1:5051"),
            ("::1", "[::1]:5051"),
        ] {
            assert_eq!(HostPort::new(host, 5051).to_string(), text);
        }
    }

    #[test]
    fn host_port_is_stored_as_a_list_of_two() {
        let stored = r#"["agent.example",5051]"#;
        let read: HostPort = serde_json::from_str(stored).unwrap();
        assert_eq!(read, HostPort::new("agent.example", 5051));
        assert_eq!(serde_json::to_string(&read).unwrap(), stored);
    }
}
