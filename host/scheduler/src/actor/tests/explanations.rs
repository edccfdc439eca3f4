//! Explanations for operators: on which agents pending tasks, and further instances of a run spec,
//! may run.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;
use transom_plugin_host::explain::MatcherExplanation;

use super::rig::Rig;
use crate::api::explanation::{ExplanationRequest, MAX_WAITING};
use crate::api::request_queue::Requests;
use crate::testing::{self, spec};
use crate::{PlacementOf, RunSpec, SchedulerApi, TaskRequest};

impl Rig {
    async fn explain(&self, placement: PlacementOf) -> Option<MatcherExplanation> {
        let answer = self.scheduler.explain(placement).await.expect("an answer");
        Some(answer?.ask().await)
    }
}

fn run_spec(id: &str) -> PlacementOf {
    PlacementOf::RunSpec(Arc::new(spec(id)))
}

#[tokio::test]
async fn explanation_contains_all_known_agents_and_the_placed_instances_of_its_run_spec() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.start_another_task("t2").await;
    let explained = rig.explain(run_spec("/app")).await.expect("an explanation");
    assert_eq!(
        (explained.constraints, explained.agents, explained.placed),
        (vec!["/app".to_owned()], 1, 2)
    );
    let other = rig.explain(run_spec("/other")).await.expect("an explanation");
    assert_eq!((other.agents, other.placed), (1, 0));
}

#[tokio::test]
async fn pending_task_is_explained_with_the_run_spec_of_its_request() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    let spec = Arc::new(RunSpec {
        instances: 7,
        ..spec("/app")
    });
    let request = TaskRequest {
        not_before: Some(Timestamp::MAX),
        ..testing::task_request("t2", &spec)
    };
    rig.scheduler.submit(vec![request]);
    let explained = rig.explain(PlacementOf::Pending("t2".into())).await;
    let explained = explained.expect("an explanation");
    assert_eq!(
        (explained.constraints, explained.instances, explained.placed),
        (vec!["/app".to_owned()], 7, 1)
    );
    for task in ["t1", "absent"] {
        let explained = rig.explain(PlacementOf::Pending(task.into())).await;
        assert_eq!(explained, None, "{task}");
    }
}

#[tokio::test]
async fn placements_are_explained_without_a_subscription() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let explained = rig.explain(run_spec("/app")).await.expect("an explanation");
    assert_eq!((explained.agents, explained.placed), (1, 1));
}

#[test]
fn questions_over_the_limit_are_rejected() {
    let mut requests = Requests::default();
    let mut answers: Vec<_> = (0..MAX_WAITING + 2)
        .map(|_| {
            let (response, explanation) = oneshot::channel();
            let placement = run_spec("/app");
            requests.explain(ExplanationRequest { placement, response });
            explanation
        })
        .collect();
    let rejected = answers
        .iter_mut()
        .filter_map(|answer| answer.try_recv().err())
        .filter(|error| *error == oneshot::error::TryRecvError::Closed);
    assert_eq!(rejected.count(), 2);
    assert!(!requests.is_empty());
}
