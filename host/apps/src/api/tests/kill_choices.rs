//! Scaling down with constraints: the matcher selects the instances to kill.

use serde_json::{Value, json};
use transom_cluster::TaskId;
use transom_testkit::wait_for;

use super::sleeper;
use super::tasks::ids;
use crate::testing::{World, operations};

impl World {
    /// Creates an app with a constraint and four running instances; returns the ids of their tasks.
    async fn spread(&self) -> Vec<String> {
        self.spread_many(4).await
    }

    async fn spread_many(&self, instances: u64) -> Vec<String> {
        let mut app = sleeper("/x");
        app["instances"] = json!(instances);
        app["constraints"] = json!([["rack", "GROUP_BY"]]);
        self.send("POST", "/v2/apps", app).await;
        ids(&self.settled("/x", instances).await["tasks"])
    }

    async fn scale(&self, instances: u32, query: &str) {
        let body = json!({"instances": instances});
        let scaled = self.send("PUT", &format!("/v2/apps/x{query}"), body).await;
        assert_eq!(scaled.status, 200, "{scaled:?}");
    }

    async fn remaining(&self) -> Vec<String> {
        ids(&self.get("/v2/apps/x/tasks").await["tasks"])
    }
}

#[tokio::test]
async fn instances_that_the_matcher_selects_are_killed() {
    let world = World::start().await;
    let tasks = world.spread().await;
    world.scheduler.set_hold_kill_choices(true);
    world.scale(2, "").await;
    let choice = world.scheduler.wait_for_kill_choice("/x").await;
    assert_eq!((choice.count, choice.candidates.len()), (2, 4));
    assert_eq!(choice.spec.instances, 2);
    assert_eq!(
        world.remaining().await.len(),
        4,
        "no instance is killed before the matcher has answered"
    );
    // The matcher selects neither the first nor the last candidates, unlike `killSelection`.
    let kills: Vec<TaskId> = choice.candidates[1..3].to_vec();
    world.scheduler.answer_kills(choice, kills.clone());
    let left = ids(&world.settled("/x", 2).await["tasks"]);
    let expected: Vec<&String> = tasks
        .iter()
        .filter(|task| kills.iter().all(|kill| kill.as_str() != *task))
        .collect();
    assert!(
        expected.iter().all(|task| left.contains(task)),
        "{left:?} of {tasks:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn many_selected_instances_are_killed_in_several_turns() {
    let world = World::start().await;
    let tasks = world.spread_many(2300).await;
    world.scheduler.set_hold_kill_choices(true);
    world.scale(50, "").await;
    let choice = world.scheduler.wait_for_kill_choice("/x").await;
    assert_eq!((choice.count, choice.candidates.len()), (2250, 2300));
    let kept = choice.candidates[1000..1050].to_vec();
    let kills = choice.candidates.iter().filter(|task| !kept.contains(task));
    let kills: Vec<TaskId> = kills.cloned().collect();
    operations::take_largest_turn();
    world.scheduler.answer_kills(choice, kills);
    let left = ids(&world.settled("/x", 50).await["tasks"]);
    assert_eq!(operations::take_largest_turn(), 1001, "of {}", tasks.len());
    assert!(
        kept.iter().all(|task| left.contains(&task.to_string())),
        "{left:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn matcher_is_not_called_for_scaling_to_zero_or_without_constraints() {
    let world = World::start().await;
    world.spread().await;
    world.scheduler.set_hold_kill_choices(true);
    world.scale(0, "").await;
    world.settled("/x", 0).await;
    let mut plain = sleeper("/plain");
    plain["instances"] = json!(3);
    world.send("POST", "/v2/apps", plain).await;
    world.settled("/plain", 3).await;
    world.send("PUT", "/v2/apps/plain", json!({"instances": 1})).await;
    world.settled("/plain", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn matcher_is_called_again_for_other_candidates_and_by_a_new_leader() {
    let world = World::start().await;
    let tasks = world.spread().await;
    world.scheduler.set_hold_kill_choices(true);
    world.scale(3, "").await;
    let first = world.scheduler.wait_for_kill_choice("/x").await;
    assert_eq!(first.count, 1);
    world.scale(2, "?force=true").await;
    wait_for("the question for two", async || {
        world.scheduler.wait_for_kill_choice("/x").await.count == 2
    })
    .await;
    // This late answer belongs to the first question, for one instance, and is ignored.
    let late = first.candidates[..1].to_vec();
    world.scheduler.send(transom_scheduler::Event::KillsSelected {
        choice: first,
        kills: late,
    });
    let world = world.restart().await;
    world.scheduler.set_hold_kill_choices(false);
    wait_for("the question of the next leader", async || {
        world.scheduler.wait_for_kill_choice("/x").await.count == 2
    })
    .await;
    assert_eq!(world.remaining().await.len(), 4);
    let choice = world.scheduler.wait_for_kill_choice("/x").await;
    // The matcher selects one of two instances; `killSelection` decides on the other.
    let kill = choice.candidates[3].clone();
    let next = choice.candidates[0].clone();
    world.scheduler.answer_kills(choice, vec![kill.clone()]);
    let left: Value = world.settled("/x", 2).await["tasks"].clone();
    let left = ids(&left);
    for gone in [kill, next] {
        assert!(
            !left.iter().any(|task| task == gone.as_str()),
            "{gone} of {tasks:?}"
        );
    }
    world.stop().await;
}
