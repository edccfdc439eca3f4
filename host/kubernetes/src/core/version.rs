//! The version of a configuration. Tasks of other versions are replaced.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::persist::Wanted;
use crate::config::{Config, items};
use crate::kind::Kind;
use crate::secrets::{FORMER_PASSWORD, Secrets};
use crate::settings::Engine;
use crate::task::Endpoints;

/// The version of tasks that were imported: they stay until their kind is restarted.
pub(crate) const IMPORTED: &str = "imported";

/// The version of a kind's current configuration: a digest of all settings whose change requires that
/// running containers are replaced. The constraint and the script are not part of it; changes of
/// these apply from the next launch on. `clustered`: the datastore is a kvstore that may have several
/// members.
pub(super) fn of(
    config: &Config,
    secrets: &Secrets,
    wanted: &Wanted,
    kind: Kind,
    endpoints: &Endpoints,
    clustered: bool,
) -> String {
    let settings = wanted.adjusted.of(kind).apply_to(config.kinds.of(kind));
    let section = &config.settings;
    let common = json!([
        *wanted.generations.of(kind),
        config.name(),
        settings.cpus,
        settings.mem,
        settings.disk,
        settings.cpu_limit,
        settings.mem_limit,
        settings.disk_limit,
        settings.labels,
        settings.node_env,
        settings.docker_parameters,
        section.containers,
        section.cluster_network(),
        section.container_cni,
        section.shm_size(),
        section.container_ulimit,
        section.container_memory_swap,
        section.domain,
        section.cgroup_v2,
        section.restrict_disk_allocation,
        section.enforce_task_limits,
        section.container_runtime,
        section.volume_driver,
        section.tz,
    ]);
    // A kvstore has no password. The constant keeps the versions that former daemons computed.
    let password = match section.engine() {
        Engine::Sql => secrets.password.reveal(),
        Engine::Kvstore => FORMER_PASSWORD,
    };
    let of_datastore = json!([
        format!("{:?}", section.engine()),
        section.ds_image(),
        section.ds_port,
        section.ds_mysql_username,
        password,
        section.ds_mysql_ssl,
        section.volume_ds,
        section.ds_command,
    ]);
    let of_nodes = json!([
        section.image_orch,
        section.orch_token.as_ref().map(transom_common::Secret::reveal),
        section.orch_container,
        section.orch_version,
        items(&section.orch_node_env),
    ]);
    let own = match kind {
        Kind::Datastore if clustered => json!([of_datastore, "clustered", section.ds_peer_port]),
        Kind::Datastore => of_datastore,
        Kind::Server => json!([
            of_nodes,
            of_datastore,
            section.ds_endpoint.as_ref().map(transom_common::Secret::reveal),
            endpoints.datastore,
            section.orch_server_string,
            section.kubeconfig,
            section.orch_enable_taint,
            section.enable_registry_mirror,
            section.volume_orch_server,
        ]),
        Kind::Agent => json!([
            of_nodes,
            endpoints.server,
            section.agent_command(),
            section.agent_tcp_port(),
        ]),
    };
    let own = match (kind, section.server_port()) {
        (Kind::Server, Some(port)) => json!([own, "port", port]),
        _ => own,
    };
    let own = match &secrets.tls {
        Some(tls) if kind != Kind::Agent => json!([own, tls.authority.certificate]),
        _ => own,
    };
    let mut digest = format!("{:x}", Sha256::digest(json!([common, own]).to_string()));
    digest.truncate(16);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn versions_are_those_of_former_daemons() {
        let versions = |config: &Config| {
            let (wanted, endpoints) = (Wanted::default(), Endpoints::default());
            Kind::ALL.map(|kind| of(config, &testing::secrets(), &wanted, kind, &endpoints, false))
        };
        let changed = testing::config_with(|config| {
            let settings = &mut config.settings;
            settings.cluster_cni = Some("weave".to_owned());
            settings.container_shm_size = String::new();
            settings.orch_node_env = vec!["A=b=c".to_owned()];
            settings.orch_server_port = 6500;
            settings.orch_agent_tcp_port = 9000;
            settings.orch_agent_string = "k3s  agent --flannel-backend=vxlan".to_owned();
        });
        assert_eq!(
            versions(&testing::config()),
            ["9096792415aed185", "028b23b00752c1f5", "312ba9eb2ca34e20"]
        );
        assert_eq!(
            versions(&changed),
            ["84be24a9b5d04968", "6daf330a289be141", "41c9e8a7e9bc9acd"]
        );
    }
}
