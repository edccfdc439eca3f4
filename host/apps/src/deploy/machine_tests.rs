//! Runs deployments step by step against simulated instances.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;
use crate::ids::AppId;
use crate::testing::app;

/// Numbers of instances by state, and the extremes during a run.
struct World {
    app: App,
    instances: Vec<InstanceView>,
    least_running: usize,
    most: usize,
}

impl World {
    fn new(app: App, old: usize, condition: Condition) -> Self {
        let id = AppId::parse("/a").unwrap();
        let seen = |_| InstanceView {
            id: InstanceId::new(&id),
            condition,
            since: Moment::now(),
            wanted: true,
            old: true,
        };
        let instances: Vec<InstanceView> = (0..old).map(seen).collect();
        let mut world = Self {
            app,
            least_running: usize::MAX,
            most: 0,
            instances,
        };
        world.measure();
        world
    }

    fn running(&self) -> usize {
        self.instances
            .iter()
            .filter(|seen| seen.condition == Condition::Running)
            .count()
    }

    fn measure(&mut self) {
        self.least_running = self.least_running.min(self.running());
        self.most = self.most.max(self.instances.len());
    }

    /// Executes directives until the action is done: first ending instances end, then started ones
    /// run. Bounded.
    fn run(&mut self, action: ActionKind) -> bool {
        let id = AppId::parse("/a").unwrap();
        for _ in 0..200 {
            let directive = advance(action, &self.app, &self.instances);
            if directive.done {
                return true;
            }
            for seen in &mut self.instances {
                if directive.decommission.contains(&seen.id) {
                    seen.wanted = false;
                    seen.condition = Condition::Killing;
                }
            }
            let new = InstanceView {
                id: InstanceId::new(&id),
                condition: Condition::Staging,
                since: Moment::now(),
                wanted: true,
                old: false,
            };
            self.instances.extend((0..directive.start).map(|_| InstanceView {
                id: InstanceId::new(&id),
                ..new.clone()
            }));
            self.measure();
            if self.instances.iter().any(|seen| !seen.wanted) {
                self.instances.retain(|seen| seen.wanted);
            } else if let Some(seen) = self
                .instances
                .iter_mut()
                .find(|seen| !seen.old && seen.condition == Condition::Staging)
            {
                seen.condition = Condition::Running;
            }
            self.measure();
        }
        false
    }
}

fn upgrading(instances: u32, health: f64, over: f64) -> App {
    app(&json!({
        "id": "/a", "cmd": "sleep 1", "instances": instances,
        "upgradeStrategy": {"minimumHealthCapacity": health, "maximumOverCapacity": over},
    }))
}

#[test]
fn restarts_keep_their_bounds() {
    for (instances, health, over, least, most) in [
        (4, 0.5, 0.0, 2, 4),
        (1, 0.5, 0.0, 1, 2),
        (1, 1.0, 0.0, 1, 2),
        (1, 0.0, 0.0, 0, 1),
        (10, 1.0, 1.0, 10, 20),
        (10, 1.0, 0.1, 10, 11),
        (3, 0.0, 0.0, 0, 3),
    ] {
        let mut world = World::new(
            upgrading(instances, health, over),
            instances as usize,
            Condition::Running,
        );
        assert!(
            world.run(ActionKind::RestartApplication),
            "{instances} {health} {over} never ends"
        );
        assert!(
            world.instances.iter().all(|seen| !seen.old),
            "{instances} {health} {over}: an old one stays"
        );
        assert_eq!(world.running(), instances as usize);
        assert!(
            world.least_running >= least,
            "{instances} {health} {over}: only {} ran",
            world.least_running
        );
        assert!(
            world.most <= most,
            "{instances} {health} {over}: {} at once",
            world.most
        );
    }
}

#[test]
fn a_restart_may_change_the_number() {
    for (before, after) in [(5, 2), (2, 5), (3, 1)] {
        let mut world = World::new(upgrading(after, 1.0, 1.0), before, Condition::Running);
        assert!(world.run(ActionKind::RestartApplication));
        assert_eq!(
            (world.instances.len(), world.running()),
            (after as usize, after as usize)
        );
    }
}

#[test]
fn a_broken_version_can_be_replaced_without_room() {
    for condition in [Condition::Scheduled, Condition::Staging] {
        let mut world = World::new(upgrading(3, 1.0, 0.0), 3, condition);
        assert!(world.run(ActionKind::RestartApplication), "{condition:?}");
        assert_eq!(world.running(), 3);
    }
}

#[test]
fn scaling_and_stopping() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 5, Condition::Running);
    assert!(world.run(ActionKind::ScaleApplication));
    assert_eq!(world.instances.len(), 2);
    assert!(world.run(ActionKind::StopApplication));
    assert_eq!(world.instances.len(), 0);
    assert!(World::new(upgrading(0, 1.0, 1.0), 0, Condition::Running).run(ActionKind::StartApplication));
}

#[test]
fn an_instance_given_up_is_replaced_and_goes_when_it_returns() {
    let mut world = World::new(upgrading(2, 1.0, 1.0), 2, Condition::Running);
    for old in &mut world.instances {
        old.since = old.since.plus_millis(-1000);
    }
    world.instances[0].condition = Condition::UnreachableInactive;
    assert!(world.run(ActionKind::ScaleApplication));
    assert_eq!((world.instances.len(), world.running()), (3, 2));
    world.instances[0].condition = Condition::Running;
    let directive = keep(&world.app, &world.instances);
    assert_eq!(
        directive.decommission,
        [world.instances[2].id.clone()],
        "the replacement is the youngest"
    );
}
