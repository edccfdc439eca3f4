//! The container of one running task.

use super::{
    arguments,
    group::GroupMembership,
    inspect::Inspection,
    kernel_log,
    runtime::{CALL_TIMEOUT, Runtime},
    spec::{Containerizer, PublishedPort, Spec},
    task,
};
use crate::{agent::process, state::AgentUpdate, wire::json as doc};
use base64::Engine;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    net::{IpAddr, SocketAddr},
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{process::Command, sync::OwnedSemaphorePermit};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The first and the longest delay between two polls of a starting container.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum attempts to signal a container that may not exist yet, and to remove one that has ended.
const MAX_SIGNAL_ATTEMPTS: u32 = 60;
const MAX_REMOVE_ATTEMPTS: u32 = 3;
/// The offset that the runtime adds to a signal's number to form the exit status.
const SIGNAL_STATUS_OFFSET: i32 = 128;

/// A container that is starting or running.
#[derive(Debug)]
pub(crate) struct Container {
    runtime: Arc<Runtime>,
    name: String,
    containerizer: Containerizer,
    /// The signal that asks the container to stop.
    stop_signal: String,
    published: Vec<PublishedPort>,
    network_info: Option<Value>,
    /// Whether it shares the agent's network.
    uses_host_network: bool,
    memory_mb: Option<u64>,
    group: Option<GroupMembership>,
    /// Its own address, set when it has started.
    ip: OnceLock<Option<String>>,
    /// Limits how many containers start concurrently; held while this one starts.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Cancelled when its process has ended.
    ended: CancellationToken,
    tracker: TaskTracker,
}

/// How a container ended.
#[derive(Debug, Default)]
pub(crate) struct ContainerEnd {
    /// Its last inspection; `None` if it never ran.
    inspection: Option<Inspection>,
    /// Whether its memory limit ended it.
    out_of_memory: bool,
}

impl Container {
    pub(super) fn new(
        runtime: Arc<Runtime>,
        spec: Spec,
        stop_signal: Option<String>,
        group: Option<GroupMembership>,
        permit: OwnedSemaphorePermit,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            memory_mb: spec.memory_mb(),
            uses_host_network: spec.network == super::spec::Network::Host,
            runtime,
            name: spec.name,
            containerizer: spec.containerizer,
            stop_signal: stop_signal.unwrap_or_else(|| Signal::SIGTERM.as_str().to_owned()),
            published: spec.published,
            network_info: spec.network_info,
            group,
            ip: OnceLock::new(),
            permit: Mutex::new(Some(permit)),
            ended: CancellationToken::new(),
            tracker,
        }
    }

    pub(crate) fn containerizer(&self) -> Containerizer {
        self.containerizer
    }

    /// Waits until the container has started; never returns if it does not start.
    pub(crate) async fn started(&self) -> StartedContainer {
        let mut interval = MIN_POLL_INTERVAL;
        loop {
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(MAX_POLL_INTERVAL);
            if let Some(inspection) = self
                .runtime
                .inspect(&self.name)
                .await
                .filter(|inspection| inspection.started)
            {
                return self.record_start(inspection);
            }
        }
    }

    /// Records that the container has started.
    fn record_start(&self, inspection: Inspection) -> StartedContainer {
        self.release_permit();
        let group = self.group.as_ref().and_then(|group| group.address.clone());
        let ip = self
            .ip
            .get_or_init(|| group.or_else(|| inspection.ip.clone()))
            .clone();
        StartedContainer {
            network_info: ip
                .as_deref()
                .map(|ip| network_info(self.network_info.as_ref(), ip)),
            ip,
            text: inspection.text,
            containerizer: self.containerizer,
        }
    }

    /// Releases the permit, so that another container can start.
    fn release_permit(&self) {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sends a signal in the background, with retries until it is delivered or the container has
    /// ended. SIGTERM is replaced by the image's stop signal.
    pub(crate) fn signal(self: &Arc<Self>, signal: Signal) {
        let container = Arc::clone(self);
        let name = match signal {
            Signal::SIGTERM => container.stop_signal.clone(),
            other => other.as_str().to_owned(),
        };
        self.tracker.spawn(async move {
            let ended = container.ended.clone();
            ended.run_until_cancelled(container.send_signal(&name)).await;
        });
    }

    async fn send_signal(&self, signal: &str) {
        let mut interval = MIN_POLL_INTERVAL;
        for _ in 0..MAX_SIGNAL_ATTEMPTS {
            let arguments = ["kill", "--signal", signal, &self.name];
            match self.runtime.call(&arguments, CALL_TIMEOUT).await {
                Ok(_) => return,
                // The container may not exist yet.
                Err(why) => tracing::debug!(
                    container = self.name,
                    why,
                    "cannot signal the container yet; retrying"
                ),
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(MAX_POLL_INTERVAL);
        }
        tracing::warn!(container = self.name, signal, "cannot signal a container");
    }

    /// Kills and removes the container without a grace period.
    pub(crate) async fn destroy(&self) {
        self.ended.cancel();
        self.remove().await;
    }

    /// To be called after its process has ended: returns how it ended, and removes the container.
    pub(crate) async fn finish(&self, status: Option<ExitStatus>) -> ContainerEnd {
        self.ended.cancel();
        self.release_permit();
        let inspection = self
            .runtime
            .inspect(&self.name)
            .await
            .filter(|inspection| inspection.started);
        let killed =
            status.and_then(|status| status.code()) == Some(SIGNAL_STATUS_OFFSET + Signal::SIGKILL as i32);
        let out_of_memory = match &inspection {
            Some(inspection) if inspection.out_of_memory => true,
            Some(inspection) if killed && self.memory_mb.is_some() => {
                kernel_log::out_of_memory(&inspection.id).await
            }
            _ => false,
        };
        self.remove().await;
        ContainerEnd {
            inspection,
            out_of_memory,
        }
    }

    async fn remove(&self) {
        for attempt in 1..=MAX_REMOVE_ATTEMPTS {
            match self.runtime.remove(&[&self.name]).await {
                Ok(()) => return,
                Err(why) => tracing::warn!(container = self.name, attempt, why, "cannot remove a container"),
            }
        }
    }

    /// The start of a container that ended before any poll saw it running.
    pub(crate) fn start_found_at_end(&self, end: &ContainerEnd) -> Option<StartedContainer> {
        end.inspection
            .clone()
            .map(|inspection| self.record_start(inspection))
    }

    /// The runtime's command that runs a program inside the container; `None` if `info` has no value.
    pub(crate) fn exec(&self, info: &Value) -> Option<Command> {
        let command_line = task::exec(info, self.containerizer)?;
        let environment = task::variables(info).ok()?;
        let arguments = arguments::exec(&self.name, &environment, &command_line, &self.runtime.options);
        let mut command = self.runtime.command(&arguments);
        command.stdin(Stdio::null());
        Some(command)
    }

    /// The addresses at which this process can reach a port of the container; `None` if the
    /// container shares the agent's network.
    pub(crate) fn addresses(&self, port: u16) -> Option<Vec<SocketAddr>> {
        if self.uses_host_network {
            return None;
        }
        let own_address = self.ip.get().and_then(|ip| ip.as_ref()?.parse::<IpAddr>().ok());
        let own_address = own_address.map(|ip| SocketAddr::new(ip, port));
        let published = self
            .published
            .iter()
            .filter(|published| published.container == port);
        let published = published.map(|published| SocketAddr::new(published.address, published.host));
        Some(own_address.into_iter().chain(published).collect())
    }

    /// Describes the end with the executor's message. `was_signalled`: this cluster sent a signal.
    pub(crate) fn describe(&self, status: ExitStatus, was_signalled: bool) -> String {
        describe(self.containerizer, status, was_signalled)
    }

    /// The update for a container that exceeded its memory limit. Only the Mesos containerizer
    /// reports that.
    pub(crate) fn exceeded_limit(&self, end: &ContainerEnd) -> Option<LimitExceeded> {
        let limit = self.memory_mb?;
        (end.out_of_memory && self.containerizer == Containerizer::Mesos).then(|| LimitExceeded {
            message: format!("Memory limit exceeded: Requested: {limit}MB Maximum Used: {limit}MB\n"),
            limitation: json!({"resources": [{"name": "mem", "type": "SCALAR", "scalar": {"value": limit as f64}}]}),
        })
    }
}

/// The message for a container's end. Docker's executor knows only the exit status of `docker run`;
/// the Mesos containerizer knows the signal.
fn describe(containerizer: Containerizer, status: ExitStatus, was_signalled: bool) -> String {
    match containerizer {
        Containerizer::Docker => process::describe(status).replacen("Command", "Container", 1),
        Containerizer::Mesos => {
            let number = status.code().map(|code| code - SIGNAL_STATUS_OFFSET);
            let sent_signals = [Signal::SIGTERM, Signal::SIGKILL].map(|signal| signal as i32);
            match number.filter(|number| was_signalled && sent_signals.contains(number)) {
                Some(signal) => process::describe(ExitStatus::from_raw(signal)),
                None => process::describe(status),
            }
        }
    }
}

/// The fields of the update for an exceeded memory limit.
#[derive(Debug)]
pub(crate) struct LimitExceeded {
    pub(crate) message: String,
    pub(crate) limitation: Value,
}

/// A container that has started.
#[derive(Debug)]
pub(crate) struct StartedContainer {
    network_info: Option<Value>,
    ip: Option<String>,
    text: String,
    containerizer: Containerizer,
}

impl StartedContainer {
    /// The `NetworkInfo` of its updates while it runs.
    pub(crate) fn network_info(&self) -> Option<Value> {
        self.network_info.clone()
    }

    /// Adds the fields that Docker's executor adds to the first `TASK_RUNNING`.
    pub(crate) fn add_docker_fields(&self, update: &mut AgentUpdate) {
        if self.containerizer == Containerizer::Docker {
            update.data = Some(base64::engine::general_purpose::STANDARD.encode(&self.text));
            update.labels = self.ip.as_deref().map(task::address_label);
        }
    }
}

/// The task's own `NetworkInfo` with the container's address.
fn network_info(requested: Option<&Value>, ip: &str) -> Value {
    let mut info = doc::object(requested.cloned().unwrap_or_else(|| json!({})));
    let protocol = if ip.contains(':') { "IPv6" } else { "IPv4" };
    info.insert(
        "ip_addresses".to_owned(),
        json!([{"protocol": protocol, "ip_address": ip}]),
    );
    Value::Object(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_described_as_each_containerizer_does() {
        use Containerizer::{Docker, Mesos};
        let cases = [
            (Docker, 3, false, "Container exited with status 3"),
            (Docker, 137, true, "Container exited with status 137"),
            (Mesos, 3, true, "Command exited with status 3"),
            (Mesos, 143, true, "Command terminated with signal Terminated"),
            (Mesos, 137, true, "Command terminated with signal Killed"),
            (Mesos, 137, false, "Command exited with status 137"),
        ];
        for (containerizer, code, was_signalled, expected) in cases {
            let status = ExitStatus::from_raw(code << 8);
            assert_eq!(describe(containerizer, status, was_signalled), expected);
        }
    }

    #[test]
    fn network_info_of_a_status_keeps_the_fields_of_the_task() {
        let address = json!([{"protocol": "IPv4", "ip_address": "10.0.0.2"}]);
        assert_eq!(network_info(None, "10.0.0.2"), json!({"ip_addresses": address}));
        let requested = json!({"name": "web", "ip_addresses": [{}]});
        assert_eq!(
            network_info(Some(&requested), "10.0.0.2"),
            json!({"name": "web", "ip_addresses": address})
        );
    }
}
