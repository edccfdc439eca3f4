//! Runs actions step by step against simulated replicas.

use jiff::SignedDuration;

use super::*;

/// Simulated replicas, and the extremes of their numbers during a run.
struct World {
    policy: ScalingPolicy,
    members: Vec<Member<u32>>,
    next_id: u32,
    least_running: usize,
    max_replicas: usize,
    /// Whether started replicas run without becoming healthy.
    new_stay_unhealthy: bool,
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

impl World {
    fn new(policy: ScalingPolicy, old: u32, condition: Condition) -> Self {
        let mut world = Self {
            policy,
            least_running: usize::MAX,
            max_replicas: 0,
            new_stay_unhealthy: false,
            members: Vec::new(),
            next_id: 0,
        };
        for _ in 0..old {
            world.add(condition, true);
        }
        world.measure();
        world
    }

    fn add(&mut self, condition: Condition, old: bool) {
        self.next_id += 1;
        self.members.push(Member {
            id: self.next_id,
            condition,
            since: now(),
            wanted: true,
            old,
            leaving: false,
            restarting: false,
            selected: false,
            healthy: condition == Condition::Running,
            has_been_healthy: condition == Condition::Running,
        });
    }

    fn running(&self) -> usize {
        self.members
            .iter()
            .filter(|member| member.condition == Condition::Running)
            .count()
    }

    fn measure(&mut self) {
        self.least_running = self.least_running.min(self.running());
        self.max_replicas = self.max_replicas.max(self.members.len());
    }

    /// Executes directives until the action is done, at most 200 times. After each one, either the
    /// ending replicas end or one started replica begins to run. Returns whether the action is done.
    fn run(&mut self, action: Action) -> bool {
        for _ in 0..200 {
            let directive = advance(action, &self.policy, &self.members);
            if directive.done {
                return true;
            }
            for member in &mut self.members {
                if directive.decommission.contains(&member.id) {
                    (member.wanted, member.healthy) = (false, false);
                    member.condition = Condition::Killing;
                }
            }
            for member in &mut self.members {
                if directive.restart.contains(&member.id) {
                    member.restarting = true;
                }
            }
            for _ in 0..directive.start {
                self.add(Condition::Staging, false);
            }
            self.measure();
            if self.members.iter().any(|member| !member.wanted) {
                self.members.retain(|member| member.wanted);
            } else if let Some(member) = self.members.iter_mut().find(|member| member.restarting) {
                // The next task of the same replica.
                (member.restarting, member.old) = (false, false);
                (member.healthy, member.has_been_healthy) = (false, false);
                member.condition = Condition::Staging;
            } else if let Some(member) = self
                .members
                .iter_mut()
                .find(|member| !member.old && member.condition == Condition::Staging)
            {
                member.condition = Condition::Running;
                if !self.new_stay_unhealthy {
                    (member.healthy, member.has_been_healthy) = (true, true);
                }
            }
            self.measure();
        }
        false
    }

    fn healthy(&self) -> usize {
        self.members.iter().filter(|member| member.healthy).count()
    }
}

fn upgrading(replicas: u32, health: f64, over: f64) -> ScalingPolicy {
    ScalingPolicy {
        replicas,
        kill_selection: KillSelection::YoungestFirst,
        upgrade: UpgradeStrategy {
            maximum_over_capacity: over,
            minimum_health_capacity: health,
        },
        resident: false,
    }
}

#[test]
fn restart_stays_within_the_bounds_of_the_upgrade_strategy() {
    for (instances, health, over, least, most) in [
        (4, 0.5, 0.0, 2, 4),
        (1, 0.5, 0.0, 1, 2),
        (1, 1.0, 0.0, 1, 2),
        (1, 0.0, 0.0, 0, 1),
        (10, 1.0, 1.0, 10, 20),
        (10, 1.0, 0.1, 10, 11),
        (3, 0.0, 0.0, 0, 3),
    ] {
        let mut world = World::new(upgrading(instances, health, over), instances, Condition::Running);
        assert!(
            world.run(Action::Restart),
            "{instances} {health} {over} never ends"
        );
        assert!(
            world.members.iter().all(|member| !member.old),
            "{instances} {health} {over}: an old replica remains"
        );
        assert_eq!(world.running(), instances as usize);
        assert!(
            world.least_running >= least,
            "{instances} {health} {over}: only {} ran",
            world.least_running
        );
        assert!(
            world.max_replicas <= most,
            "{instances} {health} {over}: {} at a time",
            world.max_replicas
        );
    }
}

#[test]
fn restart_may_change_the_number() {
    for (before, after) in [(5, 2), (2, 5), (3, 1)] {
        let mut world = World::new(upgrading(after, 1.0, 1.0), before, Condition::Running);
        assert!(world.run(Action::Restart));
        assert_eq!(
            (world.members.len(), world.running()),
            (after as usize, after as usize)
        );
    }
}

#[test]
fn replicas_that_do_not_run_are_replaced_without_spare_capacity() {
    for condition in [Condition::Scheduled, Condition::Staging] {
        let mut world = World::new(upgrading(3, 1.0, 0.0), 3, condition);
        assert!(world.run(Action::Restart), "{condition:?}");
        assert_eq!(world.running(), 3);
    }
}

#[test]
fn surplus_replicas_are_removed_when_scaling_and_all_when_stopping() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 5, Condition::Running);
    assert!(world.run(Action::Scale));
    assert_eq!(world.members.len(), 2);
    assert!(world.run(Action::Stop));
    assert_eq!(world.members.len(), 0);
    assert!(World::new(upgrading(0, 1.0, 1.0), 0, Condition::Running).run(Action::Scale));
}

#[test]
fn scaling_is_done_when_every_replica_has_been_healthy_once() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 2, Condition::Running);
    world.add(Condition::Staging, false);
    world.policy.replicas = 3;
    world.members[0].condition = Condition::Scheduled;
    world.members[1].condition = Condition::Unreachable;
    let done = |world: &World| advance(Action::Scale, &world.policy, &world.members).done;
    assert!(!done(&world), "the third has not run");
    world.members[2].condition = Condition::Running;
    assert!(!done(&world), "the third runs and is not healthy yet");
    world.members[2].has_been_healthy = true;
    assert!(done(&world), "every replica has been healthy once");
}

#[test]
fn inactive_replica_is_replaced_and_its_replacement_removed_when_it_returns() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 2, Condition::Running);
    for member in &mut world.members {
        member.since -= SignedDuration::from_secs(1);
        member.old = false;
    }
    world.members[0].condition = Condition::UnreachableInactive;
    assert!(world.run(Action::Scale));
    assert_eq!((world.members.len(), world.running()), (3, 2));
    world.members[0].condition = Condition::Running;
    let directive = advance(Action::Scale, &world.policy, &world.members);
    assert_eq!(
        directive.decommission,
        [world.members[2].id],
        "the replacement is the youngest"
    );
}

#[test]
fn restart_gives_up_old_inactive_replicas() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 2, Condition::Running);
    let lost = world.members[0].id;
    world.members[0].condition = Condition::UnreachableInactive;
    let canary = advance(Action::Canary(1), &world.policy, &world.members);
    assert!(
        !canary.decommission.contains(&lost),
        "the canary may be rolled back"
    );
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert!(directive.decommission.contains(&lost) && !directive.done);
    assert!(world.run(Action::Restart));
    assert!(world.members.iter().all(|member| !member.old));
    assert_eq!(world.members.len(), 2);

    // It became inactive when all others had been replaced.
    world.add(Condition::UnreachableInactive, true);
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert_eq!((directive.decommission.len(), directive.done), (1, false));
    assert!(world.run(Action::Restart));
    assert_eq!(world.members.len(), 2);
}

#[test]
fn old_replica_that_returns_after_a_restart_is_removed() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 0, Condition::Running);
    world.add(Condition::Running, false);
    world.add(Condition::Running, false);
    world.add(Condition::Running, true);
    // It is the oldest, and the youngest are removed first.
    world.members[2].since -= SignedDuration::from_secs(60);
    let directive = advance(Action::Scale, &world.policy, &world.members);
    assert_eq!(directive.decommission, [world.members[2].id]);
}

#[test]
fn restart_keeps_healthy_replicas_while_new_ones_are_not_healthy() {
    for (instances, health, over, left) in [(4, 1.0, 1.0, 4), (4, 0.5, 0.0, 2), (1, 1.0, 0.0, 1)] {
        let mut world = World::new(upgrading(instances, health, over), instances, Condition::Running);
        world.new_stay_unhealthy = true;
        assert!(!world.run(Action::Restart), "{instances} {health} {over}");
        assert_eq!(world.healthy(), left, "{instances} {health} {over}");
        world.new_stay_unhealthy = false;
        for member in world.members.iter_mut().filter(|member| !member.old) {
            (member.healthy, member.has_been_healthy) = (true, true);
        }
        assert!(world.run(Action::Restart), "{instances} {health} {over}");
    }
}

#[test]
fn restart_replaces_unhealthy_replicas_first_and_without_spare_capacity() {
    let mut world = World::new(upgrading(3, 1.0, 0.0), 3, Condition::Running);
    world.members[0].since -= SignedDuration::from_secs(60);
    world.members[0].healthy = false;
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert_eq!(
        directive.decommission,
        [world.members[0].id],
        "the unhealthy one, although it is the oldest"
    );
    assert!(world.run(Action::Restart));
    assert_eq!(world.healthy(), 3);
}

#[test]
fn resident_replicas_are_replaced_in_place() {
    for (instances, health, least) in [(3, 0.5, 2), (1, 0.5, 0), (4, 0.0, 0), (2, 1.0, 1)] {
        let mut policy = upgrading(instances, health, 0.0);
        policy.resident = true;
        let mut world = World::new(policy, instances, Condition::Running);
        assert!(world.run(Action::Restart), "{instances} {health}");
        let ids: Vec<u32> = world.members.iter().map(|member| member.id).collect();
        assert_eq!(
            ids,
            (1..=instances).collect::<Vec<_>>(),
            "none is removed or added"
        );
        assert!(world.members.iter().all(|member| !member.old));
        assert!(
            world.least_running >= least,
            "{instances} {health}: {}",
            world.least_running
        );
    }
    let mut policy = upgrading(5, 1.0, 0.0);
    policy.resident = true;
    let mut world = World::new(policy, 5, Condition::Running);
    for member in &mut world.members[..2] {
        member.healthy = false;
    }
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert!(directive.restart.is_empty(), "too few are healthy");
    world.members[4].condition = Condition::Staging;
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert_eq!(
        directive.restart,
        [5],
        "replacing one that does not run loses no capacity"
    );
    let mut policy = upgrading(2, 0.5, 0.0);
    policy.resident = true;
    let mut world = World::new(policy, 3, Condition::Running);
    assert!(world.run(Action::Restart));
    assert_eq!(world.members.len(), 2, "the surplus replica is removed");
}

#[test]
fn canary_replaces_the_given_number_of_replicas_and_holds_until_the_restart_continues() {
    for (instances, health, over, canaries) in [(4, 1.0, 1.0, 1), (4, 0.5, 0.0, 2), (10, 1.0, 0.1, 3)] {
        let mut world = World::new(upgrading(instances, health, over), instances, Condition::Running);
        let held =
            |world: &World| advance(Action::Canary(canaries), &world.policy, &world.members).canaries_healthy;
        assert!(!held(&world));
        assert!(!world.run(Action::Canary(canaries)), "a canary is never done");
        let new = world.members.iter().filter(|member| !member.old).count();
        assert_eq!(
            (new, world.members.len()),
            (canaries as usize, instances as usize)
        );
        assert!(held(&world), "{instances} {health} {over}");
        let first = world.members.iter().position(|member| !member.old).unwrap();
        world.members[first].healthy = false;
        assert!(!held(&world), "one is not healthy");
        world.members[first].healthy = true;
        assert!(world.run(Action::Restart));
        assert!(world.members.iter().all(|member| !member.old));
    }
}

#[test]
fn canary_of_all_replicas_is_a_restart() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 2, Condition::Running);
    assert!(world.run(Action::Canary(5)));
    assert!(world.members.iter().all(|member| !member.old));
}

#[test]
fn fitness_decides_whether_a_running_replica_is_healthy() {
    let mut replica = Replica::new(1, now());
    replica.condition = Condition::Running;
    replica.has_run = true;
    let of = |replica: &Replica<i32>, fitness| {
        let member = replica.member(0, false, fitness);
        (member.healthy, member.has_been_healthy)
    };
    assert_eq!(of(&replica, Fitness::Unchecked), (true, true));
    assert_eq!(of(&replica, Fitness::Unfit), (false, false));
    replica.record_fitness(Fitness::Unfit);
    assert_eq!(of(&replica, Fitness::Unfit), (false, false));
    replica.record_fitness(Fitness::Fit);
    assert_eq!(of(&replica, Fitness::Fit), (true, true));
    assert_eq!(of(&replica, Fitness::Unfit), (false, true));
    assert!(
        replica.with_next_task(1, now()).has_been_fit,
        "the next task of the same version"
    );
    assert!(!replica.with_next_task(2, now()).has_been_fit);
    replica.condition = Condition::Unreachable;
    assert_eq!(of(&replica, Fitness::Fit), (false, true));
}

#[test]
fn replicas_on_leaving_agents_are_replaced_within_the_bounds_of_the_upgrade_strategy() {
    for (instances, health, over, leaving, least, most) in [
        (4, 1.0, 1.0, 1, 4, 5),
        (4, 1.0, 1.0, 4, 4, 8),
        (4, 0.5, 0.0, 2, 2, 4),
        (1, 1.0, 0.0, 1, 1, 2),
        (1, 0.0, 0.0, 1, 0, 1),
    ] {
        let mut world = World::new(upgrading(instances, health, over), 0, Condition::Running);
        for n in 0..instances {
            world.add(Condition::Running, false);
            world.members[n as usize].leaving = n < leaving;
        }
        (world.least_running, world.max_replicas) = (usize::MAX, 0);
        let left = |world: &World| world.members.iter().any(|member| member.leaving);
        for _ in 0..50 {
            // The directive may be done from the start, because no deployment waits for the replacement.
            world.run(Action::Scale);
            let directive = advance(Action::Scale, &world.policy, &world.members);
            for member in &mut world.members {
                member.wanted &= !directive.decommission.contains(&member.id);
            }
            world.members.retain(|member| member.wanted);
            for _ in 0..directive.start {
                world.add(Condition::Staging, false);
            }
            world.measure();
            for member in &mut world.members {
                member.condition = Condition::Running;
                (member.healthy, member.has_been_healthy) = (true, true);
            }
        }
        let case = (instances, health, over, leaving);
        assert!(!left(&world), "{case:?}");
        assert_eq!(world.running(), instances as usize, "{case:?}");
        assert!(
            world.least_running >= least,
            "{case:?}: only {} ran",
            world.least_running
        );
        assert!(
            world.max_replicas <= most,
            "{case:?}: {} at a time",
            world.max_replicas
        );
    }
}

#[test]
fn leaving_replica_stays_until_its_replacement_runs_and_delays_no_deployment() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 0, Condition::Running);
    world.add(Condition::Running, false);
    world.add(Condition::Running, false);
    world.members[0].leaving = true;
    let next = |world: &World| advance(Action::Scale, &world.policy, &world.members);
    let directive = next(&world);
    assert_eq!((directive.start, directive.done), (1, true));
    assert!(directive.decommission.is_empty());
    world.add(Condition::Scheduled, false);
    let directive = next(&world);
    assert_eq!((directive.start, directive.done), (0, true));
    assert!(directive.decommission.is_empty());
    let last = world.members.last_mut().unwrap();
    (last.condition, last.healthy, last.has_been_healthy) = (Condition::Running, true, true);
    assert_eq!(next(&world).decommission, [world.members[0].id]);
}

#[test]
fn resident_replica_does_not_leave_its_agent() {
    let mut policy = upgrading(1, 0.5, 0.0);
    policy.resident = true;
    let mut world = World::new(policy, 0, Condition::Running);
    world.add(Condition::Running, false);
    world.members[0].leaving = true;
    assert_eq!(
        advance(Action::Scale, &world.policy, &world.members),
        Directive::done()
    );
}

#[test]
fn restart_replaces_leaving_replicas_first_even_those_of_the_current_configuration() {
    let mut world = World::new(upgrading(3, 0.5, 0.0), 2, Condition::Running);
    world.add(Condition::Running, false);
    world.members[2].leaving = true;
    let directive = advance(Action::Restart, &world.policy, &world.members);
    assert_eq!(directive.decommission, [world.members[2].id]);
    assert!(world.run(Action::Restart));
    assert!(world.members.iter().all(|member| !member.leaving && !member.old));
}
