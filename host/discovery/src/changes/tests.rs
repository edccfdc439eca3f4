#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use std::collections::HashMap;
use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use transom_cluster::{AgentId, FrameworkId};

use super::testing::{flat_zone, zone_of};
use super::{Changes, apply};
use crate::cluster::{Addresses, ClusterModel, Framework, Host, Location, Task, VISITED};
use crate::zone::ZoneInputs;
use crate::zone::testing::zone_config;
use crate::zone_config::ZoneConfig;

#[test]
fn missed_changes_ignores_agents_missing_from_the_snapshot() {
    let mut model = ClusterModel::default();
    for n in 0..3 {
        let endpoint = Location::from_pid(&format!("slave(1)@10.0.0.{n}:5051")).unwrap();
        model.agents.insert(format!("c1-S{n}").into(), endpoint);
    }
    let mut snapshot = model.clone();
    snapshot.agents.remove(&"c1-S1".into());
    assert_eq!(super::missed_changes(&model, &snapshot), 0);
    // Events are missing for an agent that was added and for one whose address changed.
    snapshot.agents.remove(&"c1-S2".into());
    let other_address = Location::from_pid("slave(1)@10.0.0.9:5051").unwrap();
    snapshot.agents.insert("c1-S0".into(), other_address.clone());
    snapshot.agents.insert("c1-S3".into(), other_address);
    assert_eq!(super::missed_changes(&model, &snapshot), 2);
}

/// Applies a few random changes to a copy of the cluster.
fn disturbed(cluster: &ClusterModel, random: &mut StdRng) -> ClusterModel {
    let mut cluster = cluster.clone();
    for _ in 0..random.random_range(1..6) {
        let (framework, agent) = (random.random_range(0..3), random.random_range(0..4));
        let framework_id = format!("F{framework}").into();
        let agent_id = format!("c1-S{agent}").into();
        match random.random_range(0..8) {
            0 => drop(cluster.agents.remove(&agent_id)),
            1 => {
                let host = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "unknown"][random.random_range(0..4)];
                let port = Some(random.random_range(5051..5053));
                let host = Host::parse(host);
                cluster.agents.insert(agent_id, Location { host, port });
            }
            2 => {
                cluster.frameworks.remove(&framework_id);
                cluster.tasks.remove(&framework_id);
            }
            3 => {
                let name = ["marathon", "a.b", "marathon"][random.random_range(0..3)].to_owned();
                let endpoint = Location::from_pid("x@10.1.0.1:99").filter(|_| random.random());
                cluster
                    .frameworks
                    .insert(framework_id, Framework { name, endpoint });
            }
            4 => cluster.leader = Location::from_pid("m@10.2.0.1:5050").filter(|_| random.random()),
            5 => {
                if let Some(tasks) = cluster.tasks.get_mut(&framework_id) {
                    tasks.remove(&format!("t{}", random.random_range(0..6)).as_str().into());
                }
            }
            _ => {
                let ip: IpAddr = [10, 9, 0, random.random_range(0..3)].into();
                let task = Task {
                    name: ["web", "db", "web.db"][random.random_range(0..3)].into(),
                    agent: agent_id,
                    running: random.random_ratio(3, 4),
                    ports: Box::new([(31000, random.random_range(30999..31002))]),
                    discovery: None,
                    addresses: Addresses {
                        netinfo: Box::new([ip]),
                        ..Addresses::default()
                    },
                    is_staging: random.random(),
                    healthy: [None, Some(true), Some(false)][random.random_range(0..3)],
                    weights: Box::new([("weight".into(), random.random_range(0..3))]),
                    duplicate_id: None,
                };
                let tasks = cluster.tasks.entry(framework_id).or_default();
                tasks.insert(format!("t{}", random.random_range(0..6)).into(), task);
            }
        }
    }
    cluster
}

#[test]
fn incremental_changes_equal_a_full_rebuild() {
    let zone_config = ZoneConfig {
        reverse: true,
        ..zone_config()
    };
    for seed in 0..40 {
        let zone_config = ZoneConfig {
            healthy_only: seed % 2 == 0,
            include_staging: seed % 3 == 0,
            weight_label: (seed % 5 == 0).then(|| "weight".to_owned()),
            ..zone_config.clone()
        };
        let mut random = StdRng::seed_from_u64(seed);
        let mut zone = zone_of(&ClusterModel::default(), &HashMap::new(), &zone_config);
        for step in 0..40 {
            let cluster = disturbed(&zone.inputs().cluster, &mut random);
            let changes = Changes::between(&zone.inputs().cluster, &cluster);
            let to = ZoneInputs {
                cluster: cluster.clone(),
                ..zone.inputs().clone()
            };
            let before = zone.serial();
            zone = apply(&zone, to, changes, before + 1, 1000);
            let rebuilt = zone_of(&cluster, &HashMap::new(), &zone_config);
            assert_eq!(flat_zone(&zone), flat_zone(&rebuilt), "seed {seed}, step {step}");
            for last in 0..3 {
                let ip = [10, 9, 0, last].into();
                assert_eq!(zone.name_of(ip), rebuilt.name_of(ip), "seed {seed}, step {step}");
            }
            assert_eq!(zone.journal().since(before).is_some(), zone.serial() > before);
        }
    }
}

#[test]
fn between_lists_entries_that_differ() {
    let mut random = StdRng::seed_from_u64(1);
    let one = (0..10).fold(ClusterModel::default(), |cluster, _| {
        disturbed(&cluster, &mut random)
    });
    assert!(Changes::between(&one, &one.clone()).is_empty());
    let mut other = one.clone();
    other.agents.remove(&"c1-S0".into());
    other
        .agents
        .insert("c1-S9".into(), Location::from_pid("s@10.0.0.9:1").unwrap());
    assert!(Changes::between(&one, &other).agents.contains(&"c1-S9".into()));
}

/// A change of an agent or a framework costs as much as it has tasks, however many the cluster has.
#[test]
fn changed_agent_or_framework_visits_only_its_own_tasks() {
    let config = zone_config();
    let mut cluster = ClusterModel::default();
    let agent = |n: usize| AgentId::from(format!("c1-S{n}"));
    let at = |n: usize| Location::from_pid(&format!("slave(1)@10.0.{}.{}:5051", n / 250, n % 250)).unwrap();
    let named = |name: &str| Framework {
        name: name.to_owned(),
        endpoint: None,
    };
    cluster.frameworks.insert("F".into(), named("marathon"));
    cluster.frameworks.insert("G".into(), named("other"));
    let one = Task {
        name: "one".into(),
        agent: agent(3),
        running: true,
        ..Task::default()
    };
    cluster
        .tasks
        .entry("G".into())
        .or_default()
        .insert("one".into(), one);
    for n in 0..500 {
        cluster.agents.insert(agent(n), at(n));
        for task in 0..2 {
            let running = Task {
                name: "web".into(),
                agent: agent(n),
                running: true,
                ..Task::default()
            };
            let tasks = cluster.tasks.entry("F".into()).or_default();
            tasks.insert(format!("t{n}-{task}").into(), running);
        }
    }
    // A task that moves belongs to its new agent alone.
    let tasks = cluster.tasks.get_mut(&FrameworkId::from("F")).unwrap();
    let moved = Task {
        agent: agent(7),
        ..tasks.get(&"t9-0".into()).unwrap().clone()
    };
    tasks.insert("t9-0".into(), moved);
    assert_eq!(tasks.of_agent(&agent(9)).count(), 1);

    let (mut of_agent, mut of_framework) = (Changes::default(), Changes::default());
    of_agent.add_agent(agent(7));
    of_framework.add_framework("G".into());
    let mut zone = zone_of(&cluster, &HashMap::new(), &config);
    for (changes, tasks) in [(of_agent, 3), (of_framework, 1)] {
        cluster.agents.insert(agent(7), at(700));
        if tasks == 1 {
            cluster.frameworks.insert("G".into(), named("renamed"));
        }
        let to = ZoneInputs {
            cluster: cluster.clone(),
            ..zone.inputs().clone()
        };
        VISITED.set(0);
        zone = apply(&zone, to, changes, zone.serial() + 1, 1000);
        assert_eq!(VISITED.get(), 2 * tasks, "before and after the change");
        let rebuilt = zone_of(&cluster, &HashMap::new(), &config);
        assert_eq!(flat_zone(&zone), flat_zone(&rebuilt));
    }
}
