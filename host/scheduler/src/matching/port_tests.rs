//! Allocation of ports from whole offers.

use std::collections::BTreeSet;

use rand::Rng;
use transom_cluster::v1;

use super::tests::{assert_capacity, capacity, open_offer, requirements, reserved, rng};
use super::*;
use crate::Reason;
use crate::testing::offer;

#[test]
fn random_ports_are_each_used_once() {
    let requirements = requirements(|s| (s.cpus, s.mem, s.ports) = (0.0, 0.0, vec![PortRequest::Random; 2]));
    let mut open_offer = OpenOffer::new(&offer("o", "a", 1.0, &[(0, 2), (7, 9), (65_534, 70_000)]), 0);
    let mut rng = rng();
    let mut seen = BTreeSet::new();
    while let Some(allocation) = open_offer.take(&requirements, &mut rng) {
        for port in allocation.parts.into_iter().flat_map(|share| share.host_ports) {
            assert!(seen.insert(port), "{port} twice");
        }
    }
    assert!(
        seen.is_subset(&BTreeSet::from([1, 2, 7, 8, 9, 65_534, 65_535])),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 6, "seven valid ports (0 is invalid) make three pairs");
}

#[test]
fn reserved_ports_are_used_first_and_keep_their_reservation() {
    let mut open_offer = open_offer(vec![
        v1::Resource::ranges("ports", &[(1, 2)]),
        reserved(v1::Resource::ranges("ports", &[(8, 9)]), "prod"),
    ]);
    let requirements = requirements(|s| (s.cpus, s.mem, s.ports) = (0.0, 0.0, vec![PortRequest::Random; 3]));
    let allocation = open_offer.take(&requirements, &mut rng()).unwrap();
    let share = &allocation.parts[0];
    let mut first_two = share.host_ports[..2].to_vec();
    first_two.sort_unstable();
    assert_eq!(first_two, [8, 9]);
    let third = share.host_ports[2].into();
    assert_eq!(
        share.resources,
        [
            reserved(v1::Resource::ranges("ports", &[(8, 9)]), "prod"),
            v1::Resource::ranges("ports", &[(third, third)]),
        ]
    );
    // This range overlaps the ports of both resources.
    let ranged =
        self::requirements(|s| (s.cpus, s.mem, s.ports) = (0.0, 0.0, vec![PortRequest::Range(1, 9)]));
    let share = open_offer.take(&ranged, &mut rng()).unwrap().parts.remove(0);
    assert_eq!(share.host_ports, [if third == 1 { 2 } else { 1 }]);
    assert_eq!(share.resources[0].reservations, []);
}

/// Compares the allocation with an exhaustive search: an instance gets its ports if and only if an
/// assignment exists.
#[test]
fn ports_are_assigned_whenever_an_assignment_exists() {
    fn has_assignment(requests: &[PortRequest], free: &BTreeSet<u16>) -> bool {
        let Some((request, remaining_requests)) = requests.split_first() else {
            return true;
        };
        let fits = |port: &u16| match request {
            PortRequest::Random => true,
            PortRequest::Fixed(fixed) => port == fixed,
            PortRequest::Range(first, last) => (first..=last).contains(&port),
        };
        free.iter().filter(|port| fits(port)).any(|port| {
            let mut remaining = free.clone();
            remaining.remove(port);
            has_assignment(remaining_requests, &remaining)
        })
    }
    let mut rng = rng();
    let (mut assignable, mut rejected) = (0, 0);
    for _ in 0..3000 {
        let free: BTreeSet<u16> = (0..rng.random_range(1..6))
            .map(|_| rng.random_range(1..9))
            .collect();
        let requests: Vec<PortRequest> = (0..rng.random_range(1..5))
            .map(|_| {
                let first = rng.random_range(1..9);
                match rng.random_range(0..6) {
                    0 => PortRequest::Random,
                    1 => PortRequest::Fixed(first),
                    _ => PortRequest::Range(first, first + rng.random_range(0..4)),
                }
            })
            .collect();
        let spans: Vec<(u64, u64)> = free.iter().map(|&port| (port.into(), port.into())).collect();
        let open_offer = open_offer(vec![v1::Resource::ranges("ports", &spans)]);
        let requirements = requirements(|s| (s.cpus, s.mem, s.ports) = (0.0, 0.0, requests.clone()));
        let case = format!("{requests:?} of {free:?}");
        if has_assignment(&requests, &free) {
            assignable += 1;
            let capacity = capacity(&open_offer, &requirements, 100, 0).unwrap_or_else(|_| panic!("{case}"));
            assert_capacity(&case, &open_offer, &requirements, Ok(capacity));
        } else {
            rejected += 1;
            assert_capacity(
                &case,
                &open_offer,
                &requirements,
                Err(vec![Reason::InsufficientPorts]),
            );
        }
    }
    assert!(assignable > 300 && rejected > 300, "{assignable} and {rejected}");
}
