//! The arguments of the bootstrap script: the command of the server or agent, and the options that the
//! service adds to it.

use transom_scheduler::Placement;

use super::container::{self, TASK_LABEL};
use super::{Metadata, data_volume};
use crate::config::Config;
use crate::kind::Kind;

/// Docker's socket for a kubelet.
const CRI_SOCKET: &str = "unix:///var/run/cri-dockerd.sock";

/// The arguments that are known before an offer.
pub(super) fn of(config: &Config, metadata: Metadata, task: &str) -> Vec<String> {
    let settings = &config.settings;
    let label = format!("{TASK_LABEL}={task}");
    let mut arguments = Vec::new();
    match metadata.kind {
        Kind::Datastore => {}
        Kind::Server => {
            arguments.extend(words(&settings.orch_server_string));
            if settings.orch_container {
                arguments.extend(["--container-runtime-endpoint", CRI_SOCKET].map(str::to_owned));
            }
            arguments.push(format!("--tls-san={}", container::alias(config, Kind::Server)));
            arguments.extend(["--node-label".to_owned(), label]);
            if settings.orch_enable_taint {
                arguments.extend(
                    [
                        "--node-taint",
                        "node-role.kubernetes.io/master=NoSchedule:NoSchedule",
                    ]
                    .map(str::to_owned),
                );
            }
            if settings.enable_registry_mirror {
                arguments.push("--embedded-registry".to_owned());
            }
        }
        Kind::Agent => {
            arguments.extend(words(&settings.agent_command()));
            if settings.orch_container {
                arguments.extend(["--container-runtime-endpoint", CRI_SOCKET].map(str::to_owned));
            }
            arguments.extend(["--with-node-id".to_owned(), task.to_owned()]);
            arguments.extend(["--node-label".to_owned(), label.clone()]);
            // Upstream's images search for these words. They must come last, because k3s stops parsing
            // at the last one, which is no option.
            arguments.extend(["--kubelet-arg".to_owned(), "node-labels".to_owned(), label]);
        }
    }
    arguments
}

/// The arguments that depend on the offer.
pub(super) fn of_placement(config: &Config, metadata: Metadata, placement: &Placement) -> Vec<String> {
    let Metadata { kind, number, .. } = metadata;
    if kind != Kind::Server {
        return Vec::new();
    }
    // Agents reach each server by the name of the first one, too.
    let shared = (number > 0).then(|| container::hostname(config, kind, 0));
    let names = shared.into_iter().chain([placement.agent.hostname.clone()]);
    let mut arguments: Vec<String> = names.map(|name| format!("--tls-san={name}")).collect();
    if !config.settings.containers {
        // Without a container the server listens on the port that clients use.
        let port = placement.host_ports.first();
        arguments.extend(port.map(|port| format!("--https-listen-port={port}")));
        let folder = data_volume::volume_name(config, kind, number);
        arguments.push(format!("--data-dir={folder}"));
    }
    arguments
}

fn words(command: &str) -> impl Iterator<Item = String> + '_ {
    command.split_whitespace().map(str::to_owned)
}
