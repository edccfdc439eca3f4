//! The rules for tasks, as pure functions that map observations to violations.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};

use crate::master::Task;

/// Task ids.
pub(crate) type Ids = BTreeSet<String>;

/// Compares the task ids of the daemon with those in the master's two documents. `count` ids are
/// expected.
pub(crate) fn compare_ids(count: usize, daemon: &Ids, tasks: &Ids, state: &Ids) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for (document, ids) in [("GET_TASKS", tasks), ("/state", state)] {
        let only_daemon: Vec<&String> = daemon.difference(ids).collect();
        let only_master: Vec<&String> = ids.difference(daemon).collect();
        if !only_daemon.is_empty() {
            problems.push(format!("the master's {document} lacks {only_daemon:?}"));
        }
        if !only_master.is_empty() {
            problems.push(format!("/v2/tasks lacks {only_master:?}, which {document} has"));
        }
    }
    if daemon.len() != count {
        problems.push(format!("/v2/tasks has {} tasks, expected {count}", daemon.len()));
    }
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}

/// Checks every task of an app or job that the master remembers: `count` tasks were launched, each
/// once, and none ended unexpectedly.
pub(crate) fn verify_launched(count: usize, tasks: &[Task]) -> anyhow::Result<()> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        *times.entry(&task.id).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "launched more than once: {twice:?}");
    let failed: Vec<String> = tasks
        .iter()
        .filter(|task| !task.is_active() && !matches!(task.state.as_str(), "TASK_KILLED" | "TASK_FINISHED"))
        .map(Task::end)
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    ensure!(
        tasks.len() == count,
        "the master saw {} launches, expected {count}: {}",
        tasks.len(),
        times.into_keys().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// Checks that no two active tasks on an agent have a port in common, and that each has `count`
/// ports.
pub(crate) fn check_ports_distinct(count: usize, tasks: &[Task]) -> anyhow::Result<()> {
    let mut owners: BTreeMap<(&str, u16), &str> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.is_active()) {
        let Task { id, agent, ports, .. } = task;
        ensure!(ports.len() == count, "{id} has ports {ports:?}, expected {count}");
        for port in ports {
            if let Some(other) = owners.insert((agent, *port), id) {
                bail!("{other} and {id} both have port {port} of agent {agent}");
            }
        }
    }
    Ok(())
}

/// Whether a task is of this app or job: its id begins with that name and a dot. The id of a job's
/// task may also be the name itself.
pub(crate) fn is_of(name: &str, task: &Task) -> bool {
    let rest = task.id.strip_prefix(name.trim_start_matches('/'));
    rest.is_some_and(|rest| rest.starts_with('.') || task.id == name)
}

/// Checks that a task's output has exactly one line that is equal to `line`. The command that
/// contains it does not count; an agent's executor writes it to the output, too.
pub(crate) fn printed_once(output: &str, line: &str) -> anyhow::Result<()> {
    let count = output.lines().filter(|one| *one == line).count();
    ensure!(
        count == 1,
        "the line {line:?} was printed {count} times: {output:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, state: &str, ports: &[u16]) -> Task {
        Task {
            id: id.to_owned(),
            state: state.to_owned(),
            agent: "S0".to_owned(),
            ports: ports.to_vec(),
            addresses: BTreeSet::new(),
            message: "why".to_owned(),
        }
    }

    fn ids(ids: &[&str]) -> Ids {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn assert_rejected(outcome: anyhow::Result<()>, expected: &str) {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }

    #[test]
    fn lost_and_doubled_tasks_are_reported() {
        let (a, ab) = (&ids(&["a"]), &ids(&["a", "b"]));
        compare_ids(2, ab, ab, ab).unwrap();
        assert_rejected(compare_ids(2, ab, a, ab), "GET_TASKS lacks [\"b\"]");
        assert_rejected(compare_ids(2, ab, ab, a), "/state lacks [\"b\"]");
        assert_rejected(
            compare_ids(1, a, ab, ab),
            "/v2/tasks lacks [\"b\"], which GET_TASKS has",
        );
        assert_rejected(compare_ids(3, ab, ab, ab), "/v2/tasks has 2 tasks, expected 3");
    }

    #[test]
    fn unrequested_launches_are_reported() {
        let fine = [task("a", "TASK_RUNNING", &[]), task("b", "TASK_KILLED", &[])];
        verify_launched(2, &fine).unwrap();
        assert_rejected(verify_launched(1, &fine), "2 launches, expected 1");
        let twice = [task("a", "TASK_RUNNING", &[]), task("a", "TASK_KILLED", &[])];
        assert_rejected(verify_launched(2, &twice), "more than once");
        let failed = [task("a", "TASK_FAILED", &[])];
        assert_rejected(verify_launched(1, &failed), "a ended in TASK_FAILED: why");
    }

    #[test]
    fn repeated_ports_are_reported() {
        let tasks = |second, state| [task("a", "TASK_RUNNING", &[1]), task("b", state, &[second])];
        check_ports_distinct(1, &tasks(2, "TASK_RUNNING")).unwrap();
        check_ports_distinct(1, &tasks(1, "TASK_KILLED")).unwrap();
        assert_rejected(
            check_ports_distinct(1, &tasks(1, "TASK_RUNNING")),
            "both have port 1",
        );
        assert_rejected(check_ports_distinct(2, &tasks(2, "TASK_RUNNING")), "expected 2");
    }

    #[test]
    fn tasks_of_an_app_with_a_longer_name_are_not_counted() {
        let tasks = ["kill.x", "kill-moving.x", "kill"].map(|id| task(id, "", &[]));
        assert_eq!(
            tasks.each_ref().map(|task| is_of("/kill", task)),
            [true, false, false]
        );
        assert_eq!(
            tasks.each_ref().map(|task| is_of("kill", task)),
            [true, false, true]
        );
    }

    #[test]
    fn output_line_is_distinguished_from_its_command() {
        printed_once("sh -c 'echo began x'\nbegan x\n", "began x").unwrap();
        assert_rejected(
            printed_once("sh -c 'echo began x'\n", "began x"),
            "printed 0 times",
        );
    }
}
