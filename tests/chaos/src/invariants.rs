//! The invariants, as pure functions of the observations.

use std::collections::BTreeMap;

use crate::spec::{Slot, Spec};
use crate::task_processes::{Journals, Process};

/// The invariants.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Invariant {
    /// At quiet moments each app has the wanted number of tasks, all of its current revision.
    WantedRunOnce,
    /// At quiet moments all tasks with health checks are healthy.
    AllHealthy,
    /// At quiet moments no other task is running.
    NoneUnwanted,
    /// Definitions equal the last acknowledged ones, and deleted ones stay deleted.
    WritesKept,
    /// No task's process is started twice or outlives its end.
    TerminalStays,
    /// No task has two processes, at any moment.
    NeverTwice,
    /// The Kubernetes framework keeps its id.
    OneFramework,
    /// Nothing is left after the end.
    NothingLeft,
}

impl Invariant {
    pub(crate) const ALL: &'static [Self] = &[
        Self::WantedRunOnce,
        Self::AllHealthy,
        Self::NoneUnwanted,
        Self::WritesKept,
        Self::TerminalStays,
        Self::NeverTwice,
        Self::OneFramework,
        Self::NothingLeft,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WantedRunOnce => "every wanted task runs exactly once",
            Self::AllHealthy => "every checked task becomes healthy",
            Self::NoneUnwanted => "no unwanted task runs",
            Self::WritesKept => "no acknowledged write is lost",
            Self::TerminalStays => "no terminal task comes back",
            Self::NeverTwice => "no task has two processes",
            Self::OneFramework => "the Kubernetes framework has one id",
            Self::NothingLeft => "nothing is left running at the end",
        }
    }
}

/// A violated invariant, with the evidence.
pub(crate) type Breach = (Invariant, String);

/// Compares the running tasks at a quiet moment with the wanted ones.
pub(crate) fn compare(wanted: &BTreeMap<Slot, Spec>, running: &[Process]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut by_app: BTreeMap<&str, Vec<&Process>> = BTreeMap::new();
    for process in running {
        by_app.entry(&process.app).or_default().push(process);
    }
    for (slot, spec) in wanted {
        let revision = spec.revision.to_string();
        let tasks = by_app.remove(slot.app().as_str()).unwrap_or_default();
        let (present, old): (Vec<&Process>, Vec<&Process>) = tasks
            .into_iter()
            .partition(|process| process.revision == revision);
        if present.len() != spec.instances as usize * slot.processes() {
            breaches.push((
                Invariant::WantedRunOnce,
                format!(
                    "{slot} [{spec}] has {} tasks: {}",
                    present.len(),
                    tasks_of(&present)
                ),
            ));
        }
        if !old.is_empty() {
            breaches.push((
                Invariant::NoneUnwanted,
                format!("{slot} [{spec}] has tasks of other revisions: {}", tasks_of(&old)),
            ));
        }
    }
    for (app, tasks) in by_app {
        breaches.push((
            Invariant::NoneUnwanted,
            format!("{app} is not wanted and has {}", tasks_of(&tasks)),
        ));
    }
    breaches
}

fn tasks_of(processes: &[&Process]) -> String {
    let each: Vec<String> = processes
        .iter()
        .map(|process| format!("{} r{} (pid {})", process.task, process.revision, process.pid))
        .collect();
    each.join(", ")
}

/// Checks the invariants that hold at any moment. `journals` must have been read before the
/// processes in `running`.
pub(crate) fn check_always(journals: &Journals, running: &[Process]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut by_task: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for process in running {
        by_task.entry(&process.task).or_default().push(process.pid);
        if journals.has_ended(process) {
            breaches.push((
                Invariant::TerminalStays,
                format!(
                    "{} runs as {}, which the agent saw end",
                    process.task, process.pid
                ),
            ));
        }
    }
    for (task, pids) in by_task.iter().filter(|(_, pids)| pids.len() > 1) {
        breaches.push((Invariant::NeverTwice, format!("{task} runs as {pids:?}")));
    }
    for (task, lives) in journals.lives().filter(|(_, lives)| lives.len() > 1) {
        breaches.push((
            Invariant::TerminalStays,
            format!("{task} was started {} times: {lives:?}", lives.len()),
        ));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(app: &str, task: &str, revision: u32) -> Process {
        Process {
            app: app.to_owned(),
            task: task.to_owned(),
            framework: "f".to_owned(),
            revision: revision.to_string(),
            pid: 1,
            start: 1,
        }
    }

    #[test]
    fn judge_compares_running_tasks_with_the_model() {
        let a = Slot(1).app();
        let spec = Spec {
            instances: 2,
            revision: 5,
            ports: 0,
            surge: false,
        };
        let wanted = BTreeMap::from([(Slot(1), spec)]);
        let (one, two) = (process(&a, "1", 5), process(&a, "2", 5));
        let old = process(&a, "0", 4);
        let other = process("/chaos/a02", "9", 1);
        let table = [
            (vec![one.clone(), two.clone()], vec![]),
            (vec![one.clone()], vec![Invariant::WantedRunOnce]),
            (
                vec![one.clone(), two.clone(), process(&a, "3", 5)],
                vec![Invariant::WantedRunOnce],
            ),
            (
                vec![one.clone(), old.clone()],
                vec![Invariant::WantedRunOnce, Invariant::NoneUnwanted],
            ),
            (vec![one.clone(), two.clone(), old], vec![Invariant::NoneUnwanted]),
            (vec![one, two, other], vec![Invariant::NoneUnwanted]),
        ];
        for (running, expected) in table {
            let breached: Vec<Invariant> = compare(&wanted, &running)
                .into_iter()
                .map(|(invariant, _)| invariant)
                .collect();
            assert_eq!(breached, expected, "{running:?}");
        }
    }

    #[test]
    fn judge_reports_two_processes_of_a_task() {
        let dir = tempfile::tempdir().unwrap();
        let journals = Journals::new(dir.path());
        let one = process("/a", "t", 1);
        let twice = [
            one.clone(),
            Process {
                pid: 2,
                ..one.clone()
            },
        ];
        assert!(check_always(&journals, &[one]).is_empty());
        assert_eq!(check_always(&journals, &twice)[0].0, Invariant::NeverTwice);
    }
}
