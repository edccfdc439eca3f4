//! Operators' questions where one more instance of a run spec may run.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::rig::Rig;
use crate::api::explanation::{ExplanationRequest, MAX_WAITING};
use crate::api::request_queue::Requests;
use crate::testing::spec;
use crate::{PendingExplanation, SchedulerApi};

impl Rig {
    fn explain(&self, run_spec: &str) -> oneshot::Receiver<PendingExplanation> {
        self.scheduler.explain(Arc::new(spec(run_spec)))
    }
}

#[tokio::test]
async fn explanation_has_all_known_agents_and_the_placed_instances_of_its_run_spec() {
    let mut rig = Rig::new().await;
    rig.running("t1").await;
    rig.running_too("t2").await;
    let explained = rig.explain("/app").await.expect("an answer").ask().await;
    assert_eq!(
        (explained.constraints, explained.agents, explained.placed),
        (vec!["/app".to_owned()], 1, 2)
    );
    let other = rig.explain("/other").await.expect("an answer").ask().await;
    assert_eq!((other.agents, other.placed), (1, 0));
}

#[tokio::test]
async fn explanation_is_given_without_a_subscription() {
    let mut rig = Rig::new().await;
    rig.running("t1").await;
    rig.master.hang_up();
    assert_eq!(rig.heard().await, "disconnected");
    let explained = rig.explain("/app").await.expect("an answer").ask().await;
    assert_eq!((explained.agents, explained.placed), (1, 1));
}

#[test]
fn questions_over_the_limit_are_refused() {
    let mut requests = Requests::default();
    let mut answers: Vec<_> = (0..MAX_WAITING + 2)
        .map(|_| {
            let (answer, explanation) = oneshot::channel();
            let spec = Arc::new(spec("/app"));
            requests.explain(ExplanationRequest { spec, answer });
            explanation
        })
        .collect();
    let refused = answers
        .iter_mut()
        .filter_map(|answer| answer.try_recv().err())
        .filter(|error| *error == oneshot::error::TryRecvError::Closed);
    assert_eq!(refused.count(), 2);
    assert!(!requests.is_empty());
}
