//! The network of a container, and the agent's ports that are forwarded to it.

use super::{
    super::spec::{Network, PublishedPort},
    container_name, parse_port,
};
use crate::{state::Launch, wire::json as doc};
use serde_json::Value;
use std::net::IpAddr;

/// The name by which frameworks refer to the agents' bridge network under the Mesos containerizer.
const MESOS_BRIDGE: &str = "mesos-bridge";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) network: Network,
    pub(crate) published: Vec<PublishedPort>,
}

/// The network of a task for Docker's containerizer.
pub(super) fn of_docker(launch: &Launch) -> Result<Attachment, String> {
    let container = &launch.info["container"];
    let docker = &container["docker"];
    let network = match doc::text(docker, &["network"]).unwrap_or("HOST") {
        "HOST" => Network::Host,
        "NONE" => Network::None,
        "BRIDGE" => Network::Bridge,
        "USER" => match doc::list(container, &["network_infos"]) {
            [] => return Err("No network info found in container info".to_owned()),
            [info] => Network::Named(
                doc::text(info, &["name"])
                    .filter(|name| !name.is_empty())
                    .ok_or("No network name found in network info")?
                    .to_owned(),
            ),
            _ => return Err("Only a single network can be defined in Docker run".to_owned()),
        },
        other => return Err(format!("Unsupported Network mode: {other}")),
    };
    if network == Network::Host && doc::text(container, &["hostname"]).is_some() {
        return Err("Unable to set hostname with host network mode".to_owned());
    }
    let published = parse_port_mappings(launch.agent_addr.ip(), doc::list(docker, &["port_mappings"]))?;
    if !published.is_empty() && !network.has_address() {
        return Err("Port mappings are only supported for bridge and user-defined networks".to_owned());
    }
    check_ports(&launch.info, &published)?;
    Ok(Attachment { network, published })
}

/// Published ports must be among the task's resources.
fn check_ports(info: &Value, published: &[PublishedPort]) -> Result<(), String> {
    if published.is_empty() {
        return Ok(());
    }
    let ranges: Vec<&Value> = doc::list(info, &["resources"])
        .iter()
        .filter(|resource| resource["name"] == "ports")
        .flat_map(|resource| doc::list(resource, &["ranges", "range"]))
        .collect();
    if ranges.is_empty() {
        return Err("Port mappings require port resources".to_owned());
    }
    let is_in_resources = |number: u16| {
        ranges.iter().any(|range| {
            let bound = |key: &str| doc::number(range, &[key]).unwrap_or(-1.0);
            (bound("begin")..=bound("end")).contains(&f64::from(number))
        })
    };
    match published.iter().find(|one| !is_in_resources(one.host)) {
        Some(one) => Err(format!("Port [{}] not included in resources", one.host)),
        None => Ok(()),
    }
}

/// The network of a task for the Mesos containerizer. A task in a group uses the group's network.
pub(super) fn of_mesos(launch: &Launch) -> Result<Attachment, String> {
    if let Some(group) = &launch.group {
        let network = match of_executor(&group.info, launch.agent_addr.ip())? {
            Some(_) => Network::Container(container_name(&group.container)),
            None => Network::Host,
        };
        return Ok(Attachment {
            network,
            published: Vec::new(),
        });
    }
    Ok(
        requested_network(&launch.info["container"], launch.agent_addr.ip())?.unwrap_or(Attachment {
            network: Network::Host,
            published: Vec::new(),
        }),
    )
}

/// The network that an executor requests in its `ExecutorInfo`; `None` if it uses the agent's.
pub(crate) fn of_executor(info: &Value, address: IpAddr) -> Result<Option<Attachment>, String> {
    requested_network(&info["container"], address)
}

/// The network in the `network_infos` of a `ContainerInfo`.
fn requested_network(container: &Value, address: IpAddr) -> Result<Option<Attachment>, String> {
    let info = match doc::list(container, &["network_infos"]) {
        [] => return Ok(None),
        [info] => info,
        _ => return Err("Only a single network is supported in this cluster".to_owned()),
    };
    let network = match doc::text(info, &["name"]) {
        // A network without a name is the agent's.
        None | Some("") => return Ok(None),
        Some(MESOS_BRIDGE) => Network::Bridge,
        Some(name) => Network::Named(name.to_owned()),
    };
    let published = parse_port_mappings(address, doc::list(info, &["port_mappings"]))?;
    Ok(Some(Attachment { network, published }))
}

fn parse_port_mappings(address: IpAddr, mappings: &[Value]) -> Result<Vec<PublishedPort>, String> {
    let parse_mapping = |mapping: &Value| {
        let number = |key: &str| {
            parse_port(&mapping[key]).ok_or_else(|| format!("Port mapping has no valid {key}: {mapping}"))
        };
        let protocol = doc::text(mapping, &["protocol"])
            .unwrap_or("tcp")
            .to_ascii_lowercase();
        if !["tcp", "udp"].contains(&protocol.as_str()) {
            return Err(format!("Unsupported protocol '{protocol}' of a port mapping"));
        }
        Ok(PublishedPort {
            address,
            host: number("host_port")?,
            container: number("container_port")?,
            protocol,
        })
    };
    mappings.iter().map(parse_mapping).collect()
}
