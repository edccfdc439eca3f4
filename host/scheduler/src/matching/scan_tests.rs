//! Scans and assignments of offers; scans and shortlists of random offers are compared with a simple
//! evaluation of each offer.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use transom_cluster::{TaskId, v1};

use super::tests::{requirements as any_requirements, rng};
use super::*;
use crate::Reason;
use crate::testing::{offer, spec};

/// Some resources: unreserved, of `prod`, of `prod/web` or of another role.
fn resources(rng: &mut StdRng) -> Vec<v1::Resource> {
    let count = rng.random_range(0..8);
    (0..count)
        .map(|_| {
            let mut resource = match rng.random_range(0..4) {
                0 => {
                    let first = rng.random_range(1..6);
                    v1::Resource::ranges("ports", &[(first, first + rng.random_range(0..4))])
                }
                1 => v1::Resource::scalar("mem", rng.random_range(0.0..500.0)),
                _ => v1::Resource::scalar("cpus", rng.random_range(0.0..3.0)),
            };
            let role = ["*", "*", "prod", "prod/web", "other"][rng.random_range(0..5)];
            resource.role = Some(role.to_owned());
            resource
        })
        .collect()
}

fn open_offers(rng: &mut StdRng) -> Vec<OpenOffer> {
    (0..rng.random_range(0..12))
        .map(|n| {
            let mut offer = offer(&format!("o{n}"), "a", 0.0, &[]);
            offer.resources = resources(rng);
            let closed = rng.random_ratio(1, 10).then_some((0, i64::MAX));
            OpenOffer::new(&offer, rng.random_range(0..6)).closed_during(closed)
        })
        .collect()
}

fn requirements(rng: &mut StdRng) -> Requirements {
    let mut spec = spec("/app");
    spec.cpus = [0.0, 0.1, 0.5][rng.random_range(0..3)];
    spec.mem = [0.0, 50.0][rng.random_range(0..2)];
    spec.roles = ["*", "prod", "prod/web"][..rng.random_range(1..4)]
        .iter()
        .map(ToString::to_string)
        .collect();
    spec.ports = (0..rng.random_range(0..3))
        .map(|_| match rng.random_range(0..3) {
            0 => PortRequest::Random,
            1 => PortRequest::Fixed(rng.random_range(1..9)),
            _ => PortRequest::Range(3, rng.random_range(2..9)),
        })
        .collect();
    Requirements::of(&spec, &[])
}

/// Evaluates each offer, sums the room of each agent, and sorts the agents.
fn scan_each_offer(open_offers: &[OpenOffer], requirements: &Requirements, count: u32) -> CandidateScan {
    let (mut capacities, mut rejected) = (BTreeMap::<u32, u32>::new(), BTreeMap::<Reason, u32>::new());
    for open_offer in open_offers {
        let reject = |reason| *rejected.entry(reason).or_default() += 1;
        *capacities.entry(open_offer.agent).or_default() +=
            open_offer.capacity(requirements, count, 1, reject);
    }
    let capacities = capacities.into_iter().filter(|(_, capacity)| *capacity > 0);
    let mut candidates: Vec<(u32, u32)> = capacities
        .map(|(agent, capacity)| (agent, capacity.min(count)))
        .collect();
    candidates.sort_by_key(|&(agent, capacity)| (std::cmp::Reverse(capacity), agent));
    CandidateScan {
        candidates,
        refused_offers: rejected,
    }
}

/// The tables agree with the offers, also after some resources were taken.
#[test]
fn scan_agrees_with_an_evaluation_of_each_offer() {
    let mut rng = StdRng::seed_from_u64(11);
    let (mut assigned_count, mut rejected) = (0, 0);
    for round in 0..400 {
        let mut offers = Offers::new(open_offers(&mut rng));
        for _ in 0..6 {
            let (requirements, count) = (requirements(&mut rng), rng.random_range(1..9));
            let scan = offers.scan(&requirements, count, 1);
            assert_eq!(
                scan,
                scan_each_offer(offers.offers(), &requirements, count),
                "round {round}"
            );
            rejected += scan.refused_offers.len();
            let Some((agent, capacity)) = scan.candidates.first() else {
                continue;
            };
            let ids = vec![TaskId::from("t"); *capacity as usize];
            let (assigned, misfit) = offers.assign(&requirements, &ids, &vec![*agent; ids.len()], &mut rng);
            assert_eq!((assigned.len(), misfit), (ids.len(), None), "round {round}");
            assigned_count += assigned.len();
        }
    }
    assert!(
        assigned_count > 1000 && rejected > 1000,
        "{assigned_count} and {rejected}"
    );
}

#[test]
fn shortlist_is_a_prefix_of_the_scan() {
    let mut rng = StdRng::seed_from_u64(12);
    let (mut is_complete, mut cut) = (0, 0);
    for round in 0..2000 {
        let offers = Offers::new(open_offers(&mut rng));
        let (requirements, count) = (requirements(&mut rng), rng.random_range(1..9));
        let limit = rng.random_range(1..6);
        let skipped = rng.random_range(0..12);
        let shortlist = offers.shortlist(&requirements, count, 1, limit, |place| place == skipped);
        let expected: Vec<(u32, u32)> = offers
            .scan(&requirements, count, 1)
            .candidates
            .into_iter()
            .filter(|(agent, _)| offers.index_of_agent(*agent) != Some(skipped))
            .collect();
        let beginning = &expected[..limit.min(expected.len())];
        assert_eq!(shortlist.candidates, beginning, "round {round}");
        if shortlist.is_complete {
            is_complete += 1;
            assert_eq!(
                offers.scan(&requirements, count, 1).candidates,
                shortlist.candidates,
                "round {round}: no candidate is missing"
            );
        } else {
            cut += 1;
        }
    }
    assert!(is_complete > 100 && cut > 100, "{is_complete} and {cut}");
}

#[test]
fn scan_sums_the_offers_of_an_agent_and_counts_rejections() {
    let offers = Offers::new(vec![
        OpenOffer::new(&offer("o1", "a", 0.5, &[]), 1),
        OpenOffer::new(&offer("o2", "b", 0.2, &[]), 2),
        OpenOffer::new(&offer("o3", "a", 1.0, &[]), 1),
        OpenOffer::new(&offer("o4", "c", 9.0, &[]), 3),
    ]);
    let scan = offers.scan(&any_requirements(|_| {}), 7, 0);
    assert_eq!(scan.candidates, [(3, 7), (1, 3)]);
    assert_eq!(
        scan.refused_offers,
        BTreeMap::from([(Reason::InsufficientCpus, 1)])
    );
}

#[test]
fn assign_uses_the_chosen_agents_up_to_their_capacity() {
    let mut offers = Offers::new(vec![
        OpenOffer::new(&offer("o1", "a", 0.5, &[]), 1),
        OpenOffer::new(&offer("o3", "b", 9.0, &[]), 2),
        OpenOffer::new(&offer("o2", "a", 0.5, &[]), 1),
    ]);
    let tasks: Vec<TaskId> = ["1", "2", "3", "4"].map(TaskId::from).to_vec();
    let (assigned, misfit) = offers.assign(&any_requirements(|_| {}), &tasks, &[1, 2, 1], &mut rng());
    let places: Vec<_> = assigned
        .iter()
        .map(|assigned| (assigned.id.as_str(), assigned.agent, assigned.offer.as_str()))
        .collect();
    assert_eq!(
        (places, misfit),
        (vec![("1", 1, "o1"), ("2", 2, "o3"), ("3", 1, "o2")], None)
    );
    let (assigned, misfit) = offers.assign(&any_requirements(|_| {}), &tasks[3..], &[1], &mut rng());
    assert_eq!((assigned.len(), misfit), (0, Some(1)));
    let (assigned, misfit) = offers.assign(&any_requirements(|_| {}), &tasks[3..], &[7], &mut rng());
    assert_eq!(
        (assigned.len(), misfit),
        (0, Some(7)),
        "an agent without any offer"
    );
}
