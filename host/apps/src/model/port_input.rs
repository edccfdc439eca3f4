//! Parses ports.

use super::reader::Reader;
use super::reader::read_choice;
use super::{PortDefinition, PortMapping, Protocol};

/// Upstream's pattern of the names of ports and networks.
const NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Parses `portDefinitions`.
pub(super) fn read_definitions(reader: &mut Reader<'_>) -> Option<Vec<PortDefinition>> {
    reader.list("portDefinitions", |port| {
        Some(PortDefinition {
            port: port.port("port").unwrap_or(0),
            name: read_name(port, "name"),
            protocol: read_protocol(port),
            labels: port.texts("labels").unwrap_or_default(),
        })
    })
}

/// Parses the deprecated `ports`.
pub(super) fn read_numbers(reader: &mut Reader<'_>) -> Option<Vec<PortDefinition>> {
    let numbers = reader.array("ports")?;
    let mut ports = Vec::with_capacity(numbers.len());
    for (index, number) in numbers.iter().enumerate() {
        let key = format!("ports({index})");
        let number = reader.number_of(&key, number, i64::from(u16::MAX));
        if let Some(Ok(port)) = number.map(u16::try_from) {
            ports.push(PortDefinition {
                port,
                name: None,
                ..PortDefinition::unnamed_default()
            });
        }
    }
    // Upstream names a single port `default`.
    if let [only] = ports.as_mut_slice() {
        only.name = PortDefinition::unnamed_default().name;
    }
    Some(ports)
}

/// Parses `portMappings` of a container, or of its deprecated `docker`.
pub(super) fn read_mappings(container: &mut Reader<'_>) -> Option<Vec<PortMapping>> {
    container.list("portMappings", |mapping| {
        let networks = read_names(mapping, "networkNames").unwrap_or_default();
        Some(PortMapping {
            container_port: mapping.port("containerPort").unwrap_or(0),
            host_port: mapping.port("hostPort"),
            service_port: mapping.port("servicePort").unwrap_or(0),
            name: read_name(mapping, "name"),
            protocol: read_protocol(mapping),
            labels: mapping.texts("labels").unwrap_or_default(),
            network_names: networks,
        })
    })
}

/// Parses a list of names.
pub(super) fn read_names(reader: &mut Reader<'_>, key: &str) -> Option<Vec<String>> {
    let names = reader.strings(key)?;
    for (index, name) in names.iter().enumerate() {
        if !is_name(name, false) {
            bad_name(reader, &format!("{key}({index})"), NAME);
        }
    }
    Some(names)
}

/// Parses the name of a port, or of another part of a definition.
pub(super) fn read_name(reader: &mut Reader<'_>, key: &str) -> Option<String> {
    let name = reader.string(key)?;
    if !is_name(&name, false) {
        bad_name(reader, key, NAME);
    }
    Some(name)
}

/// Adds the problem of a name that does not match `pattern`.
pub(super) fn bad_name(reader: &mut Reader<'_>, key: &str, pattern: &str) {
    reader.problem(key, "error.pattern");
    reader.problem(key, format!("must fully match regular expression '{pattern}'"));
}

/// Lower-case letters, digits and hyphens, the latter only inside; with `underscores`, these too.
pub(super) fn is_name(name: &str, underscores: bool) -> bool {
    let inner = |byte: u8| outer(byte) || byte == b'-' || underscores && byte == b'_';
    let [first, rest @ ..] = name.as_bytes() else {
        return false;
    };
    outer(*first)
        && rest
            .split_last()
            .is_none_or(|(last, middle)| outer(*last) && middle.iter().all(|byte| inner(*byte)))
}

fn outer(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Parses the protocol of a port.
pub(super) fn read_protocol(port: &mut Reader<'_>) -> Protocol {
    let choices = [
        ("tcp", Protocol::Tcp),
        ("udp", Protocol::Udp),
        ("udp,tcp", Protocol::Both),
        ("tcp,udp", Protocol::Both),
    ];
    read_choice(port, "protocol", &choices).unwrap_or(Protocol::Tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_hyphens_only_inside() {
        for (name, plain, with_underscores) in [
            ("a", true, true),
            ("a-b", true, true),
            ("9", true, true),
            ("a_b", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("_a", false, false),
            ("A", false, false),
        ] {
            assert_eq!(is_name(name, false), plain, "{name}");
            assert_eq!(is_name(name, true), with_underscores, "{name}");
        }
    }
}
