//! The daemon is killed in each phase of a rolling change: while a node is drained, while its task
//! ends, while the replacement is launched, while the replacement is not ready, and while a server
//! is replaced.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_testkit::eventually;
use transom_tests::gate::Gate;
use transom_tests::kubernetes::{Api, Tasks, task_ids};
use transom_tests::site::Site;

const AGENTS: usize = 3;
const SERVERS: usize = 2;

/// The phase in which the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A disruption budget protects a pod on the node.
    Draining,
    /// The node is drained and deleted; the KILL call is delayed on its way to the master.
    Ending,
    /// The launch of the replacement is delayed on its way to the master.
    Launching,
    /// The replacement is running, and its node is not ready.
    Unready,
    /// The replacement of a server is running, and its node is not ready.
    ServersTurn,
}

/// A site with the means to hold a change in a phase.
struct RollingChange {
    site: Site,
    gate: Gate,
    tasks: Arc<Tasks>,
}

impl RollingChange {
    async fn start() -> RollingChange {
        let tasks = Arc::new(Tasks::with_nodes_only());
        // The drain timeout is longer than the test, so that a held drain does not end.
        let section = tasks
            .section(3)
            .replace("drain_timeout = \"10s\"", "drain_timeout = \"10m\"");
        let (site, gate) = Site::start_gated(&format!("{section}orch_server_count = {SERVERS}\n")).await;
        RollingChange { site, gate, tasks }
    }

    fn api(&self) -> Api {
        Api::new(self.site.kubernetes(""))
    }

    /// The ids of all tasks that were ever launched. Each was launched once.
    fn launched(&self) -> BTreeSet<String> {
        let launches = self.site.cluster.launches();
        assert!(launches.values().all(|times| *times == 1), "{launches:?}");
        launches.into_keys().collect()
    }

    /// Waits until all nodes are ready and nothing waits; returns the document of `explain`.
    async fn wait_until_settled(&self) -> Value {
        let api = self.api();
        eventually("every node to be ready, and nothing to wait", || async {
            let seen = api.wait_until_settled(AGENTS).await;
            let is_idle = seen["waiting"].as_array().is_some_and(Vec::is_empty);
            let is_complete = is_idle && task_ids(&seen, "server").len() == SERVERS;
            if is_complete {
                Ok(seen)
            } else {
                Err(seen.to_string())
            }
        })
        .await
    }

    /// Changes the command of a kind in the configuration, and restarts the daemon.
    async fn change(&mut self, kind: &str, value: &str) {
        let file = self.site.config();
        let text = fs::read_to_string(&file).expect("a configuration");
        let key = format!("orch_{kind}_string = ");
        let changed = text.lines().map(|line| {
            if !line.starts_with(&key) {
                return line.to_owned();
            }
            let command = line.trim_end_matches('"').split(" --disable").next();
            format!("{} --disable {value}\"", command.expect("a command"))
        });
        let changed: Vec<String> = changed.collect();
        fs::write(&file, changed.join("\n") + "\n").expect("written");
        self.restart().await;
    }

    /// Kills the daemon with SIGKILL and starts another one.
    async fn restart(&mut self) {
        self.site.kill_daemon();
        self.site.start_daemon().await;
    }

    fn accepts(&self) -> usize {
        self.gate.calls().iter().filter(|call| *call == "ACCEPT").count()
    }

    fn hold(&self, phase: Phase) {
        match phase {
            Phase::Draining => self.tasks.add_unevictable_pods(),
            Phase::Ending => self.gate.delay("KILL"),
            Phase::Launching => self.gate.delay("ACCEPT"),
            Phase::Unready => self.tasks.hold("agent"),
            Phase::ServersTurn => self.tasks.hold("server"),
        }
    }

    fn release(&self, phase: Phase) {
        match phase {
            Phase::Draining => self.tasks.remove_unevictable_pods(),
            Phase::Ending | Phase::Launching => self.gate.release(),
            Phase::Unready => self.tasks.release("agent"),
            Phase::ServersTurn => self.tasks.release("server"),
        }
    }

    /// Waits until the daemon reports the phase. `accepts` is the number of ACCEPT calls before the
    /// change.
    async fn wait_for_phase(&self, phase: Phase, before: &Value, accepts: usize) -> Value {
        let reports = |seen: &Value| {
            let waits = |text: &str| seen["waiting"].to_string().contains(text);
            match phase {
                Phase::Draining => waits("is being drained"),
                Phase::Ending => waits("a changed configuration waits until a leaving agent has ended"),
                Phase::Launching => has_new_task(seen, before, "agent", false) && self.accepts() > accepts,
                Phase::Unready => has_new_task(seen, before, "agent", true) && waits("is not ready"),
                Phase::ServersTurn => has_new_task(seen, before, "server", true) && waits("is not ready"),
            }
        };
        self.api()
            .wait_for_explain(&format!("the phase {phase:?}"), reports)
            .await
    }

    /// The nodes that are not cordoned.
    fn open(&self) -> BTreeSet<String> {
        self.tasks.schedulable_nodes()
    }
}

/// Whether exactly one task of the kind is new, and its running state is `is_running`.
fn has_new_task(seen: &Value, before: &Value, kind: &str, is_running: bool) -> bool {
    let known_ids = task_ids(before, kind);
    let tasks = seen["tasks"][kind].as_array().into_iter().flatten();
    let new_tasks: Vec<&Value> = tasks
        .filter(|task| known_ids.iter().all(|id| task["id"] != **id))
        .collect();
    matches!(new_tasks.as_slice(), [task] if (task["state"] == "TASK_RUNNING") == is_running)
}

/// Observes nodes and servers until it is stopped; returns the violations.
struct AvailabilityWatch {
    end: CancellationToken,
    task: JoinHandle<Vec<String>>,
}

impl AvailabilityWatch {
    fn start(tasks: &Arc<Tasks>) -> AvailabilityWatch {
        let (end, tasks) = (CancellationToken::new(), Arc::clone(tasks));
        let ended = end.clone();
        let task = tokio::spawn(async move {
            let mut violations = Vec::new();
            let mut interval = tokio::time::interval(Duration::from_millis(20));
            while ended.run_until_cancelled(interval.tick()).await.is_some() {
                // A directory listing may miss a file that is being replaced, so only a second
                // observation counts.
                let open = || {
                    let open = tasks.schedulable_nodes();
                    let agents = open.iter().filter(|node| node.starts_with("agent-")).count();
                    (agents + 1 < AGENTS).then(|| format!("agents' nodes that take pods: {open:?}"))
                };
                violations.extend(open().and_then(|_| open()));
                if tasks.answering_servers() == 0 {
                    violations.push("no server answers".to_owned());
                }
            }
            violations
        });
        AvailabilityWatch { end, task }
    }

    async fn stop(self) {
        self.end.cancel();
        let violations = self.task.await.expect("no panic");
        assert!(
            violations.is_empty(),
            "{} times: {:?}",
            violations.len(),
            violations.first()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_that_is_killed_in_each_phase_of_a_rolling_change_replaces_every_node_once() {
    let mut rolling_change = RollingChange::start().await;
    let mut before = rolling_change.wait_until_settled().await;
    let watch = AvailabilityWatch::start(&rolling_change.tasks);
    let phases = [
        Phase::Draining,
        Phase::Ending,
        Phase::Launching,
        Phase::Unready,
        Phase::ServersTurn,
    ];
    for phase in phases {
        let (known_ids, accepts, nodes) = (
            rolling_change.launched(),
            rolling_change.accepts(),
            rolling_change.open(),
        );
        let kind = if phase == Phase::ServersTurn {
            "server"
        } else {
            "agent"
        };
        rolling_change.hold(phase);
        rolling_change
            .change(kind, &format!("{phase:?}").to_lowercase())
            .await;
        let reported = rolling_change.wait_for_phase(phase, &before, accepts).await;
        let away: Vec<String> = nodes.difference(&rolling_change.open()).cloned().collect();
        rolling_change.site.kill_daemon();
        if matches!(phase, Phase::Ending | Phase::Launching) {
            // The delayed call reaches the master while no daemon runs.
            rolling_change.release(phase);
            rolling_change.site.start_daemon().await;
        } else {
            rolling_change.site.start_daemon().await;
            let again = rolling_change.wait_for_phase(phase, &before, accepts).await;
            for kind in ["server", "agent"] {
                assert_eq!(task_ids(&again, kind), task_ids(&reported, kind), "{phase:?}");
            }
            let still: Vec<String> = nodes.difference(&rolling_change.open()).cloned().collect();
            assert_eq!(still, away, "{phase:?}: the same node");
            rolling_change.release(phase);
        }
        if phase == Phase::Draining {
            assert_eq!(away.len(), 1, "one node is drained");
        }

        // Without resolvable names of containers, agents are started with the address of a server,
        // so that they are replaced with it.
        let kinds: &[&str] = if kind == "server" {
            &["server", "agent"]
        } else {
            &["agent"]
        };
        let replaced = |seen: &Value| {
            kinds.iter().all(|kind| {
                let old_ids = task_ids(&before, kind);
                task_ids(seen, kind).iter().all(|id| !old_ids.contains(id))
            })
        };
        rolling_change
            .api()
            .wait_for_explain("other tasks", replaced)
            .await;
        let after = rolling_change.wait_until_settled().await;
        let expected: BTreeSet<String> = kinds.iter().flat_map(|kind| task_ids(&after, kind)).collect();
        if kind == "agent" {
            assert_eq!(
                task_ids(&after, "server"),
                task_ids(&before, "server"),
                "{phase:?}"
            );
        }
        assert_eq!(
            task_ids(&after, "datastore"),
            task_ids(&before, "datastore"),
            "{phase:?}"
        );
        let launched: BTreeSet<String> = rolling_change
            .launched()
            .difference(&known_ids)
            .cloned()
            .collect();
        assert_eq!(
            launched, expected,
            "{phase:?}: each was replaced once, and nothing else started"
        );
        before = after;
    }
    watch.stop().await;
    rolling_change.site.cluster.stop_after(rolling_change.site.daemon);
}
