//! Causes that waiting does not end, in one sentence. Pure.

use jiff::Timestamp;
use transom_scheduler::{PendingSpec, Reason};

use super::{Feasibility, shortage};

/// Pending tasks that no agent can run, as the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaceable {
    /// The app, pod or group of equal jobs.
    pub name: String,
    /// `too-large` or `constraint`.
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
        let short = shortage(&subject, spec.amounts(), &self.totals());
        let (kind, label, reason, detail) = if let Some(short) = short {
            ("too-large", "no agent is large enough", short.code, short.message)
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

impl Unplaceable {
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

    /// Two pending instances of `/a`.
    fn pending(cpus: f64, constraints: Vec<Constraint>) -> PendingSnapshot {
        let spec = Arc::new(RunSpec {
            id: "/a".to_owned(),
            version: "1".to_owned(),
            instances: 2,
            cpus,
            mem: 32.0,
            disk: 0.0,
            gpus: 0.0,
            avoid_gpus: false,
            ports: Vec::new(),
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
        PendingSnapshot::of(requests, &Arc::new(Reasons::default()))
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
        };
        let known = Feasibility::default();
        known.0.store(Arc::new(Findings {
            fits: [(vec![constraint.clone()], fit)].into(),
            totals: Arc::new([total]),
        }));
        for (cpus, constraints, expected) in [
            (1.0, vec![], None),
            (
                5.5,
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
                Some((
                    "constraint",
                    "/a: no agent may run it: 2 instances wait since 1970-01-01T00:00:05Z; no active agent satisfies the \
                     constraint `rack IS r9` (1 agent in the cluster)",
                )),
            ),
        ] {
            let pending = pending(cpus, constraints);
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
