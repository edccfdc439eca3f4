//! Fixtures for tests.

use std::sync::Arc;
use std::time::Duration;

use transom_cluster::TaskId;
use transom_scheduler::{AgentLocation, Placement};
use transom_web::PortConfig;

use crate::config::{
    BackupConfig, BootstrapConfig, Config, ContainerConfig, DatastoreConfig, Engine, KindConfig,
    OrchestratorConfig,
};
use crate::kind::{Kind, PerKind};
use crate::secrets::Secrets;

/// The settings of the specification, with the names and images of the recorded messages.
pub(crate) fn config() -> Config {
    Config {
        port: PortConfig::new("kubernetes", 0),
        path: String::new(),
        name: "m3s".to_owned(),
        heartbeat_interval: Duration::from_secs(15),
        max_scale: 100,
        autoscale: None,
        port_range: (31000, 32000),
        kinds: PerKind::from_fn(|kind| {
            let (cpus, mem, disk) = match kind {
                Kind::Datastore => (1.0, 1000.0, 10000.0),
                Kind::Server => (0.1, 1200.0, 1000.0),
                Kind::Agent => (0.1, 1200.0, 10000.0),
            };
            KindConfig {
                count: 1,
                cpus,
                mem,
                disk,
                cpu_limit: None,
                mem_limit: None,
                disk_limit: None,
                constraint: None,
                labels: Vec::new(),
                node_env: Vec::new(),
                docker_parameters: Vec::new(),
            }
        }),
        containers: ContainerConfig {
            enabled: true,
            mapped_addresses: false,
            cluster_network: None,
            container_network: "bridge".to_owned(),
            shm_size: Some("30gb".to_owned()),
            open_files: 1_048_576,
            memory_swap: 1000.0,
            domain: ".local".to_owned(),
            cgroup_v2: false,
            restrict_disk: false,
            enforce_limits: true,
            runtime: None,
            volume_driver: "local".to_owned(),
            time_zone: "Etc/UTC".to_owned(),
        },
        orchestrator: OrchestratorConfig {
            image: "avhost/ubuntu-m3s:22.04-3".to_owned(),
            token: None,
            server_command: "/usr/local/bin/k3s server --flannel-backend=vxlan".to_owned(),
            agent_command: "/usr/local/bin/k3s agent --snapshotter=native".to_owned(),
            container_runtime: false,
            version: "v1.31.5".to_owned(),
            kubeconfig: "/etc/rancher/k3s/k3s.yaml".to_owned(),
            kubeconfig_file: "k3s.yaml".to_owned(),
            node_timeout: Duration::from_mins(10),
            enable_taint: true,
            disable_scheduling: false,
            registry_mirror: false,
            node_env: Vec::new(),
            server_port: None,
            agent_tcp_port: None,
            server_volume: "/data/k3s/server".to_owned(),
            drain_timeout: Duration::from_mins(5),
        },
        datastore: DatastoreConfig {
            engine: Engine::Sql,
            image: "docker.io/mariadb:10.8.3".to_owned(),
            port: 3306,
            peer_port: 2380,
            username: "root".to_owned(),
            password: None,
            tls: false,
            ssl: false,
            volume: "/data/k3s/datastore".to_owned(),
            command: None,
            endpoint: None,
        },
        bootstrap: BootstrapConfig {
            url: None,
            max_bytes: 1 << 20,
            timeout: Duration::from_secs(10),
            refresh: Duration::from_mins(5),
            advertise: None,
        },
        backup: BackupConfig {
            dir: None,
            keep: 7,
            max_bytes: 1 << 30,
            timeout: Duration::from_mins(30),
            cpus: 0.1,
            mem: 128.0,
            disk: 1000.0,
        },
        store_timeout: transom_store::typed::TIMEOUT,
    }
}

/// Secrets for tasks.
pub(crate) fn secrets() -> Arc<Secrets> {
    Arc::new(Secrets {
        token: "tok".into(),
        password: "stored".into(),
        tls: None,
    })
}

/// The agent of the recorded messages.
pub(crate) fn agent() -> AgentLocation {
    AgentLocation {
        id: "agent-1".into(),
        hostname: "agent1.test".to_owned(),
        region: None,
        zone: None,
        endpoint: None,
    }
}

/// A placement on that agent.
pub(crate) fn placement(task: &str, host_ports: &[u16]) -> Placement {
    Placement {
        task: TaskId::from(task),
        agent: agent(),
        host_ports: host_ports.to_vec(),
    }
}

/// The settings of [`config`] with a change.
pub(crate) fn config_with(change: impl FnOnce(&mut Config)) -> Arc<Config> {
    let mut config = config();
    change(&mut config);
    Arc::new(config)
}
