//! How a job becomes a Mesos task: command, container, environment, ports, labels.
//!
//! Jobs with equal needs share one [`RunSpec`], so that they are matched together; the job of a
//! task is looked up in the [`JobIndex`] when it is placed.

mod container;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{TaskInfo, Uri, Visibility};
use transom_launch::{Command, Discovery, Environment, Port, Program, Task};
use transom_plugin_host::matcher::Constraint;
use transom_scheduler::{Amounts, BuildTask, Placement, PortRequest, RunSpec, TaskRecord};

use crate::Settings;
use crate::job_index::{ActiveJob, JobIndex};
use crate::model::{self, Spec};

/// The needs of a job that are relevant to matching. Jobs with equal needs are matched together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Needs {
    /// CPUs, memory, disk and GPUs in thousandths.
    amounts: [u64; 4],
    ports: Vec<Option<u16>>,
    constraints: Vec<String>,
}

/// CPUs of a job without any resources. Masters reject tasks without resources; this is the
/// smallest amount of CPU they offer.
const MIN_CPUS: f64 = 0.01;

/// The amounts of the task.
pub(crate) fn amounts(spec: &Spec) -> Amounts {
    let amounts = [spec.cpus, spec.mem, spec.disk, spec.gpus];
    let is_empty = amounts.iter().all(|amount| (amount * 1000.0).round() <= 0.0) && spec.ports.is_empty();
    if is_empty {
        return [MIN_CPUS, 0.0, 0.0, 0.0];
    }
    amounts
}

/// Constraints as the matcher gets them.
pub(crate) fn expressions(constraints: &[String]) -> Vec<Constraint> {
    constraints.iter().cloned().map(Constraint::Expression).collect()
}

impl Needs {
    fn of(spec: &Spec, defaults: &Settings) -> Self {
        Self {
            amounts: amounts(spec).map(|amount| (amount * 1000.0).round() as u64),
            ports: spec.ports.iter().map(|port| port.host_port).collect(),
            constraints: constraints(spec, defaults),
        }
    }
}

/// A job's own constraints, then the configured ones. They are one list, because `A?:B` depends on
/// all other entries.
pub(crate) fn constraints(spec: &Spec, defaults: &Settings) -> Vec<String> {
    spec.attributes
        .iter()
        .chain(&defaults.cluster_attributes)
        .cloned()
        .collect()
}

/// Creates one run spec for each set of needs.
#[derive(Debug)]
pub(crate) struct RunSpecCache {
    build: Arc<Build>,
    run_specs: HashMap<Needs, Arc<RunSpec>>,
    created: u64,
    /// Whether new constraints have appeared since the last check.
    constraints_changed: bool,
}

/// The cache is not swept while it is smaller than this.
const MIN_SWEEP: usize = 256;

impl RunSpecCache {
    pub(crate) fn new(index: Arc<JobIndex>, defaults: Arc<Settings>) -> Self {
        Self {
            build: Arc::new(Build { index, defaults }),
            run_specs: HashMap::new(),
            created: 0,
            constraints_changed: false,
        }
    }

    /// Whether new constraints have appeared since the last call.
    pub(crate) fn take_constraints_changed(&mut self) -> bool {
        std::mem::take(&mut self.constraints_changed)
    }

    /// The constraints of pending jobs, each list once; an empty one if a job has none.
    pub(crate) fn pending_constraints(&self) -> BTreeSet<&Vec<String>> {
        // A pending job holds a reference to its run spec until it is launched.
        let is_pending = |(_, spec): &(&Needs, &Arc<RunSpec>)| Arc::strong_count(spec) > 1;
        self.run_specs
            .iter()
            .filter(is_pending)
            .map(|(needs, _)| &needs.constraints)
            .collect()
    }

    /// Removes the run specs that no job needs, once there are many. Called every second, so that
    /// the constraints of jobs that have ended do not stay in memory.
    pub(crate) fn sweep(&mut self) {
        if self.run_specs.len() > MIN_SWEEP {
            self.run_specs.retain(|_, spec| Arc::strong_count(spec) > 1);
        }
    }

    /// The run spec of a job.
    pub(crate) fn run_spec(&mut self, spec: &Spec) -> Arc<RunSpec> {
        let needs = Needs::of(spec, &self.build.defaults);
        if let Some(run_spec) = self.run_specs.get(&needs) {
            return Arc::clone(run_spec);
        }
        self.created += 1;
        self.constraints_changed |= !needs.constraints.is_empty();
        let ports = needs
            .ports
            .iter()
            .map(|port| port.map_or(PortRequest::Random, PortRequest::Fixed));
        let [cpus, mem, disk, gpus] = amounts(spec);
        let run_spec = Arc::new(RunSpec {
            id: format!("jobs-{}", self.created),
            version: String::new(),
            // Expressions do not depend on placed instances.
            instances: 1,
            cpus,
            mem,
            disk,
            gpus,
            avoid_gpus: false,
            ports: ports.collect(),
            role: None,
            volumes: Vec::new(),
            constraints: needs
                .constraints
                .iter()
                .cloned()
                .map(Constraint::Expression)
                .collect(),
            roles: Vec::new(),
            executor: transom_scheduler::ExecutorResources::default(),
            build: Arc::clone(&self.build).into(),
        });
        self.run_specs.insert(needs, Arc::clone(&run_spec));
        run_spec
    }
}

#[derive(Debug)]
pub(crate) struct Build {
    index: Arc<JobIndex>,
    defaults: Arc<Settings>,
}

impl BuildTask for Build {
    /// Returns `None` if the job has ended, because its task is no longer wanted.
    fn build(&self, placement: &Placement) -> Option<TaskInfo> {
        let job = self.index.active(&placement.task)?;
        Some(task(&job, &self.defaults, placement))
    }

    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        false
    }
}

fn task(job: &ActiveJob, defaults: &Settings, placement: &Placement) -> TaskInfo {
    let spec = &job.spec;
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let task = Task {
        container: defaults
            .containers
            .then(|| container::container(spec, defaults, placement)),
        labels: spec.labels.clone(),
        discovery: (!spec.ports.is_empty()).then(|| discovery(job, placement)),
        kill_grace: spec.kill_grace.map(time),
        max_runtime: spec.max_runtime.map(time),
        ..Task::new(name(job), command(spec, defaults, placement))
    };
    task.into()
}

/// The task name that upstream uses.
fn name(job: &ActiveJob) -> String {
    job.spec.key.as_ref().map_or_else(
        || job.id.to_string(),
        |key| format!("{}_{}", key.dag_id, key.task_id),
    )
}

fn command(spec: &Spec, defaults: &Settings, placement: &Placement) -> Command {
    let uris = defaults.fetch_uri().into_iter().map(|uri| Uri {
        value: uri.to_owned(),
        ..Uri::default()
    });
    Command {
        program: match &spec.command {
            model::Command::Shell(line) => Program::Shell(line.clone()),
            model::Command::Args(argv) => Program::Argv(argv.clone()),
        },
        environment: environment(spec, defaults, placement),
        uris: uris.collect(),
        // The job's user is a setting of the container if there is one.
        user: if defaults.containers {
            defaults
                .cluster_fetch_username
                .clone()
                .filter(|_| defaults.fetch_uri().is_some())
        } else {
            spec.user.clone()
        },
    }
}

/// The configured variables, the variables of ports, and the job's own; later ones override earlier
/// ones.
fn environment(spec: &Spec, defaults: &Settings, placement: &Placement) -> Environment {
    let configured = defaults.container_environment.iter();
    let mut environment: Environment = configured
        .map(|variable| (variable.name.clone(), variable.value.reveal().to_owned()))
        .collect();
    for (index, port) in placement.host_ports.iter().enumerate() {
        environment.set(format!("PORT{index}"), port.to_string());
    }
    environment.extend(spec.environment.clone());
    environment
}

fn discovery(job: &ActiveJob, placement: &Placement) -> Discovery {
    let ports = job
        .spec
        .ports
        .iter()
        .zip(&placement.host_ports)
        .map(|(requested, port)| Port {
            number: *port,
            name: requested.name.clone(),
            protocol: requested.protocol.as_str().to_owned(),
            labels: BTreeMap::new(),
        });
    Discovery {
        name: name(job),
        visibility: Visibility::Framework,
        ports: ports.collect(),
    }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
