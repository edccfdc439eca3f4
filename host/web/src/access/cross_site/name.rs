//! Host names and origins, in requests and in the configuration.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host in a request's `Host` or `Origin`, normalized for comparisons: names are in lower case
/// and have no final dot, addresses are parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Address(IpAddr),
    Name(String),
}

/// Host and port, as in `Host: name:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) host: Host,
    pub(super) port: Option<u16>,
}

impl Host {
    /// `None` for a text that is neither a name nor an address.
    fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address: std::net::Ipv6Addr = inner.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_');
        (!name.is_empty() && name.chars().all(is_name)).then_some(Self::Name(name))
    }

    /// Whether the host is this machine whatever DNS returns for its name.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Authority {
    /// `None` for a text that is not a host with an optional port.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let colon = match text.rfind(']') {
            Some(end) => text[end..].find(':').map(|at| end + at),
            None => text.find(':'),
        };
        let (host, port) = match colon {
            None => (text, None),
            Some(at) => (&text[..at], Some(&text[at + 1..])),
        };
        let port = match port {
            None | Some("") => None,
            Some(digits) => Some(digits.parse().ok()?),
        };
        Some(Self {
            host: Host::parse(host)?,
            port,
        })
    }
}

/// An entry of the setting `allowed_hosts`: a host name, an address, or `*.example.com` for every
/// name below one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct AllowedHost(Pattern);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(Host),
    /// With the leading dot.
    Below(String),
}

impl AllowedHost {
    pub(super) fn matches(&self, host: &Host) -> bool {
        match (&self.0, host) {
            (Pattern::Exactly(allowed), host) => allowed == host,
            (Pattern::Below(suffix), Host::Name(name)) => name.len() > suffix.len() && name.ends_with(suffix),
            (Pattern::Below(_), Host::Address(_)) => false,
        }
    }
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text:?} is not a host name; expected a name such as \"transom.example.com\" or \"*.example.com\", or an \
                 address such as \"10.0.0.5\", without scheme and port"
            )
        };
        if let Some(parent) = text.strip_prefix("*.") {
            return match Host::parse(parent) {
                Some(Host::Name(name)) => Ok(Self(Pattern::Below(format!(".{name}")))),
                _ => Err(invalid()),
            };
        }
        // An IPv6 address is accepted with and without brackets.
        let host = match text.parse::<IpAddr>() {
            Ok(address) => Some(Host::Address(address.to_canonical())),
            Err(_) => Host::parse(text),
        };
        host.map(|host| Self(Pattern::Exactly(host))).ok_or_else(invalid)
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Exactly(host) => host.fmt(f),
            Pattern::Below(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// An entry of the setting `allowed_origins`, and the value of a browser's `Origin`:
/// `https://ui.example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin {
    scheme: String,
    host: Host,
    /// `None`: the default port of the scheme.
    port: Option<u16>,
}

impl Origin {
    /// The origin of a page, from its URL as browsers send it in `Referer`.
    pub(super) fn of_page(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        format!("{scheme}://{authority}").parse().ok()
    }

    /// Whether a page of this origin was loaded from `authority`. The scheme is ignored: behind a
    /// proxy that terminates TLS the schemes of page and request differ.
    pub(super) fn is_of(&self, authority: &Authority) -> bool {
        self.host == authority.host && self.port == non_default_port(&self.scheme, authority.port)
    }
}

/// Returns the port, or `None` if it is the scheme's default.
fn non_default_port(scheme: &str, port: Option<u16>) -> Option<u16> {
    let default = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    port.filter(|port| Some(*port) != default)
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text:?} is not an origin; expected scheme, host and port as browsers send them, such as \
                 \"https://ui.example.com\" or \"http://10.0.0.5:3000\", without a path"
            )
        };
        let (scheme, authority) = text.split_once("://").ok_or_else(invalid)?;
        let is_scheme = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.');
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return Err(invalid());
        }
        let scheme = scheme.to_ascii_lowercase();
        let Authority { host, port } = Authority::parse(authority).ok_or_else(invalid)?;
        let port = non_default_port(&scheme, port);
        Ok(Self { scheme, host, port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

as_text!(AllowedHost);
as_text!(Origin);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn authorities_are_normalized_and_invalid_ones_rejected() {
        for (text, host, port) in [
            ("Transom.Example.COM", "transom.example.com", None),
            ("transom.example.com.:8080", "transom.example.com", Some(8080)),
            ("my_host:", "my_host", None),
            ("10.0.0.5:80", "10.0.0.5", Some(80)),
            ("[::1]:8080", "[::1]", Some(8080)),
            ("[0:0:0:0:0:0:0:1]", "[::1]", None),
            ("[::ffff:10.0.0.5]", "10.0.0.5", None),
        ] {
            let found = Authority::parse(text).unwrap();
            assert_eq!(
                (found.host.to_string().as_str(), found.port),
                (host, port),
                "{text}"
            );
        }
        for text in [
            "",
            ":80",
            "a b",
            "user@host",
            "host:http",
            "host:70000",
            "::1",
            "[::1",
            "[host]",
            "a/b",
            "é",
        ] {
            assert_eq!(Authority::parse(text), None, "{text}");
        }
    }

    #[test]
    fn loopback_is_known_by_name_and_address() {
        for (text, expected) in [
            ("localhost", true),
            ("LOCALHOST.", true),
            ("web.localhost", true),
            ("127.9.9.9", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example.com", false),
            ("notlocalhost", false),
            ("10.0.0.1", false),
            // Other spellings of 127.0.0.1: browsers never send them, so they are names.
            ("2130706433", false),
            ("127.1", false),
        ] {
            assert_eq!(Host::parse(text).unwrap().is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn allowed_hosts_match_names_addresses_and_names_below() {
        for (allowed, host, expected) in [
            ("Marathon.mesos", "marathon.mesos", true),
            ("marathon.mesos", "a.marathon.mesos", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "badexample.com", false),
            ("10.0.0.5", "10.0.0.5", true),
            ("fd00::1", "[fd00::1]", true),
            ("[fd00::1]", "[fd00::1]", true),
        ] {
            let pattern: AllowedHost = allowed.parse().unwrap();
            assert_eq!(
                pattern.matches(&Host::parse(host).unwrap()),
                expected,
                "{allowed} {host}"
            );
        }
        for text in [
            "",
            "*",
            "*.",
            "http://a",
            "a:80",
            "a/b",
            "*.10.0.0.1",
            "10.0.0.0/8",
        ] {
            let error = text.parse::<AllowedHost>().unwrap_err();
            assert!(error.contains("without scheme and port"), "{error}");
        }
        let displayed = ["A.b", "*.X.y", "::1"].map(|text| text.parse::<AllowedHost>().unwrap().to_string());
        assert_eq!(displayed, ["a.b", "*.x.y", "[::1]"]);
    }

    #[test]
    fn origins_are_scheme_host_and_port() {
        for (text, displayed) in [
            ("http://ui.example.com", "http://ui.example.com"),
            ("HTTPS://UI.example.com:443", "https://ui.example.com"),
            ("http://[::1]:3000", "http://[::1]:3000"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), displayed);
        }
        for text in [
            "null",
            "ui.example.com",
            "http://",
            "http://a/",
            "://a",
            "http://u@a",
            "*",
        ] {
            assert!(
                text.parse::<Origin>().unwrap_err().contains("not an origin"),
                "{text}"
            );
        }
        for (origin, authority, expected) in [
            ("http://a:8080", "a:8080", true),
            ("http://a", "a", true),
            ("http://a", "a:80", true),
            ("https://a", "a", true),
            ("https://a", "a:443", true),
            ("http://a:8080", "a:9090", false),
            ("http://a:8080", "a", false),
            ("http://b", "a", false),
        ] {
            let origin: Origin = origin.parse().unwrap();
            assert_eq!(
                origin.is_of(&Authority::parse(authority).unwrap()),
                expected,
                "{origin} {authority}"
            );
        }
    }
}
