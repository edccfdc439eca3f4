//! A task's own addresses, from its statuses.

use std::net::IpAddr;

use transom_cluster::v1::{ContainerStatus, Label, NetworkInfo, TaskState};

const DOCKER: &str = "Docker.NetworkSettings.IPAddress";
const MESOS: &str = "MesosContainerizer.NetworkSettings.IPAddress";

/// Addresses by source; invalid ones are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// From the container's networks.
    pub netinfo: Box<[IpAddr]>,
    /// From labels of the Docker containerizer.
    pub docker: Box<[IpAddr]>,
    /// From labels of the cluster's own containerizer.
    pub mesos: Box<[IpAddr]>,
}

/// The relevant parts of a status, from either API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status<'s> {
    pub(super) state: &'s TaskState,
    pub(super) timestamp: f64,
    pub(super) labels: &'s [Label],
    pub(super) container: Option<&'s ContainerStatus>,
}

impl Addresses {
    /// From the newest running status; of equal timestamps, the first one.
    pub(super) fn newest<'s>(statuses: impl Iterator<Item = Status<'s>>) -> Self {
        let mut newest: Option<Status<'s>> = None;
        for status in statuses.filter(|status| *status.state == TaskState::Running && status.timestamp > -1.0)
        {
            if newest.is_none_or(|newest| status.timestamp > newest.timestamp) {
                newest = Some(status);
            }
        }
        newest.map(|status| Self::of(&status)).unwrap_or_default()
    }

    pub(super) fn of(status: &Status<'_>) -> Self {
        let labelled = |key| {
            let values = status.labels.iter().filter(move |label| label.key == key);
            values
                .filter_map(|label| address(label.value.as_deref()?))
                .collect()
        };
        let networks = status
            .container
            .into_iter()
            .flat_map(|container| &container.network_infos);
        Self {
            netinfo: networks.flat_map(of_network).collect(),
            docker: labelled(DOCKER),
            mesos: labelled(MESOS),
        }
    }
}

/// A network's addresses; the deprecated single address is used if there is no list.
fn of_network(network: &NetworkInfo) -> Vec<IpAddr> {
    let listed = network.ip_addresses.iter().map(|ip| ip.ip_address.as_deref());
    let old = network
        .ip_address
        .as_deref()
        .filter(|_| network.ip_addresses.is_empty());
    listed.chain([old]).flatten().filter_map(address).collect()
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use transom_cluster::v1::IpAddress;

    use super::*;

    #[test]
    fn deprecated_address_is_used_without_a_list() {
        let network = |listed: &[&str], old: Option<&str>| NetworkInfo {
            ip_addresses: listed
                .iter()
                .map(|ip| IpAddress {
                    ip_address: Some((*ip).into()),
                    ..IpAddress::default()
                })
                .collect(),
            ip_address: old.map(Into::into),
            ..NetworkInfo::default()
        };
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(of_network(&network(&["10.0.0.1"], Some("10.0.0.2"))), [one]);
        assert_eq!(of_network(&network(&[], Some("10.0.0.2"))), [two]);
        assert_eq!(of_network(&network(&["no address", "10.0.0.1"], None)), [one]);
        assert!(of_network(&network(&[], Some("no address"))).is_empty());
        assert!(of_network(&network(&[], None)).is_empty());
    }

    #[test]
    fn newest_running_status_has_the_addresses() {
        let label = |ip: &str| {
            vec![Label {
                key: DOCKER.into(),
                value: Some(ip.into()),
            }]
        };
        let (one, two, three) = (label("10.0.0.1"), label("::ffff:10.0.0.2"), label("no address"));
        let (running, starting) = (TaskState::Running, TaskState::Starting);
        let status = |state, timestamp, labels| Status {
            state,
            timestamp,
            labels,
            container: None,
        };
        let docker = |statuses: &[Status<'_>]| Addresses::newest(statuses.iter().copied()).docker.into_vec();
        assert_eq!(
            docker(&[status(&running, 1.0, &one), status(&running, 2.0, &two)]),
            [IpAddr::from([10, 0, 0, 2])]
        );
        assert_eq!(
            docker(&[status(&running, 1.0, &one), status(&running, 1.0, &two)]),
            [IpAddr::from([10, 0, 0, 1])]
        );
        assert_eq!(
            docker(&[status(&running, 1.0, &one), status(&starting, 2.0, &two)]),
            [IpAddr::from([10, 0, 0, 1])]
        );
        assert!(docker(&[status(&running, 1.0, &one), status(&running, 2.0, &three)]).is_empty());
        assert!(docker(&[status(&running, -1.0, &one)]).is_empty());
        assert!(docker(&[]).is_empty());
    }
}
