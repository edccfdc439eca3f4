use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::testing::{offer, pair_spec, spec};

/// Marks a resource with its role.
type Mark = Box<dyn Fn(v1::Resource) -> v1::Resource>;

pub(super) fn rng() -> StdRng {
    StdRng::seed_from_u64(7)
}

pub(super) fn requirements(change: impl FnOnce(&mut RunSpec)) -> Requirements {
    let mut spec = spec("/app");
    change(&mut spec);
    Requirements::of(&spec, &["prod".to_owned(), "*".to_owned()])
}

pub(super) fn reserved(mut resource: v1::Resource, role: &str) -> v1::Resource {
    resource.reservations = vec![v1::ReservationInfo {
        role: Some(role.to_owned()),
        ..v1::ReservationInfo::default()
    }];
    resource
}

pub(super) fn open_offer(resources: Vec<v1::Resource>) -> OpenOffer {
    let mut offer = offer("o", "a", 0.0, &[]);
    offer.resources = resources;
    OpenOffer::new(&offer, 0)
}

/// An offer of 2 CPUs, 1000 MB memory and disk, ports 100 to 109.
fn plain() -> OpenOffer {
    OpenOffer::new(&offer("o", "a", 2.0, &[(100, 109)]), 0)
}

/// How many instances fit, or the reasons why none does.
pub(super) fn capacity(
    open_offer: &OpenOffer,
    requirements: &Requirements,
    limit: u32,
    now: i64,
) -> Result<u32, Vec<Reason>> {
    let mut reasons = Vec::new();
    let capacity = open_offer.capacity(requirements, limit, now, |reason| reasons.push(reason));
    if reasons.is_empty() {
        Ok(capacity)
    } else {
        assert_eq!(capacity, 0, "{reasons:?}");
        Err(reasons)
    }
}

pub(super) fn assert_capacity(
    case: &str,
    open_offer: &OpenOffer,
    requirements: &Requirements,
    expected: Result<u32, Vec<Reason>>,
) {
    assert_eq!(capacity(open_offer, requirements, 100, 0), expected, "{case}");
    // Exactly as many instances as `capacity` returned can be allocated.
    let (mut open_offer, mut rng) = (open_offer.clone(), rng());
    let allocation = std::iter::from_fn(|| open_offer.take(requirements, &mut rng))
        .take(101)
        .count();
    assert_eq!(
        allocation.min(100),
        expected.unwrap_or(0) as usize,
        "{case}: taken"
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn capacity_is_limited_by_the_scarcest_resource() {
    use PortRequest::{Fixed, Random, Range};
    use Reason::{
        InsufficientCpus, InsufficientDisk, InsufficientGpus, InsufficientMemory, InsufficientPorts,
    };
    type Change = fn(&mut RunSpec);
    type Case = (&'static str, Change, Result<u32, Vec<Reason>>);
    let table: [Case; 33] = [
        ("half a CPU", |_| {}, Ok(4)),
        ("a tenth, without float dust", |s| s.cpus = 0.1, Ok(10)),
        (
            "a tenth of CPU, no memory",
            |s| (s.cpus, s.mem) = (0.1, 0.0),
            Ok(20),
        ),
        (
            "all of it",
            |s| (s.cpus, s.mem, s.disk) = (2.0, 1000.0, 1000.0),
            Ok(1),
        ),
        ("memory is scarce", |s| s.mem = 400.0, Ok(2)),
        ("disk is scarce", |s| s.disk = 334.0, Ok(2)),
        (
            "a thousandth too much",
            |s| s.cpus = 2.001,
            Err(vec![InsufficientCpus]),
        ),
        ("less than a thousandth too much", |s| s.cpus = 2.0004, Ok(1)),
        ("no GPUs here", |s| s.gpus = 1.0, Err(vec![InsufficientGpus])),
        (
            "every shortfall counts",
            |s| {
                (s.cpus, s.mem, s.disk) = (3.0, 2000.0, 2000.0);
                s.ports = vec![Fixed(80)];
            },
            Err(vec![
                InsufficientCpus,
                InsufficientMemory,
                InsufficientDisk,
                InsufficientPorts,
            ]),
        ),
        ("needs nothing", |s| (s.cpus, s.mem) = (0.0, 0.0), Ok(100)),
        (
            "negative is nothing",
            |s| (s.cpus, s.mem) = (-1.0, f64::NAN),
            Ok(100),
        ),
        ("a random port each", |s| s.ports = vec![Random], Ok(4)),
        ("four random ports each", |s| s.ports = vec![Random; 4], Ok(2)),
        (
            "a fixed port can be had once",
            |s| s.ports = vec![Fixed(105)],
            Ok(1),
        ),
        (
            "a fixed one and all others",
            |s| s.ports = [vec![Random; 9], vec![Fixed(105)]].concat(),
            Ok(1),
        ),
        (
            "one too many",
            |s| s.ports = vec![Random; 11],
            Err(vec![InsufficientPorts]),
        ),
        (
            "the same fixed one twice",
            |s| s.ports = vec![Fixed(105), Fixed(105)],
            Err(vec![InsufficientPorts]),
        ),
        (
            "not on offer",
            |s| s.ports = vec![Fixed(110), Random],
            Err(vec![InsufficientPorts]),
        ),
        (
            "one of a range",
            |s| (s.cpus, s.ports) = (0.0, vec![Range(101, 103)]),
            Ok(3),
        ),
        (
            "a range that is partly on offer",
            |s| (s.cpus, s.ports) = (0.0, vec![Range(108, 200)]),
            Ok(2),
        ),
        (
            "a range of which nothing is on offer",
            |s| s.ports = vec![Range(110, 200)],
            Err(vec![InsufficientPorts]),
        ),
        (
            "a range that ends before it begins",
            |s| s.ports = vec![Range(105, 101)],
            Err(vec![InsufficientPorts]),
        ),
        (
            "a range of one is fixed",
            |s| s.ports = vec![Range(105, 105)],
            Ok(1),
        ),
        (
            "the same range twice",
            |s| s.ports = vec![Range(101, 104); 2],
            Ok(2),
        ),
        (
            "a range too small for all who want it",
            |s| s.ports = vec![Range(101, 102); 3],
            Err(vec![InsufficientPorts]),
        ),
        (
            "a fixed one inside of a range",
            |s| s.ports = vec![Range(104, 105), Fixed(104)],
            Ok(1),
        ),
        (
            "one way only to give them out",
            |s| s.ports = vec![Range(100, 103), Range(101, 102), Range(100, 102), Fixed(101)],
            Ok(1),
        ),
        (
            "no way to give them out",
            |s| s.ports = vec![Range(101, 102), Range(101, 102), Fixed(101)],
            Err(vec![InsufficientPorts]),
        ),
        (
            "random ones keep out of a range",
            |s| (s.cpus, s.ports) = (0.0, vec![Random, Range(100, 104)]),
            Ok(5),
        ),
        (
            "and go into it when there are no others",
            |s| (s.cpus, s.ports) = (0.0, vec![Random, Random, Range(100, 107)]),
            Ok(3),
        ),
        (
            "and leave fixed ones alone",
            |s| s.ports = [vec![Random; 7], vec![Fixed(100), Range(101, 102), Fixed(109)]].concat(),
            Ok(1),
        ),
        (
            "ranges side by side",
            |s| (s.cpus, s.ports) = (0.0, vec![Range(100, 102), Range(103, 109)]),
            Ok(3),
        ),
    ];
    for (case, change, expected) in table {
        assert_capacity(case, &plain(), &requirements(change), expected);
    }
    assert_eq!(
        capacity(&plain(), &requirements(|_| {}), 3, 0),
        Ok(3),
        "no more than requested"
    );
}

#[test]
fn only_resources_of_accepted_roles_are_used() {
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mem = || v1::Resource::scalar("mem", 1000.0);
    let mixed = open_offer(vec![
        cpus(0.3),
        reserved(cpus(0.9), "prod"),
        reserved(cpus(5.0), "dev"),
        mem(),
    ]);
    assert_capacity("role and *: together", &mixed, &requirements(|_| {}), Ok(2));
    assert_capacity(
        "only *",
        &mixed,
        &requirements(|s| s.roles = vec!["*".into()]),
        Err(vec![Reason::InsufficientCpus]),
    );
    let dev = requirements(|s| s.roles = vec!["dev".into()]);
    assert_capacity(
        "memory is not dev's",
        &mixed,
        &dev,
        Err(vec![Reason::InsufficientMemory]),
    );
    let other = requirements(|s| s.roles = vec!["other".into()]);
    assert_capacity(
        "nothing is other's",
        &mixed,
        &other,
        Err(vec![Reason::UnfulfilledRole]),
    );
    let old_form = v1::Resource {
        role: Some("prod".into()),
        ..cpus(1.0)
    };
    assert_capacity(
        "role in the older form",
        &open_offer(vec![old_form, mem()]),
        &requirements(|_| {}),
        Ok(2),
    );
    let refined = reserved(reserved(cpus(1.0), "prod"), "prod/web");
    assert_capacity(
        "another role's",
        &open_offer(vec![refined, mem()]),
        &requirements(|_| {}),
        Err(vec![Reason::InsufficientCpus]),
    );
}

#[test]
fn allocation_keeps_reservations_and_uses_reserved_resources_first() {
    let allocated = |mut resource: v1::Resource| {
        resource.allocation_info = Some(v1::AllocationInfo {
            role: Some("prod".into()),
        });
        resource
    };
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mut open_offer = open_offer(vec![
        allocated(cpus(1.0)),
        allocated(reserved(cpus(0.75), "prod")),
        allocated(v1::Resource::scalar("mem", 300.0)),
        allocated(v1::Resource::ranges("ports", &[(10, 12)])),
    ]);
    let requirements = requirements(|s| {
        s.ports = vec![
            PortRequest::Fixed(12),
            PortRequest::Random,
            PortRequest::Fixed(10),
        ];
    });
    let first = open_offer.take(&requirements, &mut rng()).unwrap();
    let expected = [
        allocated(reserved(cpus(0.5), "prod")),
        allocated(v1::Resource::scalar("mem", 100.0)),
        allocated(v1::Resource::ranges("ports", &[(10, 12)])),
    ];
    assert_eq!(
        first,
        Allocation {
            parts: vec![PartAllocation {
                resources: expected.to_vec(),
                host_ports: vec![12, 11, 10]
            }],
            ..Allocation::default()
        }
    );
    let without_ports = self::requirements(|_| {});
    let second = open_offer.take(&without_ports, &mut rng()).unwrap();
    let expected = [
        allocated(reserved(cpus(0.25), "prod")),
        allocated(cpus(0.25)),
        allocated(v1::Resource::scalar("mem", 100.0)),
    ];
    assert_eq!(second.parts[0].resources, expected);
}

#[test]
fn special_resources_are_not_used() {
    let cpus = || v1::Resource::scalar("cpus", 1.0);
    let special = [
        v1::Resource {
            revocable: Some(v1::Empty {}),
            ..cpus()
        },
        v1::Resource {
            shared: Some(v1::Empty {}),
            ..cpus()
        },
        v1::Resource {
            disk: Some(v1::DiskInfo::default()),
            ..cpus()
        },
        v1::Resource {
            provider_id: Some("p".into()),
            ..cpus()
        },
    ];
    for resource in special {
        assert_capacity(
            "special",
            &open_offer(vec![resource]),
            &requirements(|_| {}),
            Err(vec![Reason::UnfulfilledRole]),
        );
    }
}

#[test]
fn agent_in_maintenance_has_no_capacity() {
    let offer = offer("o", "a", 2.0, &[]);
    for (closed, now, fits) in [
        (None, 100, true),
        (Some((100, 150)), 99, true),
        (Some((100, 150)), 100, false),
        (Some((100, 150)), 149, false),
        (Some((100, 150)), 150, true),
        (Some((100, i64::MAX)), i64::MAX - 1, false),
    ] {
        let offer = OpenOffer::new(&offer, 0).closed_during(closed);
        let capacity = capacity(&offer, &requirements(|_| {}), 1, now);
        let expected = if fits {
            Ok(1)
        } else {
            Err(vec![Reason::AgentMaintenance])
        };
        assert_eq!(capacity, expected, "{closed:?} at {now}");
    }
}

#[test]
fn executor_needs_resources_in_addition_to_its_task() {
    let offer = OpenOffer::new(&offer("o", "a", 1.0, &[]), 0);
    for (cpus, fits) in [(0.5, true), (0.6, false)] {
        let requirements = requirements(|spec| {
            spec.cpus = 0.5;
            spec.executor.cpus = cpus;
        });
        assert_eq!(capacity(&offer, &requirements, 1, 0).is_ok(), fits, "{cpus}");
    }
}

#[test]
fn offer_with_gpus_has_no_capacity_for_a_spec_that_avoids_them() {
    let offer = |gpus: f64| {
        let mut offer = offer("o", "a", 2.0, &[]);
        offer.resources.push(v1::Resource::scalar("gpus", gpus));
        OpenOffer::new(&offer, 0)
    };
    for (avoids, gpus, fits) in [(true, 1.0, false), (false, 1.0, true), (true, 0.0, true)] {
        let requirements = requirements(|spec| spec.avoid_gpus = avoids);
        let expected = if fits {
            Ok(1)
        } else {
            Err(vec![Reason::DeclinedScarceResources])
        };
        assert_eq!(
            capacity(&offer(gpus), &requirements, 1, 0),
            expected,
            "{avoids} {gpus}"
        );
    }
}

/// Each format of a reservation, with the roles that may use it.
#[test]
fn reservations_of_every_format_are_matched_by_role() {
    let reservation = |kind: &str, role: &str| v1::ReservationInfo {
        r#type: Some(kind.to_owned()),
        role: Some(role.to_owned()),
        principal: (kind == "DYNAMIC").then(|| "ops".to_owned()),
        labels: (kind == "DYNAMIC").then(|| [("for", "web")].into_iter().collect()),
    };
    let newer = |reservations: Vec<v1::ReservationInfo>| {
        move |resource: v1::Resource| v1::Resource {
            reservations: reservations.clone(),
            ..resource
        }
    };
    // The format before reservation refinement: a static reservation is only a role, a dynamic one
    // has further fields.
    let older = |role: &'static str, dynamic: bool| {
        move |resource: v1::Resource| v1::Resource {
            role: Some(role.to_owned()),
            reservation: dynamic.then(|| v1::ReservationInfo {
                principal: Some("ops".to_owned()),
                ..v1::ReservationInfo::default()
            }),
            ..resource
        }
    };
    let forms: [(&str, Mark); 9] = [
        ("*", Box::new(newer(vec![]))),
        ("*", Box::new(older("*", false))),
        ("prod", Box::new(newer(vec![reservation("STATIC", "prod")]))),
        ("prod", Box::new(newer(vec![reservation("DYNAMIC", "prod")]))),
        ("prod", Box::new(older("prod", false))),
        ("prod", Box::new(older("prod", true))),
        (
            "prod/web",
            Box::new(newer(vec![
                reservation("STATIC", "prod"),
                reservation("DYNAMIC", "prod/web"),
            ])),
        ),
        ("prod/web", Box::new(older("prod/web", false))),
        ("product", Box::new(newer(vec![reservation("STATIC", "product")]))),
    ];
    // The roles of a run spec, and the reservations that it may use.
    let accepted = [
        (&["*"][..], &["*"][..]),
        (&["prod"], &["prod"]),
        (&["prod", "*"], &["prod", "*"]),
        (&["prod/web"], &["prod", "prod/web"]),
        (&["prod/web/a", "*"], &["prod", "prod/web", "*"]),
        (&["prod/web2"], &["prod"]),
        (&["other"], &[]),
    ];
    for (roles, usable) in accepted {
        for (owner, mark) in &forms {
            let resources = [
                v1::Resource::scalar("cpus", 1.0),
                v1::Resource::scalar("mem", 200.0),
                v1::Resource::ranges("ports", &[(7000, 7001)]),
            ]
            .map(mark);
            let requirements = requirements(|s| {
                s.roles = roles.iter().map(ToString::to_string).collect();
                s.ports = vec![PortRequest::Range(7001, 7009)];
            });
            let mut open_offer = open_offer(resources.to_vec());
            let expected = if usable.contains(owner) {
                Ok(1)
            } else {
                Err(vec![Reason::UnfulfilledRole])
            };
            assert_capacity(
                &format!("{roles:?} and {owner}"),
                &open_offer,
                &requirements,
                expected.clone(),
            );
            if expected.is_ok() {
                // The allocated resources keep their reservations.
                let allocation = open_offer.take(&requirements, &mut rng()).unwrap();
                let expected = [
                    v1::Resource::scalar("cpus", 0.5),
                    v1::Resource::scalar("mem", 100.0),
                    v1::Resource::ranges("ports", &[(7001, 7001)]),
                ]
                .map(mark);
                assert_eq!(allocation.parts[0].resources, expected, "{roles:?} and {owner}");
            }
        }
    }
}

#[test]
fn group_is_allocated_its_executor_and_all_members() {
    let requirements = Requirements::of(&pair_spec("/pod"), &["*".to_owned()]);
    let table = [
        ("two by CPU", 1.6, &[(7000, 7009)][..], Ok(2)),
        (
            "not enough for all parts",
            0.79,
            &[(7000, 7009)],
            Err(vec![Reason::InsufficientCpus]),
        ),
        ("one port, one group", 9.0, &[(7009, 7050)], Ok(1)),
        (
            "a member's port is missing",
            9.0,
            &[(7010, 7050)],
            Err(vec![Reason::InsufficientPorts]),
        ),
    ];
    for (case, cpus, ports, expected) in table {
        assert_capacity(
            case,
            &OpenOffer::new(&offer("o", "a", cpus, ports), 0),
            &requirements,
            expected,
        );
    }
    let mut open_offer = open_offer(vec![
        reserved(v1::Resource::scalar("cpus", 0.25), "prod"),
        v1::Resource::scalar("cpus", 1.0),
        v1::Resource::scalar("mem", 500.0),
        v1::Resource::ranges("ports", &[(7003, 7003)]),
    ]);
    let requirements = Requirements::of(&pair_spec("/pod"), &["prod".to_owned(), "*".to_owned()]);
    let parts = open_offer.take(&requirements, &mut rng()).unwrap().parts;
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mem = |amount| v1::Resource::scalar("mem", amount);
    let share = |resources: &[v1::Resource], host_ports: &[u16]| PartAllocation {
        resources: resources.to_vec(),
        host_ports: host_ports.to_vec(),
    };
    assert_eq!(
        parts,
        [
            share(&[reserved(cpus(0.1), "prod"), mem(32.0)], &[]),
            share(
                &[
                    reserved(cpus(0.15), "prod"),
                    cpus(0.35),
                    mem(100.0),
                    v1::Resource::ranges("ports", &[(7003, 7003)])
                ],
                &[7003]
            ),
            share(&[cpus(0.2), mem(50.0)], &[]),
        ]
    );
}
