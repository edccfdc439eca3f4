//! The requests of a service that the actor has not carried out yet.
//!
//! A request never waits: it is added to the queue, and the actor takes all requests in its next
//! turn. The queue has no capacity limit, because requests of one task are merged into at most
//! three steps. So it is bounded by the number of tasks that the service manages, and no request is
//! lost.
//!
//! The steps of one task are carried out in the order in which they were requested, as far as it
//! matters: a purge precedes a later submission of the same id, and a kill precedes a later purge.
//! Of a submission and a kill, the later one replaces the earlier one. A purge cancels a submission
//! that was not carried out yet, because a service purges only ids that it no longer uses. Tasks
//! are in the order of their first request.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use transom_cluster::TaskId;

use super::explanation::{ExplanationRequest, MAX_WAITING};
use crate::{KillChoice, TaskRequest};

/// Merged requests, by task.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    order: VecDeque<TaskId>,
    by_task: HashMap<TaskId, TaskSteps>,
    /// Roles to add to the framework.
    pub(crate) roles: BTreeSet<String>,
    /// Keys of reservations to release.
    pub(crate) releases: BTreeSet<String>,
    /// Kill selections by run spec id.
    pub(crate) kill_choices: BTreeMap<String, Arc<KillChoice>>,
    /// Explanations for operators, at most [`MAX_WAITING`].
    pub(crate) explanations: Vec<ExplanationRequest>,
}

/// The steps of one task, in the order of the fields.
#[derive(Debug, Default)]
pub(crate) struct TaskSteps {
    /// A kill that was requested before the purge.
    pub(crate) kill_before_purge: Option<Kill>,
    pub(crate) purge: bool,
    pub(crate) last: Option<LastStep>,
}

/// The last step: a submission and a kill replace each other.
#[derive(Debug)]
pub(crate) enum LastStep {
    Submit(TaskRequest),
    Kill(Kill),
}

/// A kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) grace: Option<Duration>,
    /// Whether the service launches another task in its place.
    pub(crate) restarting: bool,
    /// Whether the kill replaced a submission of the task. If the scheduler does not know the task
    /// then, it was never launched.
    pub(crate) replaces_submission: bool,
}

impl Requests {
    pub(crate) fn submit(&mut self, request: TaskRequest) {
        let steps = self.steps(&request.id);
        steps.last = Some(LastStep::Submit(request));
    }

    pub(crate) fn kill(&mut self, task: &TaskId, kill: Kill) {
        let steps = self.steps(task);
        let replaces_submission = match &steps.last {
            Some(LastStep::Submit(_)) => true,
            Some(LastStep::Kill(earlier)) => earlier.replaces_submission,
            None => false,
        };
        steps.last = Some(LastStep::Kill(Kill {
            replaces_submission: kill.replaces_submission || replaces_submission,
            ..kill
        }));
    }

    pub(crate) fn purge(&mut self, task: &TaskId) {
        let steps = self.steps(task);
        if let Some(LastStep::Kill(kill)) = steps.last.take() {
            steps.kill_before_purge = Some(kill);
        }
        steps.purge = true;
    }

    pub(crate) fn select_kills(&mut self, choice: Arc<KillChoice>) {
        self.kill_choices.insert(choice.spec.id.clone(), choice);
    }

    /// Adds the request. If too many wait already, it is dropped, and the requester's channel is
    /// closed.
    pub(crate) fn explain(&mut self, request: ExplanationRequest) {
        if self.explanations.len() < MAX_WAITING {
            self.explanations.push(request);
        }
    }

    pub(crate) fn add(&mut self, task: &TaskId, step: LastStep) {
        match step {
            LastStep::Submit(request) => self.submit(request),
            LastStep::Kill(kill) => self.kill(task, kill),
        }
    }

    /// Adds later requests.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.roles.append(&mut later.roles);
        self.releases.append(&mut later.releases);
        self.kill_choices.append(&mut later.kill_choices);
        self.explanations.append(&mut later.explanations);
        for (task, steps) in later {
            if let Some(kill) = steps.kill_before_purge {
                self.kill(&task, kill);
            }
            if steps.purge {
                self.purge(&task);
            }
            if let Some(step) = steps.last {
                self.add(&task, step);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
            && self.roles.is_empty()
            && self.releases.is_empty()
            && self.kill_choices.is_empty()
            && self.explanations.is_empty()
    }

    pub(crate) fn contains(&self, task: &TaskId) -> bool {
        self.by_task.contains_key(task)
    }

    fn steps(&mut self, task: &TaskId) -> &mut TaskSteps {
        if !self.by_task.contains_key(task) {
            self.order.push_back(task.clone());
        }
        self.by_task.entry(task.clone()).or_default()
    }
}

/// Iterates in the order of the first request of each task.
impl IntoIterator for Requests {
    type Item = (TaskId, TaskSteps);
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter(self)
    }
}

/// The iterator of [`Requests`].
#[derive(Debug)]
pub(crate) struct IntoIter(Requests);

impl Iterator for IntoIter {
    type Item = (TaskId, TaskSteps);

    fn next(&mut self) -> Option<Self::Item> {
        let task = self.0.order.pop_front()?;
        let steps = self.0.by_task.remove(&task).unwrap_or_default();
        Some((task, steps))
    }
}

/// The queue between the handles and the actor. The lock is held only to add requests or to take
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    requests: Mutex<Requests>,
    added: Notify,
}

impl RequestQueue {
    /// Adds requests and wakes the actor.
    pub(crate) fn add(&self, add: impl FnOnce(&mut Requests)) {
        add(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner));
        self.added.notify_one();
    }

    /// Takes all requests.
    pub(crate) fn take(&self) -> Requests {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when requests were added since it last returned. Cancel-safe.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{spec, task_request};

    const GRACE: Option<Duration> = Some(Duration::from_secs(3));

    /// Parses requests of the task `t`, such as `submit purge`. Any other word purges the task with
    /// that name.
    fn requests(text: &str) -> Requests {
        let mut requests = Requests::default();
        let spec = Arc::new(spec("/app"));
        let task = TaskId::from("t");
        for word in text.split_whitespace() {
            match word {
                "submit" => requests.submit(task_request("t", &spec)),
                "kill" => requests.kill(&task, Kill::default()),
                "kill-with-grace" => requests.kill(
                    &task,
                    Kill {
                        grace: GRACE,
                        ..Kill::default()
                    },
                ),
                "purge" => requests.purge(&task),
                other => requests.purge(&TaskId::from(other)),
            }
        }
        requests
    }

    fn steps(requests: Requests) -> String {
        let kill = |kill: &Kill| {
            let grace = if kill.grace.is_some() { "-with-grace" } else { "" };
            let replaces_submission = if kill.replaces_submission {
                "-or-never-launched"
            } else {
                ""
            };
            format!("kill{grace}{replaces_submission}")
        };
        let mut all = Vec::new();
        for (task, steps) in requests {
            if task.as_str() != "t" {
                all.push(task.to_string());
                continue;
            }
            all.extend(steps.kill_before_purge.as_ref().map(kill));
            all.extend(steps.purge.then(|| "purge".to_owned()));
            match &steps.last {
                Some(LastStep::Submit(_)) => all.push("submit".to_owned()),
                Some(LastStep::Kill(last)) => all.push(kill(last)),
                None => {}
            }
        }
        all.join(" ")
    }

    /// The steps are the same if the requests are taken in two parts.
    #[test]
    fn requests_of_a_task_are_merged_in_order() {
        for (requested, expected) in [
            ("submit", "submit"),
            ("submit submit", "submit"),
            ("kill", "kill"),
            ("kill kill-with-grace", "kill-with-grace"),
            ("submit kill", "kill-or-never-launched"),
            ("submit kill kill-with-grace", "kill-with-grace-or-never-launched"),
            ("kill submit", "submit"),
            ("submit kill submit", "submit"),
            ("purge", "purge"),
            ("purge submit", "purge submit"),
            ("purge submit kill", "purge kill-or-never-launched"),
            ("kill purge", "kill purge"),
            ("kill purge submit", "kill purge submit"),
            ("submit purge", "purge"),
            ("submit purge submit", "purge submit"),
            ("purge submit purge", "purge"),
            ("kill purge submit kill purge", "kill-or-never-launched purge"),
            ("a submit b kill", "a kill-or-never-launched b"),
        ] {
            assert_eq!(steps(requests(requested)), expected, "{requested}");
            let words: Vec<&str> = requested.split(' ').collect();
            for cut in 0..=words.len() {
                let mut merged = requests(&words[..cut].join(" "));
                merged.append(requests(&words[cut..].join(" ")));
                assert_eq!(steps(merged), expected, "{requested} cut at {cut}");
            }
        }
    }

    #[tokio::test]
    async fn actor_is_woken_by_requests_added_before_it_waits() {
        let queue = RequestQueue::default();
        queue.add(|requests| requests.purge(&"t".into()));
        queue.added().await;
        assert_eq!(steps(queue.take()), "purge");
        assert!(queue.take().is_empty());
    }
}
