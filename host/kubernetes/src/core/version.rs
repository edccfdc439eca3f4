//! The version of a configuration. Tasks of other versions are replaced.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::persist::Wanted;
use crate::config::{Config, Engine};
use crate::kind::Kind;
use crate::secrets::{FORMER_PASSWORD, Secrets};
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
    let (containers, orchestrator, datastore) = (&config.containers, &config.orchestrator, &config.datastore);
    let common = json!([
        *wanted.generations.of(kind),
        config.name,
        settings.cpus,
        settings.mem,
        settings.disk,
        settings.cpu_limit,
        settings.mem_limit,
        settings.disk_limit,
        settings.labels,
        settings.node_env,
        settings.docker_parameters,
        containers.enabled,
        containers.cluster_network,
        containers.container_network,
        containers.shm_size,
        containers.open_files,
        containers.memory_swap,
        containers.domain,
        containers.cgroup_v2,
        containers.restrict_disk,
        containers.enforce_limits,
        containers.runtime,
        containers.volume_driver,
        containers.time_zone,
    ]);
    // A kvstore has no password. The constant keeps the versions that former daemons computed.
    let password = match datastore.engine {
        Engine::Sql => secrets.password.reveal(),
        Engine::Kvstore => FORMER_PASSWORD,
    };
    let of_datastore = json!([
        format!("{:?}", datastore.engine),
        datastore.image,
        datastore.port,
        datastore.username,
        password,
        datastore.ssl,
        datastore.volume,
        datastore.command,
    ]);
    let of_nodes = json!([
        orchestrator.image,
        orchestrator.token.as_ref().map(transom_common::Secret::reveal),
        orchestrator.container_runtime,
        orchestrator.version,
        orchestrator.node_env,
    ]);
    let own = match kind {
        Kind::Datastore if clustered => json!([of_datastore, "clustered", datastore.peer_port]),
        Kind::Datastore => of_datastore,
        Kind::Server => json!([
            of_nodes,
            of_datastore,
            datastore.endpoint.as_ref().map(transom_common::Secret::reveal),
            endpoints.datastore,
            orchestrator.server_command,
            orchestrator.kubeconfig,
            orchestrator.enable_taint,
            orchestrator.registry_mirror,
            orchestrator.server_volume,
        ]),
        Kind::Agent => json!([
            of_nodes,
            endpoints.server,
            orchestrator.agent_command,
            orchestrator.agent_tcp_port,
        ]),
    };
    let own = match (kind, orchestrator.server_port) {
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
