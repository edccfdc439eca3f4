//! Fixtures for tests.

use std::sync::Arc;

use transom_cluster::TaskId;
use transom_scheduler::{AgentLocation, Placement};

use crate::Settings;
use crate::config::Config;
use crate::secrets::Secrets;

/// The settings of the specification, with the names and images of the recorded messages.
pub(crate) fn config() -> Config {
    let settings = Settings {
        port: 0,
        framework_name: "m3s".to_owned(),
        orch_server_string: "/usr/local/bin/k3s server --flannel-backend=vxlan".to_owned(),
        orch_agent_string: "/usr/local/bin/k3s agent --snapshotter=native".to_owned(),
        orch_container: false,
        volume_orch_server: "/data/k3s/server".to_owned(),
        volume_ds: "/data/k3s/datastore".to_owned(),
        ds_etcd_tls: false,
        ds_mysql_tls: false,
        ..Settings::default()
    };
    Config::new(settings)
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
