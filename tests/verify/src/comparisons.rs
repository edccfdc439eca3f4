//! The rules for tasks, as pure functions that map observations to violations.

use std::collections::{BTreeMap, BTreeSet};

use crate::master::Task;

/// Task ids.
pub(crate) type Ids = BTreeSet<String>;

/// Compares the task ids of the daemon with those in the master's two documents. `count` ids are
/// expected.
pub(crate) fn compare_ids(count: usize, daemon: &Ids, tasks: &Ids, state: &Ids) -> Result<(), String> {
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
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("; "))
    }
}

/// Checks every task of an app or job that the master remembers: `count` tasks were launched, each
/// once, and none ended unexpectedly.
pub(crate) fn verify_launched(count: usize, tasks: &[Task]) -> Result<(), String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        *times.entry(&task.id).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    if !twice.is_empty() {
        return Err(format!("launched more than once: {twice:?}"));
    }
    let failed: Vec<String> = tasks
        .iter()
        .filter(|task| !task.is_active() && !matches!(task.state.as_str(), "TASK_KILLED" | "TASK_FINISHED"))
        .map(Task::end)
        .collect();
    if !failed.is_empty() {
        return Err(failed.join("; "));
    }
    if tasks.len() != count {
        let ids: Vec<&str> = times.into_keys().collect();
        return Err(format!(
            "the master saw {} launches, expected {count}: {}",
            tasks.len(),
            ids.join(", ")
        ));
    }
    Ok(())
}

/// Checks that no two active tasks on an agent have a port in common, and that each has `count`
/// ports.
pub(crate) fn check_ports_distinct(count: usize, tasks: &[Task]) -> Result<(), String> {
    let mut owners: BTreeMap<(&str, u16), &str> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.is_active()) {
        if task.ports.len() != count {
            return Err(format!(
                "{} has ports {:?}, expected {count}",
                task.id, task.ports
            ));
        }
        for port in &task.ports {
            if let Some(other) = owners.insert((&task.agent, *port), &task.id) {
                return Err(format!(
                    "{other} and {} both have port {port} of agent {}",
                    task.id, task.agent
                ));
            }
        }
    }
    Ok(())
}

/// The tasks of an app or a job: their ids begin with its name and a dot. The id of a job's task
/// may also be the name itself.
pub(crate) fn of<'a>(name: &str, tasks: &'a [Task]) -> impl Iterator<Item = &'a Task> {
    let prefix = format!("{}.", name.trim_start_matches('/'));
    let exact = name.to_owned();
    tasks
        .iter()
        .filter(move |task| task.id == exact || task.id.starts_with(&prefix))
}

/// The number of lines of a task's output that are equal to `line`. The command that contains it
/// does not count; an agent's executor writes it to the output, too.
pub(crate) fn lines(output: &str, line: &str) -> usize {
    output.lines().filter(|one| *one == line).count()
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

    #[test]
    fn lost_and_doubled_tasks_are_reported() {
        let two = ids(&["a", "b"]);
        assert_eq!(compare_ids(2, &two, &two, &two), Ok(()));
        for (count, daemon, tasks, state, expected) in [
            (
                2,
                &["a", "b"][..],
                &["a"][..],
                &["a", "b"][..],
                "GET_TASKS lacks [\"b\"]",
            ),
            (2, &["a", "b"], &["a", "b"], &["a"], "/state lacks [\"b\"]"),
            (
                1,
                &["a"],
                &["a", "b"],
                &["a", "b"],
                "/v2/tasks lacks [\"b\"], which GET_TASKS has",
            ),
            (
                3,
                &["a", "b"],
                &["a", "b"],
                &["a", "b"],
                "/v2/tasks has 2 tasks, expected 3",
            ),
        ] {
            let error = compare_ids(count, &ids(daemon), &ids(tasks), &ids(state)).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn unrequested_launches_are_reported() {
        let fine = [task("a", "TASK_RUNNING", &[]), task("b", "TASK_KILLED", &[])];
        assert_eq!(verify_launched(2, &fine), Ok(()));
        let error = verify_launched(1, &fine).unwrap_err();
        assert!(error.contains("2 launches, expected 1"), "{error}");
        let twice = [task("a", "TASK_RUNNING", &[]), task("a", "TASK_KILLED", &[])];
        assert!(verify_launched(2, &twice).unwrap_err().contains("more than once"));
        let failed = [task("a", "TASK_FAILED", &[])];
        assert_eq!(
            verify_launched(1, &failed).unwrap_err(),
            "a ended in TASK_FAILED: why"
        );
    }

    #[test]
    fn repeated_ports_are_reported() {
        let tasks = |second, state| [task("a", "TASK_RUNNING", &[1]), task("b", state, &[second])];
        assert_eq!(check_ports_distinct(1, &tasks(2, "TASK_RUNNING")), Ok(()));
        assert_eq!(check_ports_distinct(1, &tasks(1, "TASK_KILLED")), Ok(()));
        assert!(
            check_ports_distinct(1, &tasks(1, "TASK_RUNNING"))
                .unwrap_err()
                .contains("both have port 1")
        );
        assert!(
            check_ports_distinct(2, &tasks(2, "TASK_RUNNING"))
                .unwrap_err()
                .contains("expected 2")
        );
    }

    #[test]
    fn tasks_of_an_app_with_a_longer_name_are_not_counted() {
        let tasks = [
            task("kill.x", "", &[]),
            task("kill-moving.x", "", &[]),
            task("kill", "", &[]),
        ];
        let found: Vec<&str> = of("/kill", &tasks).map(|task| task.id.as_str()).collect();
        assert_eq!(found, ["kill.x"]);
        assert_eq!(of("kill", &tasks).count(), 2);
    }

    #[test]
    fn output_line_is_distinguished_from_its_command() {
        assert_eq!(lines("sh -c 'echo began x'\nbegan x\n", "began x"), 1);
    }
}
