//! The registrations of masters in ZooKeeper: the node's name and the `MasterInfo` in it, as JSON
//! (`json.info_0000000003`) or, from older masters, as protobuf (`info_0000000003`).

use super::protobuf::{self, Value};
use crate::state::pid_address;
use crate::v1::MasterInfo;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use url::Url;

/// A registered master.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Master {
    /// The node's name; another one means that the master has registered again.
    pub node: String,
    /// The id that it chose at its start.
    pub id: String,
    /// The host name at which others may reach it.
    pub hostname: Option<String>,
    /// The address it listens on.
    pub ip: Option<IpAddr>,
    /// The port it listens on.
    pub port: u16,
    /// Its version, such as `1.11.0`; absent from old masters.
    pub version: Option<String>,
}

/// `host:port`, the address rather than the name.
impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, &self.hostname) {
            (Some(IpAddr::V6(ip)), _) => write!(f, "[{ip}]:{}", self.port),
            (Some(ip), _) => write!(f, "{ip}:{}", self.port),
            (None, Some(name)) => write!(f, "{name}:{}", self.port),
            (None, None) => write!(f, "{}", self.id),
        }
    }
}

/// The format of a registration's data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Json,
    Protobuf,
}

/// The number and form of a registration by its node's name; none for other nodes (`log_replicas`).
pub(super) fn number(node: &str) -> Option<(i64, Format)> {
    let (label, digits) = node.rsplit_once('_')?;
    let form = match label {
        "json.info" => Format::Json,
        "info" => Format::Protobuf,
        _ => return None,
    };
    Some((digits.parse().ok()?, form))
}

/// The registrations among a path's children, the one that leads first.
pub(super) fn in_order(children: Vec<String>) -> Vec<(String, Format)> {
    let mut found: Vec<_> = children
        .into_iter()
        .filter_map(|node| number(&node).map(|(number, form)| (number, node, form)))
        .collect();
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found.into_iter().map(|(_, node, form)| (node, form)).collect()
}

impl Master {
    /// Parses a registration. The error says why it is invalid.
    pub(super) fn read(node: &str, form: Format, data: &[u8]) -> Result<Self, String> {
        let info = match form {
            Format::Json => serde_json::from_slice(data).map_err(|error| error.to_string())?,
            Format::Protobuf => decode(data)?,
        };
        Self::of(node, info)
    }

    /// `address` is newer than `ip`, `port` and `hostname` and wins; `pid` supplies missing values.
    fn of(node: &str, info: MasterInfo) -> Result<Self, String> {
        let pid = info.pid.as_deref().and_then(pid_address);
        let address = info.address;
        let ip = address
            .as_ref()
            .and_then(|address| address.ip.as_deref()?.parse().ok())
            .or_else(|| info.ip.filter(|ip| *ip != 0).map(ip_address))
            .or_else(|| pid.and_then(|(host, _)| host.parse().ok()));
        let hostname = info
            .hostname
            .or_else(|| address.as_ref()?.hostname.clone())
            .filter(|name| !name.is_empty());
        let port = address
            .map(|address| address.port)
            .or(info.port)
            .or(pid.map(|(_, port)| port))
            .filter(|port| *port != 0)
            .ok_or("it names no port")?;
        if ip.is_none() && hostname.is_none() {
            return Err("it names neither an address nor a host".to_owned());
        }
        Ok(Self {
            node: node.to_owned(),
            id: info.id,
            hostname,
            ip,
            port,
            version: info.version,
        })
    }

    /// The URLs to try, in order. Certificates are issued for the name; an address needs no lookup.
    pub(crate) fn urls(&self, scheme: &str) -> Vec<Url> {
        let ip = self.ip.map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        let mut hosts = vec![ip, self.hostname.clone()];
        if scheme == "https" {
            hosts.reverse();
        }
        let urls = hosts
            .into_iter()
            .flatten()
            .filter_map(|host| Url::parse(&format!("{scheme}://{host}:{}/", self.port)).ok());
        let mut urls: Vec<_> = urls.collect();
        urls.dedup();
        urls
    }

    /// Whether one of its own URLs has this URL's host and port.
    pub(crate) fn is_at(&self, url: &Url) -> bool {
        self.urls(url.scheme())
            .iter()
            .any(|own| own.host() == url.host() && own.port_or_known_default() == url.port_or_known_default())
    }
}

/// The number is the address in the byte order of a little-endian machine.
fn ip_address(ip: u32) -> IpAddr {
    Ipv4Addr::from(ip.to_le_bytes()).into()
}

/// The protobuf form: `id` 1, `ip` 2, `port` 3, `pid` 4, `hostname` 5, `version` 6, `address` 7
/// (`hostname` 1, `ip` 2, `port` 3).
fn decode(data: &[u8]) -> Result<MasterInfo, String> {
    let mut info = MasterInfo::default();
    for field in protobuf::fields(data) {
        match field? {
            (1, Value::Bytes(id)) => info.id = text(id)?,
            (2, Value::Number(ip)) => info.ip = Some(u32::try_from(ip).map_err(|_| "its ip is too large")?),
            (3, Value::Number(number)) => info.port = Some(port(number)?),
            (4, Value::Bytes(pid)) => info.pid = Some(text(pid)?),
            (5, Value::Bytes(hostname)) => info.hostname = Some(text(hostname)?),
            (6, Value::Bytes(version)) => info.version = Some(text(version)?),
            (7, Value::Bytes(address)) => {
                let address_of = info.address.get_or_insert_default();
                for field in protobuf::fields(address) {
                    match field? {
                        (1, Value::Bytes(hostname)) => address_of.hostname = Some(text(hostname)?),
                        (2, Value::Bytes(ip)) => address_of.ip = Some(text(ip)?),
                        (3, Value::Number(number)) => address_of.port = port(number)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if info.id.is_empty() {
        return Err("it has no id".to_owned());
    }
    Ok(info)
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text in it is not UTF-8".to_owned())
}

fn port(number: u64) -> Result<u16, String> {
    u16::try_from(number).map_err(|_| format!("{number} is not a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("../../../../tests/fixtures/cluster/10-zookeeper/znodes.json");

    /// Child names and data of the recorded `/mesos`.
    fn recorded() -> Vec<(String, String)> {
        let nodes: serde_json::Map<String, serde_json::Value> = serde_json::from_str(RECORDED).unwrap();
        let child = |(path, node): (String, serde_json::Value)| {
            let name = path.strip_prefix("/mesos/")?.to_owned();
            Some((name, node["data"].as_str()?.to_owned()))
        };
        nodes.into_iter().filter_map(child).collect()
    }

    #[test]
    fn recorded_masters_are_read_in_order() {
        let nodes = recorded();
        let order = in_order(nodes.iter().rev().map(|(name, _)| name.clone()).collect());
        let masters: Vec<_> = order
            .iter()
            .map(|(name, form)| {
                let (_, data) = nodes.iter().find(|(node, _)| node == name).unwrap();
                Master::read(name, *form, data.as_bytes()).unwrap()
            })
            .collect();
        let displayed: Vec<_> = masters.iter().map(ToString::to_string).collect();
        assert_eq!(displayed, ["127.0.0.1:5060", "127.0.0.1:5050", "127.0.0.1:5070"]);
        let first = &masters[0];
        assert_eq!(first.node, "json.info_0000000001");
        assert_eq!(first.id, "b88cddd3-74e0-443e-9345-75a7e65283ec");
        assert_eq!(
            (first.hostname.as_deref(), first.version.as_deref()),
            (Some("localhost"), Some("1.11.0"))
        );
        // The redirect target of the recorded followers.
        let redirected = Url::parse("http://localhost:5060/master/api/v1/scheduler").unwrap();
        assert_eq!(
            masters
                .iter()
                .map(|master| master.is_at(&redirected))
                .collect::<Vec<_>>(),
            [true, false, false]
        );
    }

    #[test]
    fn json_and_protobuf_nodes_are_ordered_together_and_others_ignored() {
        let children = [
            "json.info_0000000012",
            "log_replicas",
            "info_0000000007",
            "json.info_0000000100",
            "json.info_",
            "xinfo_1",
            "json.info_12x",
            "info_-2147483648",
        ];
        let order = in_order(children.map(str::to_owned).to_vec());
        let names: Vec<_> = order.iter().map(|(name, _)| &**name).collect();
        assert_eq!(
            names,
            [
                "info_-2147483648",
                "info_0000000007",
                "json.info_0000000012",
                "json.info_0000000100"
            ]
        );
        assert_eq!(order[1].1, Format::Protobuf);
    }

    /// A text field of protobuf.
    fn field(number: u8, text: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(text.len()).unwrap()], text].concat()
    }

    #[test]
    fn protobuf_masters_are_read() {
        // ip 127.0.0.1 as 16777343, port 5060.
        let old = [
            field(1, b"m-1"),
            b"\x10\xff\x80\x80\x08\x18\xc4\x27".to_vec(),
            field(4, b"master@127.0.0.1:5060"),
            field(5, b"one.example"),
        ]
        .concat();
        let master = Master::read("info_0000000003", Format::Protobuf, &old).unwrap();
        assert_eq!(
            master,
            Master {
                node: "info_0000000003".into(),
                id: "m-1".into(),
                hostname: Some("one.example".into()),
                ip: Some("127.0.0.1".parse().unwrap()),
                port: 5060,
                version: None,
            }
        );
        let address = [field(1, b"two.example"), field(2, b"::1"), b"\x18\x01".to_vec()].concat();
        let new = [
            old,
            field(6, b"1.11.0"),
            field(7, &address),
            field(9, b"\x08\x01"),
        ]
        .concat();
        let master = Master::read("info_4", Format::Protobuf, &new).unwrap();
        assert_eq!(
            (master.to_string(), master.version.as_deref()),
            ("[::1]:1".to_owned(), Some("1.11.0"))
        );
    }

    #[test]
    fn invalid_registrations_are_rejected_with_reason() {
        let cases: [(Format, &[u8], &str); 7] = [
            (Format::Json, b"", "EOF"),
            (Format::Json, b"{\"id\":\"m\"}", "no port"),
            (
                Format::Json,
                b"{\"id\":\"m\",\"port\":1}",
                "neither an address nor a host",
            ),
            (Format::Json, b"{\"port\":1}", "missing field `id`"),
            (Format::Protobuf, b"\x0a\x09m", "ends within"),
            (Format::Protobuf, b"\x18\xff\xff\x7f", "is not a port"),
            (Format::Protobuf, b"", "no id"),
        ];
        for (form, data, why) in cases {
            let error = Master::read("n_1", form, data).unwrap_err();
            assert!(error.contains(why), "{data:?}: {error}");
        }
    }

    #[test]
    fn registration_with_only_a_pid_is_read() {
        let data = br#"{"id":"m","pid":"master@10.1.2.3:5050"}"#;
        let master = Master::read("json.info_1", Format::Json, data).unwrap();
        assert_eq!(master.to_string(), "10.1.2.3:5050");
    }

    #[test]
    fn host_name_precedes_the_address_in_https_urls() {
        let data = br#"{"id":"m","hostname":"Leader.example","ip":16777343,"port":5050}"#;
        let master = Master::read("json.info_1", Format::Json, data).unwrap();
        let urls = |scheme| {
            master
                .urls(scheme)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            urls("http"),
            ["http://127.0.0.1:5050/", "http://leader.example:5050/"]
        );
        assert_eq!(
            urls("https"),
            ["https://leader.example:5050/", "https://127.0.0.1:5050/"]
        );
        for (url, is_own) in [
            ("http://LEADER.example:5050/master/api", true),
            ("http://127.0.0.1:5051/", false),
            ("http://other.example:5050/", false),
        ] {
            assert_eq!(master.is_at(&Url::parse(url).unwrap()), is_own, "{url}");
        }
    }
}
