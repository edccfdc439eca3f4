//! Names that keys have elsewhere: each is accepted for ours, and ours wins where both are given.

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

/// `[workflow]`: our key, and what the workflow engine's own file may call it.
pub(crate) const WORKFLOW: [(&str, &str); 14] = [
    ("cluster_ssl", "mesos_ssl"),
    ("cluster_attributes", "mesos_attributes"),
    ("cluster_fetch_uri", "mesos_fetch_uri"),
    ("cluster_fetch_username", "mesos_fetch_username"),
    ("container_image_slave", "docker_image_slave"),
    ("container_volume_driver", "docker_volume_driver"),
    ("container_volume_dag_name", "docker_volume_dag_name"),
    (
        "container_volume_dag_container_path",
        "docker_volume_dag_container_path",
    ),
    ("container_volume_logs_name", "docker_volume_logs_name"),
    (
        "container_volume_logs_container_path",
        "docker_volume_logs_container_path",
    ),
    ("container_sock", "docker_sock"),
    ("container_user_group_id", "docker_user_group_id"),
    ("container_network_mode", "docker_network_mode"),
    ("container_environment", "docker_environment"),
];

/// A source of settings whose keys are renamed to ours.
pub(super) struct Neutral<P>(pub(super) P);

impl<P: Provider> Provider for Neutral<P> {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut data = self.0.data()?;
        for dict in data.values_mut() {
            if let Some(Value::Dict(_, section)) = dict.get_mut("workflow") {
                rename(section);
            }
        }
        Ok(data)
    }
}

fn rename(section: &mut Dict) {
    for (ours, theirs) in WORKFLOW {
        if let Some(value) = section.remove(theirs) {
            if section.contains_key(ours) {
                // Before the log is set up: settings say how.
                eprintln!(
                    "transom: `workflow.{ours}` and `workflow.{theirs}` are both given; the first one is taken"
                );
            } else {
                section.insert(ours.to_owned(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_wins() {
        let mut section = Dict::new();
        section.insert("mesos_ssl".to_owned(), true.into());
        section.insert("docker_sock".to_owned(), "theirs".into());
        section.insert("container_sock".to_owned(), "ours".into());
        rename(&mut section);
        let keys: Vec<&str> = section.keys().map(String::as_str).collect();
        assert_eq!(keys, ["cluster_ssl", "container_sock"]);
        assert_eq!(section["container_sock"].as_str(), Some("ours"));
    }
}
