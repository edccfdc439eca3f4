//! Turns an instance of a pod into a group of tasks under one executor: a task for each container,
//! with the networks and the port mappings at the executor, whose network all containers share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{ExecutorInfo, TaskInfo};
use transom_cluster::{ExecutorId, TaskId};
use transom_common::HostPort;
use transom_launch::{
    Command, Container, Containerizer, Environment, HealthCheck, Probe, Program, Task, Volume, VolumeSource,
};
use transom_scheduler::{
    Build, BuildGroup, ExecutorResources, Group, GroupPlacement, Member, PortRequest, RunSpec, TaskRecord,
};

use super::container::{mappings, network, with_linux_info};
use super::discovery::discovery;
use super::environment::{label_variable, label_variables};
use super::ports::{self, InstancePort, unused_port};
use super::{
    LaunchSettings, accepted_roles, agent_check, command_line, condition, is_current, limits,
    max_failures_for_agent, probe_times, secret_source, uri,
};
use crate::ids::InstanceId;
use crate::model::pod::{HealthProbe, Image, Pod, PodContainer, PodHealthCheck, PodVolume, VolumeMount};
use crate::model::{CheckCommand, Engine, EnvValue, Scheme};
use crate::time::Moment;

/// The directory of ephemeral volumes in the sandbox of the executor.
const VOLUMES: &str = "volumes";

/// The run spec of one version of a pod. `current` are the versions with the same configuration,
/// this one among them.
///
/// The id of a group is that of the request for an instance ([`InstanceId::task`]). In the task id
/// of a container, the container's name replaces `_app`.
pub(crate) fn pod_spec(pod: &Arc<Pod>, current: BTreeSet<Moment>, settings: &LaunchSettings) -> Arc<RunSpec> {
    let member = |container: &PodContainer| Member {
        name: container.name.clone(),
        cpus: container.resources.cpus,
        mem: container.resources.mem,
        disk: container.resources.disk,
        gpus: f64::from(container.resources.gpus),
        ports: requests(container),
    };
    let gpus = pod.containers.iter().map(|container| container.resources.gpus);
    Arc::new(RunSpec {
        id: pod.id.to_string(),
        version: pod.version.to_string(),
        instances: pod.instances(),
        cpus: pod.executor_resources.cpus,
        mem: pod.executor_resources.mem,
        disk: pod.executor_resources.disk,
        gpus: 0.0,
        avoid_gpus: super::gpus::avoids(&pod.labels, gpus.fold(0, u32::saturating_add), settings),
        ports: Vec::new(),
        role: Some(pod.role.clone()),
        volumes: pod
            .persistent_volumes()
            .map(|(name, volume)| super::volumes::request(name, volume))
            .collect(),
        constraints: pod.constraints().iter().map(condition).collect(),
        roles: accepted_roles(pod.accepted_resource_roles(), &pod.role),
        executor: ExecutorResources::default(),
        build: Build::Group(Group {
            members: pod.containers.iter().map(member).collect(),
            build: Arc::new(BuildPod {
                pod: Arc::clone(pod),
                current,
                settings: settings.clone(),
            }),
        }),
    })
}

/// The ports of the agent that the endpoints of a container request.
pub(crate) fn requests(container: &PodContainer) -> Vec<PortRequest> {
    let ports = container.endpoints.iter().filter_map(|it| it.host_port);
    let request = |port| match port {
        0 => PortRequest::Random,
        port => PortRequest::Fixed(port),
    };
    ports.map(request).collect()
}

/// The endpoints of each container of an instance, in the order of the definition. `group` is the
/// id of its group; `host_ports` are the ports of the agent for each container, as the scheduler
/// assigns and stores them. A container whose ports are missing has no endpoints.
///
/// A port of a container that has neither a number nor a port on the agent gets a number that is
/// derived from the id of the group, so that it is the same whenever it is computed from the tasks'
/// records.
pub(crate) fn endpoints<'a, P: AsRef<[u16]>>(
    pod: &'a Pod,
    group: &str,
    host_ports: &[P],
) -> Vec<Vec<InstancePort<'a>>> {
    let defined = || pod.containers.iter().flat_map(|it| &it.endpoints);
    let mut taken: BTreeSet<u16> = defined().filter_map(|it| it.container_port).collect();
    taken.extend(host_ports.iter().flat_map(AsRef::as_ref));
    let in_host_network = pod.uses_host_network();
    let containers = pod.containers.iter().enumerate();
    let of_container = |(at, container): (usize, &'a PodContainer)| {
        let mut hosts = host_ports.get(at).map_or(&[][..], AsRef::as_ref).iter().copied();
        let ports = container.endpoints.iter().map_while(|endpoint| {
            let host = match endpoint.host_port {
                Some(_) => Some(hosts.next()?),
                None => None,
            };
            let port = match (endpoint.container_port, host) {
                (Some(port), _) if port != 0 => Some(port),
                (_, Some(_)) if in_host_network => None,
                (_, Some(host)) => Some(host),
                (_, None) => Some(unused_port(group, &mut taken)),
            };
            Some(InstancePort {
                name: Some(&endpoint.name),
                protocol: (&endpoint.protocol).into(),
                labels: &endpoint.labels,
                requested: endpoint.container_port.or(endpoint.host_port).unwrap_or(0),
                host,
                container: port,
                networks: &endpoint.network_names,
            })
        });
        ports.collect()
    };
    containers.map(of_container).collect()
}

/// The same as [`endpoints`], for an instance with these tasks.
pub(crate) fn endpoints_of<'a>(pod: &'a Pod, records: &[Arc<TaskRecord>]) -> Vec<Vec<InstancePort<'a>>> {
    let group = records.first().map_or("", |record| record.request_id().as_str());
    let of_container = |container: &PodContainer| {
        let is = |record: &&Arc<TaskRecord>| {
            let within = record.group.as_ref();
            within.is_some_and(|within| within.member == container.name)
        };
        let record = records.iter().find(is);
        record.map_or(&[][..], |record| &record.host_ports)
    };
    let host_ports: Vec<&[u16]> = pod.containers.iter().map(of_container).collect();
    endpoints(pod, group, &host_ports)
}

/// The address of an endpoint of a running task of `pod`: that of the agent, or in container
/// networks that of the container. `None` while the container's address is unknown.
pub(crate) fn endpoint_address(pod: &Pod, record: &TaskRecord, port: &InstancePort<'_>) -> Option<HostPort> {
    ports::endpoint_address(&pod.networks, record, port)
}

/// The id of the executor of an instance, in upstream's form: `instance-shop_web.` and the
/// instance's UUID. From the second incarnation on, the incarnation follows.
pub(crate) fn executor_id(group: &TaskId) -> ExecutorId {
    let Some((instance, incarnation)) = InstanceId::of_task(group) else {
        return group.as_str().into();
    };
    let (pod, uuid) = instance.as_str().rsplit_once(".instance-").unwrap_or_default();
    // The id differs, because the executor of the previous tasks may still be ending.
    match incarnation {
        1 => format!("instance-{pod}.{uuid}").as_str().into(),
        later => format!("instance-{pod}.{uuid}.{later}").as_str().into(),
    }
}

#[derive(Debug)]
struct BuildPod {
    pod: Arc<Pod>,
    current: BTreeSet<Moment>,
    settings: LaunchSettings,
}

impl BuildGroup for BuildPod {
    fn task_id(&self, group: &TaskId, member: usize) -> TaskId {
        let container = self.pod.containers.get(member);
        let name = container.map(|container| container.name.as_str());
        InstanceId::container_task(group, name.unwrap_or_default())
    }

    fn executor(&self, placement: &GroupPlacement) -> ExecutorInfo {
        let pod = &self.pod;
        let ports = self.endpoints(placement);
        let container = Container {
            network: network(&pod.networks, Engine::Mesos),
            port_mappings: ports.iter().flatten().flat_map(mappings).collect(),
            ..with_linux_info(Containerizer::Mesos, pod.linux_info.as_ref())
        };
        let labels = pod.labels.clone();
        ExecutorInfo {
            executor_id: executor_id(&placement.group),
            container: Some(container.into()),
            labels: (!labels.is_empty()).then(|| labels.into_iter().collect()),
            ..ExecutorInfo::default()
        }
    }

    fn task(&self, placement: &GroupPlacement, member: usize) -> TaskInfo {
        let pod = &self.pod;
        let Some(container) = pod.containers.get(member) else {
            return TaskInfo::default();
        };
        let all = self.endpoints(placement);
        let ports = all.get(member).map_or(&[][..], Vec::as_slice);
        let check = pod.indexed_check_of(member);
        let grace = pod.kill_grace_of(member);
        let task = Task {
            container: Some(self.container(container)),
            labels: container.labels.clone(),
            discovery: Some(discovery(&pod.id, &pod.networks, ports)),
            check: check.and_then(|check| agent_check(&check, self.settings.checks, ports)),
            health_check: container
                .health_check
                .as_ref()
                .and_then(|check| health_check(check, ports)),
            kill_grace: grace.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            limits: limits(container.resource_limits),
            ..Task::new(
                container.name.clone(),
                self.command(container, placement, member, &all),
            )
        };
        task.into()
    }

    /// Tasks of another configuration are not counted, because they are being replaced, and
    /// `UNIQUE` must not block a restart.
    fn counts_as_placed(&self, record: &TaskRecord) -> bool {
        is_current(record, &self.current)
    }
}

impl BuildPod {
    fn endpoints(&self, placement: &GroupPlacement) -> Vec<Vec<InstancePort<'_>>> {
        let members = placement.members.iter();
        let host_ports: Vec<&[u16]> = members.map(|member| member.host_ports.as_slice()).collect();
        endpoints(&self.pod, placement.group.as_str(), &host_ports)
    }

    fn command(
        &self,
        container: &PodContainer,
        placement: &GroupPlacement,
        member: usize,
        ports: &[Vec<InstancePort<'_>>],
    ) -> Command {
        Command {
            program: program(container),
            environment: self.environment(container, placement, member, ports),
            uris: container.artifacts.iter().map(uri).collect(),
            user: container.user.clone().or_else(|| self.pod.user.clone()),
        }
    }

    /// The variables of the pod, then those of the container, then upstream's. A later variable
    /// replaces an earlier one, so a definition cannot replace upstream's.
    fn environment(
        &self,
        container: &PodContainer,
        placement: &GroupPlacement,
        member: usize,
        ports: &[Vec<InstancePort<'_>>],
    ) -> Environment {
        let pod = &self.pod;
        let mut env = Environment::default();
        for (name, value) in pod.environment.iter().chain(&container.environment) {
            match value {
                EnvValue::Plain(value) => env.set(name, value),
                EnvValue::Secret { secret } => env.set_secret(name, secret_source(&pod.secrets, secret)),
            }
        }
        let resources = container.resources;
        let task = self.task_id(&placement.group, member);
        let described = [
            ("HOST", placement.agent.hostname.clone()),
            ("MESOS_TASK_ID", task.to_string()),
            ("MESOS_EXECUTOR_ID", executor_id(&placement.group).to_string()),
            ("MARATHON_APP_ID", pod.id.to_string()),
            ("MARATHON_APP_VERSION", pod.version.to_string()),
            ("MARATHON_CONTAINER_ID", container.name.clone()),
            // Formatted with at least one decimal, as in upstream.
            (
                "MARATHON_CONTAINER_RESOURCE_CPUS",
                format!("{:?}", resources.cpus),
            ),
            ("MARATHON_CONTAINER_RESOURCE_MEM", format!("{:?}", resources.mem)),
            (
                "MARATHON_CONTAINER_RESOURCE_DISK",
                format!("{:?}", resources.disk),
            ),
            ("MARATHON_CONTAINER_RESOURCE_GPUS", resources.gpus.to_string()),
        ];
        env.extend(described.map(|(name, value)| (name.to_owned(), value)));
        let mut labels = pod.labels.clone();
        labels.extend(container.labels.clone());
        env.extend(label_variables(&labels));
        env.extend(self.endpoint_variables(ports));
        env
    }

    /// The ports of all endpoints of the pod: `ENDPOINT_` is the port on which the program listens;
    /// `EP_HOST_` and `EP_CONTAINER_` are the ports on the agent and in the container, if there are
    /// any.
    fn endpoint_variables(&self, ports: &[Vec<InstancePort<'_>>]) -> BTreeMap<String, String> {
        let prefix = self.settings.env_vars_prefix.to_uppercase();
        let mut env = BTreeMap::new();
        for port in ports.iter().flatten() {
            let name = label_variable(port.name.unwrap_or_default());
            let numbers = [
                ("ENDPOINT", Some(port.listen_port())),
                ("EP_HOST", port.host),
                ("EP_CONTAINER", port.container),
            ];
            let variables = numbers.into_iter().filter_map(|(kind, number)| {
                let number = number?.to_string();
                Some((format!("{prefix}{kind}_{name}"), number))
            });
            env.extend(variables);
        }
        env
    }

    fn container(&self, container: &PodContainer) -> Container {
        let mounts = container.volume_mounts.iter();
        Container {
            image: container.image.as_ref().map(|image| self.image(image)),
            volumes: mounts.filter_map(|mount| self.volume(mount)).collect(),
            // Agents accept limits only for containers that do not share control groups.
            share_cgroups: Some(self.pod.legacy_shared_cgroups),
            tty: container.tty == Some(true),
            ..with_linux_info(Containerizer::Mesos, container.linux_info.as_ref())
        }
    }

    fn image(&self, image: &Image) -> transom_launch::Image {
        let config = image.pull_config.as_ref();
        transom_launch::Image {
            name: image.id.clone(),
            force_pull: image.force_pull == Some(true),
            pull_secret: config.map(|config| secret_source(&self.pod.secrets, &config.secret)),
        }
    }

    /// The mount of a volume of the pod. Ephemeral and persistent volumes, and paths of the agent
    /// that are relative, are in the sandbox of the executor, where all containers can mount them.
    fn volume(&self, mount: &VolumeMount) -> Option<Volume> {
        let read_only = mount.read_only == Some(true);
        let (read_only, source) = match self.pod.volume(&mount.name)? {
            PodVolume::Ephemeral { name } => (read_only, VolumeSource::Group(format!("{VOLUMES}/{name}"))),
            PodVolume::Persistent { name, .. } => (read_only, VolumeSource::Group(name.clone())),
            PodVolume::Host { host, .. } if host.starts_with('/') => {
                (read_only, VolumeSource::HostPath(host.clone()))
            }
            PodVolume::Host { host, .. } => (read_only, VolumeSource::Group(host.clone())),
            PodVolume::Secret { secret, .. } => (
                true,
                VolumeSource::Secret(secret_source(&self.pod.secrets, secret)),
            ),
        };
        Some(Volume {
            container_path: mount.mount_path.clone(),
            read_only,
            source,
        })
    }
}

/// The program of a container. Arguments are passed to the image's entry point, or replace it.
/// Without a program the image's own one runs.
fn program(container: &PodContainer) -> Program {
    let Some(exec) = &container.exec else {
        return Program::EntryPoint(Vec::new());
    };
    let replaces = exec.override_entrypoint == Some(true) || container.image.is_none();
    match &exec.command {
        CheckCommand::Argv(argv) if !replaces => Program::EntryPoint(argv.clone()),
        command => command_line(command),
    }
}

/// The health check for the agent; `None` when the container has no such endpoint.
fn health_check(check: &PodHealthCheck, ports: &[InstancePort<'_>]) -> Option<HealthCheck> {
    let inside = |endpoint: &str| {
        let mut named = ports.iter().filter(|port| port.name == Some(endpoint));
        named.next().map(InstancePort::listen_port)
    };
    let mut https = false;
    let probe = match &check.probe {
        HealthProbe::Http {
            endpoint,
            path,
            scheme,
        } => {
            https = *scheme == Scheme::Https;
            Probe::Http {
                port: inside(endpoint)?,
                path: path.clone(),
            }
        }
        HealthProbe::Tcp { endpoint } => Probe::Tcp {
            port: inside(endpoint)?,
        },
        HealthProbe::Exec { command } => Probe::Command(command_line(command)),
    };
    Some(HealthCheck {
        probe,
        times: probe_times(check.delay_seconds, check.interval_seconds, check.timeout_seconds),
        grace_period: Some(Duration::from_secs(u64::from(check.grace_period_seconds))),
        consecutive_failures: Some(max_failures_for_agent(check.max_consecutive_failures)),
        https,
        ipv6: false,
    })
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
