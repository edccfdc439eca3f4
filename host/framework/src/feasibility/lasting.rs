//! Causes that waiting does not end, in one sentence. Pure.

use jiff::{SignedDuration, Timestamp};
use transom_scheduler::{PendingSpec, PortRequest, Reason, RunSpec, Tasks};

use super::{AgentTotal, Feasibility, counted_agents, shortage};

/// How long a task waits before the holder of its port is a cause: the former task may be ending.
const MIN_WAIT_FOR_PORT: SignedDuration = SignedDuration::from_secs(10);
/// The number of holders of a port that are named.
const MAX_HOLDERS: usize = 3;

/// Pending tasks that no agent can run, as the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaceable {
    /// The app, pod or group of equal jobs.
    pub name: String,
    /// `too-large`, `port-absent`, `constraint` or `port-taken`.
    pub kind: &'static str,
    /// How many of them are pending.
    pub tasks: u64,
    /// Since when the first of them is.
    pub since: Timestamp,
    /// The cause in one sentence, which begins with the name.
    pub message: String,
    /// What an operator can do about it.
    pub advice: &'static str,
}

impl Feasibility {
    /// Why no agent can run these tasks, as far as that is known. `noun`: what one of them is called.
    pub fn unplaceable(&self, pending: &PendingSpec<'_>, noun: &str) -> Option<Unplaceable> {
        let spec = pending.spec();
        let subject = format!("each {noun}");
        let agents = self.totals();
        let short = shortage(&subject, spec.amounts(), &agents);
        let (kind, label, reason, detail) = if let Some(short) = short {
            ("too-large", "no agent is large enough", short.code, short.message)
        } else if let Some(detail) = absent_port(spec, &agents) {
            (
                "port-absent",
                "no agent has its port",
                Reason::InsufficientPorts,
                detail,
            )
        } else {
            let fit = self.of(&spec.constraints).filter(|fit| fit.fitting == 0)?;
            let sentences = fit.unsatisfied_everywhere().join("; ");
            let reason = Reason::UnfulfilledConstraint;
            ("constraint", "no agent may run it", reason, sentences)
        };
        Some(Unplaceable {
            kind,
            advice: reason.words().advice,
            ..Unplaceable::new(pending, noun, label, &detail)
        })
    }
}

/// The fixed ports of a task.
fn fixed_ports(spec: &RunSpec) -> impl Iterator<Item = u16> {
    spec.ports.iter().filter_map(|port| match port {
        PortRequest::Fixed(port) => Some(*port),
        PortRequest::Random | PortRequest::Range(..) => None,
    })
}

/// The first fixed port that no agent has, if there are agents.
fn absent_port(spec: &RunSpec, agents: &[AgentTotal]) -> Option<String> {
    let has = |agent: &AgentTotal, port: u16| {
        let mut ranges = agent.ports.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&port.into()))
    };
    let port = fixed_ports(spec).find(|port| !agents.iter().any(|agent| has(agent, *port)))?;
    let count = u32::try_from(agents.len()).unwrap_or(u32::MAX);
    (count > 0).then(|| {
        format!(
            "port {port} is not among the ports of any agent ({} in the cluster)",
            counted_agents(count)
        )
    })
}

impl Unplaceable {
    /// The fixed port that other tasks of the framework have, if offers lack it. `tasks`: all of them.
    pub fn port_taken(pending: &PendingSpec<'_>, noun: &str, tasks: &Tasks, now: Timestamp) -> Option<Self> {
        let reason = Reason::InsufficientPorts;
        if !pending.reasons().last.contains_key(&reason)
            || now.duration_since(pending.since()) < MIN_WAIT_FOR_PORT
        {
            return None;
        }
        let holders = |port: u16| {
            let tasks = tasks.values();
            tasks.filter(move |task| !task.is_terminal() && task.host_ports.contains(&port))
        };
        let port = fixed_ports(pending.spec()).find(|port| holders(*port).next().is_some())?;
        let described = holders(port).map(|task| {
            let whose = if task.run_spec == pending.run_spec {
                "its own task"
            } else {
                "the task"
            };
            format!("{whose} {} on {}", task.id, task.agent.hostname)
        });
        let named: Vec<String> = described.take(MAX_HOLDERS).collect();
        let more = holders(port).count() - named.len();
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let detail = format!("port {port} is in use by {}{more}", named.join(", "));
        Some(Self {
            kind: "port-taken",
            advice: reason.words().advice,
            ..Self::new(pending, noun, "its port is taken", &detail)
        })
    }

    /// The sentence of pending tasks with this cause.
    pub fn new(pending: &PendingSpec<'_>, noun: &str, label: &str, detail: &str) -> Self {
        let (name, tasks, since) = (pending.run_spec, pending.tasks() as u64, pending.since());
        let (s, verb) = if tasks == 1 { ("", "waits") } else { ("s", "wait") };
        Self {
            name: name.to_owned(),
            kind: "",
            tasks,
            since,
            message: format!(
                "{name}: {label}: {tasks} {noun}{s} {verb} since {}; {detail}",
                since.strftime("%Y-%m-%dT%H:%M:%SZ")
            ),
            advice: "",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use transom_cluster::v1::TaskInfo;
    use transom_common::trace::TraceContext;
    use transom_plugin_host::matcher::Constraint;
    use transom_scheduler::{
        BuildTask, ExecutorResources, PendingSnapshot, Placement, Reasons, RunSpec, TaskRequest,
    };

    use super::super::{AgentTotal, ConstraintFit, Findings};
    use super::*;

    #[derive(Debug)]
    struct NoTask;

    impl BuildTask for NoTask {
        fn build(&self, _: &Placement) -> Option<TaskInfo> {
            None
        }
    }

    /// Two pending instances of `/a`, for which the offers lack ports.
    fn pending(cpus: f64, constraints: Vec<Constraint>, ports: Vec<PortRequest>) -> PendingSnapshot {
        let spec = Arc::new(RunSpec {
            id: "/a".to_owned(),
            version: "1".to_owned(),
            instances: 2,
            cpus,
            mem: 32.0,
            disk: 0.0,
            gpus: 0.0,
            avoid_gpus: false,
            ports,
            role: None,
            constraints,
            roles: Vec::new(),
            volumes: Vec::new(),
            executor: ExecutorResources::default(),
            build: Arc::new(NoTask).into(),
        });
        let requests = [5, 9].map(|second| {
            let request = TaskRequest {
                id: second.to_string().as_str().into(),
                spec: Arc::clone(&spec),
                not_before: None,
                priority: 0,
                reservation: None,
                trace: TraceContext::default(),
            };
            (request, Timestamp::from_second(second).unwrap())
        });
        let reasons = Reasons {
            last: [(Reason::InsufficientPorts, 1)].into(),
            ..Reasons::default()
        };
        PendingSnapshot::of(requests, &Arc::new(reasons))
    }

    #[test]
    fn sentence_has_what_is_asked_and_what_no_agent_has() {
        let constraint = Constraint::Field {
            field: "rack".to_owned(),
            operator: "IS".to_owned(),
            operand: Some("r9".to_owned()),
        };
        let fit = ConstraintFit {
            agents: 1,
            fitting: 0,
            unsatisfied: vec!["rack IS r9".to_owned()],
        };
        let total = AgentTotal {
            id: "a".to_owned(),
            hostname: "n1".to_owned(),
            amounts: [4.0, 1024.0, 1024.0, 0.0],
            ports: vec![(100, 100), (31_000, 32_000)],
        };
        let known = Feasibility::default();
        known.0.store(Arc::new(Findings {
            fits: [(vec![constraint.clone()], fit)].into(),
            totals: Arc::new([total]),
        }));
        let fixed = |ports: &[u16]| ports.iter().copied().map(PortRequest::Fixed).collect();
        for (cpus, constraints, ports, expected) in [
            (1.0, vec![], vec![], None),
            (1.0, vec![], fixed(&[100, 32_000]), None),
            (
                1.0,
                vec![],
                fixed(&[100, 80]),
                Some((
                    "port-absent",
                    "/a: no agent has its port: 2 instances wait since 1970-01-01T00:00:05Z; port 80 is not among the ports \
                     of any agent (1 agent in the cluster)",
                )),
            ),
            (
                5.5,
                vec![],
                vec![],
                Some((
                    "too-large",
                    "/a: no agent is large enough: 2 instances wait since 1970-01-01T00:00:05Z; each instance asks for 5.5 \
                     CPUs, but the largest agent, `n1`, has 4 (1 agent in the cluster)",
                )),
            ),
            (
                1.0,
                vec![constraint],
                vec![],
                Some((
                    "constraint",
                    "/a: no agent may run it: 2 instances wait since 1970-01-01T00:00:05Z; no active agent satisfies the \
                     constraint `rack IS r9` (1 agent in the cluster)",
                )),
            ),
        ] {
            let pending = pending(cpus, constraints, ports);
            let found = known.unplaceable(&pending.spec("/a").unwrap(), "instance");
            let found = found.as_ref().map(|found| (found.kind, found.message.as_str()));
            assert_eq!(found, expected);
            let unknown = Feasibility::default();
            assert_eq!(
                unknown.unplaceable(&pending.spec("/a").unwrap(), "instance"),
                None
            );
        }
    }
}
