//! Where the data of a datastore and of the servers is: the path in the container, and the volume.

use std::collections::BTreeMap;

use transom_launch::{Volume, VolumeSource};

use crate::config::Config;
use crate::kind::Kind;
use crate::settings::Engine;

/// The servers' data in their containers.
pub(super) const SERVER_DATA: &str = "/var/lib/rancher/k3s";
/// The SQL server's data in its container.
pub(super) const SQL_DATA: &str = "/var/lib/mysql";
/// The kvstore's data in its container.
pub(super) const KVSTORE_DATA: &str = "/default.etcd";

/// The name of a task's volume, or of its directory if containers are disabled. Except for number 0, it
/// contains the number, because tasks of one kind on one host must not share it.
pub(super) fn volume_name(config: &Config, kind: Kind, number: u32) -> String {
    let name = match kind {
        Kind::Datastore => &config.settings.volume_ds,
        Kind::Server | Kind::Agent => &config.settings.volume_orch_server,
    };
    match number {
        0 => name.clone(),
        _ => format!("{}-{number}", name.trim_end_matches('/')),
    }
}

/// The volume of a task; agents have none.
pub(super) fn volume(config: &Config, kind: Kind, number: u32) -> Option<Volume> {
    let path = match (kind, config.settings.engine()) {
        (Kind::Datastore, Engine::Sql) => SQL_DATA,
        (Kind::Datastore, Engine::Kvstore) => KVSTORE_DATA,
        (Kind::Server, _) => SERVER_DATA,
        (Kind::Agent, _) => return None,
    };
    Some(Volume {
        container_path: path.to_owned(),
        read_only: false,
        source: VolumeSource::Docker {
            name: volume_name(config, kind, number),
            driver: Some(config.settings.volume_driver.clone()),
            options: BTreeMap::new(),
        },
    })
}
