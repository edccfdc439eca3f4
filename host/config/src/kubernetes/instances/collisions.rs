//! Values that two instances must not have in common.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::{Kubernetes, Settings};

/// The collisions, one line for each value that is equal to an earlier one.
pub(super) fn find(settings: &Settings) -> Vec<String> {
    let instances = settings.kubernetes();
    let mut problems = Vec::new();
    let names = instances.iter().map(|section| {
        let key = key(section, "framework_name");
        (section.framework_name.clone(), key)
    });
    for [one, other, name] in equal_values(names) {
        problems.push(format!(
            "{one} and {other} are both {name:?}; each framework needs a different name"
        ));
    }
    let volumes = instances.iter().flat_map(|section| {
        [
            ("volume_orch_server", &section.volume_orch_server),
            ("volume_ds", &section.volume_ds),
        ]
        .map(|(name, volume)| (volume.trim_end_matches('/').to_owned(), key(section, name)))
    });
    let volumes: Vec<_> = volumes.collect();
    problems.extend(task_volume_problems(&volumes));
    for [one, other, volume] in equal_values(volumes.into_iter()) {
        problems.push(format!(
            "{one} and {other} are both {volume:?}; instances on one agent would overwrite each other's data"
        ));
    }
    let endpoints = instances.iter().filter_map(|section| {
        let endpoint = section.ds_endpoint.as_ref()?;
        Some((endpoint.reveal().to_owned(), key(section, "ds_endpoint")))
    });
    for [one, other, _] in equal_values(endpoints) {
        problems.push(format!(
            "{one} and {other} are the same; each instance needs a different datastore"
        ));
    }
    problems.extend(port_problems(settings));
    problems
}

/// Volumes with the name of a further volume of another instance: `VOLUME-1`, `VOLUME-2` and so on.
fn task_volume_problems(volumes: &[(String, String)]) -> impl Iterator<Item = String> {
    volumes.iter().filter_map(|(volume, key)| {
        let (base, number) = volume.rsplit_once('-')?;
        number.parse::<u32>().ok()?;
        let (_, other) = volumes.iter().find(|(other, _)| other == base)?;
        Some(format!(
            "{key} is {volume:?}, which is the volume of task {number} of {other}, {base:?}; expected another volume, or \
             another name of the instance"
        ))
    })
}

fn port_problems(settings: &Settings) -> Vec<String> {
    let sections = settings.kubernetes_ports();
    let mut problems = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        let is_same_port = |other: &&&Kubernetes| {
            let addresses = [section.listener, other.listener];
            let overlap = addresses[0] == addresses[1] || addresses.iter().any(IpAddr::is_unspecified);
            section.port != 0 && section.port == other.port && overlap
        };
        if let Some(other) = sections[..index].iter().find(is_same_port) {
            problems.push(format!(
                "{} and {} are both {}; each port needs a different number",
                key(other, "port"),
                key(section, "port"),
                section.port
            ));
        }
    }
    problems
}

fn key(section: &Kubernetes, name: &str) -> String {
    format!("`{}.{name}`", section.instance.section)
}

/// For each value that occurs again: the key of its first occurrence, the later key, and the value.
fn equal_values(values: impl Iterator<Item = (String, String)>) -> Vec<[String; 3]> {
    let mut first = BTreeMap::<String, String>::new();
    let mut duplicates = Vec::new();
    for (value, key) in values {
        match first.get(&value) {
            Some(other) => duplicates.push([other.clone(), key, value]),
            None => {
                first.insert(value, key);
            }
        }
    }
    duplicates
}
