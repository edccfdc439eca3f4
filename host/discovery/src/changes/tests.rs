#![allow(clippy::unwrap_used)] // Tests: a failure is their answer.

use std::collections::HashMap;
use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::testing::{flat_zone, zone_of};
use super::{Changes, apply};
use crate::cluster::{Addresses, Cluster, Endpoint, Framework, Host, Task};
use crate::rules::Rules;
use crate::zone::MadeFrom;
use crate::zone::testing::rules;

#[test]
fn agents_that_left_do_not_count_as_drift() {
    let mut model = Cluster::default();
    for n in 0..3 {
        let endpoint = Endpoint::from_pid(&format!("slave(1)@10.0.0.{n}:5051")).unwrap();
        model.agents.insert(format!("c1-S{n}").into(), endpoint);
    }
    let mut seen = model.clone();
    seen.agents.remove(&"c1-S1".into());
    assert_eq!(super::drift(&model, &seen), 0);
    // One that came and one that moved should have been told.
    seen.agents.remove(&"c1-S2".into());
    let elsewhere = Endpoint::from_pid("slave(1)@10.0.0.9:5051").unwrap();
    seen.agents.insert("c1-S0".into(), elsewhere.clone());
    seen.agents.insert("c1-S3".into(), elsewhere);
    assert_eq!(super::drift(&model, &seen), 2);
}

/// A cluster with a little of everything, otherwise at every call.
fn disturbed(cluster: &Cluster, random: &mut StdRng) -> Cluster {
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
                cluster.agents.insert(agent_id, Endpoint { host, port });
            }
            2 => {
                cluster.frameworks.remove(&framework_id);
                cluster.tasks.remove(&framework_id);
            }
            3 => {
                let name = ["marathon", "a.b", "marathon"][random.random_range(0..3)].to_owned();
                let endpoint = Endpoint::from_pid("x@10.1.0.1:99").filter(|_| random.random());
                cluster
                    .frameworks
                    .insert(framework_id, Framework { name, endpoint });
            }
            4 => cluster.leader = Endpoint::from_pid("m@10.2.0.1:5050").filter(|_| random.random()),
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
                    about_to_run: random.random(),
                    healthy: [None, Some(true), Some(false)][random.random_range(0..3)],
                    weights: Box::new([("weight".into(), random.random_range(0..3))]),
                    twin: None,
                };
                let tasks = cluster.tasks.entry(framework_id).or_default();
                tasks.insert(format!("t{}", random.random_range(0..6)).into(), task);
            }
        }
    }
    cluster
}

#[test]
fn changes_come_to_the_same_as_beginning_anew() {
    let rules = Rules {
        reverse: true,
        ..rules()
    };
    for seed in 0..40 {
        let rules = Rules {
            healthy_only: seed % 2 == 0,
            include_staging: seed % 3 == 0,
            weight_label: (seed % 5 == 0).then(|| "weight".to_owned()),
            ..rules.clone()
        };
        let mut random = StdRng::seed_from_u64(seed);
        let mut zone = zone_of(&Cluster::default(), &HashMap::new(), &rules);
        for step in 0..40 {
            let cluster = disturbed(&zone.made_from().cluster, &mut random);
            let changes = Changes::between(&zone.made_from().cluster, &cluster);
            let to = MadeFrom {
                cluster: cluster.clone(),
                ..zone.made_from().clone()
            };
            let before = zone.serial();
            zone = apply(&zone, to, changes, before + 1, 1000);
            let anew = zone_of(&cluster, &HashMap::new(), &rules);
            assert_eq!(flat_zone(&zone), flat_zone(&anew), "seed {seed}, step {step}");
            for last in 0..3 {
                let ip = [10, 9, 0, last].into();
                assert_eq!(zone.name_of(ip), anew.name_of(ip), "seed {seed}, step {step}");
            }
            assert_eq!(zone.journal().since(before).is_some(), zone.serial() > before);
        }
    }
}

#[test]
fn entries_that_differ_are_changes() {
    let mut random = StdRng::seed_from_u64(1);
    let one = (0..10).fold(Cluster::default(), |cluster, _| disturbed(&cluster, &mut random));
    assert!(Changes::between(&one, &one.clone()).is_empty());
    let mut other = one.clone();
    other.agents.remove(&"c1-S0".into());
    other
        .agents
        .insert("c1-S9".into(), Endpoint::from_pid("s@10.0.0.9:1").unwrap());
    assert!(Changes::between(&one, &other).agents.contains(&"c1-S9".into()));
}
