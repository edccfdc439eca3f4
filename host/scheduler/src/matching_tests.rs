use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::testing::{offer, spec};

fn rng() -> StdRng {
    StdRng::seed_from_u64(7)
}

fn need(change: impl FnOnce(&mut RunSpec)) -> Need {
    let mut spec = spec("/app");
    change(&mut spec);
    Need::of(&spec, &["prod".to_owned(), "*".to_owned()])
}

fn reserved(mut resource: v1::Resource, role: &str) -> v1::Resource {
    resource.reservations = vec![v1::ReservationInfo {
        role: Some(role.to_owned()),
        ..v1::ReservationInfo::default()
    }];
    resource
}

fn bin(resources: Vec<v1::Resource>) -> Bin {
    let mut offer = offer("o", "a", 0.0, &[]);
    offer.resources = resources;
    Bin::new(&offer, 0)
}

/// An offer of 2 CPUs, 1000 MB memory and disk, ports 100 to 109.
fn plain() -> Bin {
    Bin::new(&offer("o", "a", 2.0, &[(100, 109)]), 0)
}

fn assert_room(case: &str, bin: &Bin, need: &Need, expected: Result<u32, Vec<Reason>>) {
    assert_eq!(bin.room(need, 100, 0), expected, "{case}");
    // What room says is what can be taken.
    let (mut bin, mut rng) = (bin.clone(), rng());
    let taken = std::iter::from_fn(|| bin.take(need, &mut rng)).take(101).count();
    assert_eq!(taken.min(100), expected.unwrap_or(0) as usize, "{case}: taken");
}

#[test]
fn room_is_what_the_scarcest_resource_allows() {
    use PortRequest::{Fixed, Random};
    use Reason::{
        InsufficientCpus, InsufficientDisk, InsufficientGpus, InsufficientMemory, InsufficientPorts,
    };
    type Change = fn(&mut RunSpec);
    type Case = (&'static str, Change, Result<u32, Vec<Reason>>);
    let table: [Case; 19] = [
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
    ];
    for (case, change, expected) in table {
        assert_room(case, &plain(), &need(change), expected);
    }
    assert_eq!(plain().room(&need(|_| {}), 3, 0), Ok(3), "no more than asked for");
}

#[test]
fn roles_decide_what_may_be_used() {
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mem = || v1::Resource::scalar("mem", 1000.0);
    let mixed = bin(vec![
        cpus(0.3),
        reserved(cpus(0.9), "prod"),
        reserved(cpus(5.0), "dev"),
        mem(),
    ]);
    assert_room("role and *: together", &mixed, &need(|_| {}), Ok(2));
    assert_room(
        "only *",
        &mixed,
        &need(|s| s.roles = vec!["*".into()]),
        Err(vec![Reason::InsufficientCpus]),
    );
    let dev = need(|s| s.roles = vec!["dev".into()]);
    assert_room(
        "memory is not dev's",
        &mixed,
        &dev,
        Err(vec![Reason::InsufficientMemory]),
    );
    let other = need(|s| s.roles = vec!["other".into()]);
    assert_room(
        "nothing is other's",
        &mixed,
        &other,
        Err(vec![Reason::UnfulfilledRole]),
    );
    let old_form = v1::Resource {
        role: Some("prod".into()),
        ..cpus(1.0)
    };
    assert_room(
        "role in the older form",
        &bin(vec![old_form, mem()]),
        &need(|_| {}),
        Ok(2),
    );
    let refined = reserved(reserved(cpus(1.0), "prod"), "prod/web");
    assert_room(
        "another role's",
        &bin(vec![refined, mem()]),
        &need(|_| {}),
        Err(vec![Reason::InsufficientCpus]),
    );
}

#[test]
fn what_is_taken_keeps_whose_it_is_and_uses_reserved_parts_first() {
    let allocated = |mut resource: v1::Resource| {
        resource.allocation_info = Some(v1::AllocationInfo {
            role: Some("prod".into()),
        });
        resource
    };
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mut bin = bin(vec![
        allocated(cpus(1.0)),
        allocated(reserved(cpus(0.75), "prod")),
        allocated(v1::Resource::scalar("mem", 300.0)),
        allocated(v1::Resource::ranges("ports", &[(10, 12)])),
    ]);
    let need = need(|s| {
        s.ports = vec![
            PortRequest::Fixed(12),
            PortRequest::Random,
            PortRequest::Fixed(10),
        ];
    });
    let first = bin.take(&need, &mut rng()).unwrap();
    let expected = [
        allocated(reserved(cpus(0.5), "prod")),
        allocated(v1::Resource::scalar("mem", 100.0)),
        allocated(v1::Resource::ranges("ports", &[(10, 12)])),
    ];
    assert_eq!(
        first,
        Taken {
            resources: expected.to_vec(),
            host_ports: vec![12, 11, 10]
        }
    );
    let without_ports = Need {
        ports: vec![],
        ..need
    };
    let second = bin.take(&without_ports, &mut rng()).unwrap();
    let expected = [
        allocated(reserved(cpus(0.25), "prod")),
        allocated(cpus(0.25)),
        allocated(v1::Resource::scalar("mem", 100.0)),
    ];
    assert_eq!(second.resources, expected);
}

#[test]
fn special_resources_are_left_alone() {
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
        assert_room(
            "special",
            &bin(vec![resource]),
            &need(|_| {}),
            Err(vec![Reason::UnfulfilledRole]),
        );
    }
}

#[test]
fn an_agent_in_maintenance_takes_nothing_new() {
    let mut offer = offer("o", "a", 2.0, &[]);
    let window = |start, length: Option<i64>| v1::Unavailability {
        start: v1::TimeInfo { nanoseconds: start },
        duration: length.map(|nanoseconds| v1::DurationInfo { nanoseconds }),
    };
    for (window, now, fits) in [
        (window(100, Some(50)), 99, true),
        (window(100, Some(50)), 100, false),
        (window(100, Some(50)), 149, false),
        (window(100, Some(50)), 150, true),
        (window(100, None), i64::MAX - 1, false),
    ] {
        offer.unavailability = Some(window.clone());
        let room = Bin::new(&offer, 0).room(&need(|_| {}), 1, now);
        let expected = if fits {
            Ok(1)
        } else {
            Err(vec![Reason::AgentMaintenance])
        };
        assert_eq!(room, expected, "{window:?} at {now}");
    }
}

#[test]
fn random_ports_are_all_used_and_never_twice() {
    let need = need(|s| (s.cpus, s.mem, s.ports) = (0.0, 0.0, vec![PortRequest::Random; 2]));
    let mut bin = Bin::new(&offer("o", "a", 1.0, &[(0, 2), (7, 9), (65_534, 70_000)]), 0);
    let mut rng = rng();
    let mut seen = BTreeSet::new();
    while let Some(taken) = bin.take(&need, &mut rng) {
        for port in taken.host_ports {
            assert!(seen.insert(port), "{port} twice");
        }
    }
    assert!(
        seen.is_subset(&BTreeSet::from([1, 2, 7, 8, 9, 65_534, 65_535])),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 6, "seven ports, as 0 is none: three pairs");
}

#[test]
fn a_survey_adds_up_offers_of_an_agent_and_counts_refusals() {
    let bins = [
        Bin::new(&offer("o1", "a", 0.5, &[]), 1),
        Bin::new(&offer("o2", "b", 0.2, &[]), 2),
        Bin::new(&offer("o3", "a", 1.0, &[]), 1),
        Bin::new(&offer("o4", "c", 9.0, &[]), 3),
    ];
    let survey = survey(&bins, &need(|_| {}), 7, 0);
    assert_eq!(survey.candidates, [(3, 7), (1, 3)]);
    assert_eq!(survey.refused, BTreeMap::from([(Reason::InsufficientCpus, 1)]));
}

#[test]
fn tasks_go_where_they_were_put_until_there_is_no_room() {
    let mut bins = [
        Bin::new(&offer("o1", "a", 0.5, &[]), 1),
        Bin::new(&offer("o2", "a", 0.5, &[]), 1),
        Bin::new(&offer("o3", "b", 9.0, &[]), 2),
    ];
    let tasks: Vec<TaskId> = ["1", "2", "3", "4"].map(TaskId::from).to_vec();
    let (assigned, misfit) = assign(&mut bins, &need(|_| {}), &tasks, &[1, 2, 1], &mut rng());
    let places: Vec<_> = assigned
        .iter()
        .map(|assigned| (assigned.task.as_str(), assigned.bin))
        .collect();
    assert_eq!((places, misfit), (vec![("1", 0), ("2", 2), ("3", 1)], None));
    let (assigned, misfit) = assign(&mut bins, &need(|_| {}), &tasks[3..], &[1], &mut rng());
    assert_eq!((assigned.len(), misfit), (0, Some(1)));
}
