//! Disks for volumes, allocation roles of offers, and the resources of reservations.

use serde_json::json;
use transom_cluster::v1;

use super::tests::{assert_capacity, capacity, open_offer, reserved, rng};
use super::*;
use crate::matching::offered_reservation::{self, OfferedReservation, Owner};
use crate::testing::{offer, pair_spec, reservation, resources_after, spec};
use crate::{LocalVolume, PathConstraint, Reservation};

fn volume(disk: DiskKind, size: u64) -> VolumeRequest {
    VolumeRequest {
        container_path: format!("data-{size}"),
        size,
        disk,
        constraints: Vec::new(),
    }
}

fn path(profile: Option<&str>) -> DiskKind {
    DiskKind::Path {
        profile: profile.map(str::to_owned),
    }
}

fn mount(max_size: Option<u64>) -> DiskKind {
    DiskKind::Mount {
        max_size,
        profile: None,
    }
}

fn with(constraint: crate::Result<PathConstraint>, volume: VolumeRequest) -> VolumeRequest {
    VolumeRequest {
        constraints: vec![constraint.unwrap()],
        ..volume
    }
}

/// A disk of an agent: `path /p` or `mount /m`, with a profile after a colon.
fn disk(kind: &str, size: f64) -> v1::Resource {
    let (kind, root) = kind.split_once(' ').unwrap();
    let (root, profile) = root.split_once(':').unwrap_or((root, ""));
    let mut source = json!({"type": kind.to_uppercase(), kind: {"root": root}});
    if !profile.is_empty() {
        source["profile"] = json!(profile);
    }
    v1::Resource {
        disk: Some(v1::DiskInfo {
            source: Some(source),
            ..v1::DiskInfo::default()
        }),
        ..v1::Resource::scalar("disk", size)
    }
}

fn plain(disks: Vec<v1::Resource>) -> Vec<v1::Resource> {
    let mut resources = vec![
        v1::Resource::scalar("cpus", 2.0),
        v1::Resource::scalar("mem", 1000.0),
        v1::Resource::scalar("disk", 1000.0),
        v1::Resource::ranges("ports", &[(100, 109)]),
    ];
    resources.extend(disks);
    resources
}

fn requirements(volumes: Vec<VolumeRequest>) -> Requirements {
    let spec = RunSpec {
        volumes,
        disk: 100.0,
        role: Some("prod".to_owned()),
        ..spec("/db")
    };
    Requirements::for_new_reservation(&spec, &["*".to_owned()])
}

#[test]
fn volumes_are_limited_by_the_disks_of_their_kind() {
    let no_disk = || Err(vec![Reason::InsufficientDisk]);
    let table = [
        (
            "root disk, and the task's own",
            vec![volume(DiskKind::Root, 400)],
            vec![],
            Ok(2),
        ),
        (
            "too little root disk",
            vec![volume(DiskKind::Root, 901)],
            vec![],
            no_disk(),
        ),
        (
            "no path disk",
            vec![volume(path(None), 1)],
            vec![("mount /m", 500.0)],
            no_disk(),
        ),
        (
            "parts of a path disk",
            vec![volume(path(None), 100)],
            vec![("path /p", 350.0)],
            Ok(3),
        ),
        (
            "not from two path disks",
            vec![volume(path(None), 100)],
            vec![("path /p", 60.0), ("path /q", 60.0)],
            no_disk(),
        ),
        (
            "the profile of a path disk",
            vec![volume(path(Some("fast")), 100)],
            vec![("path /p", 500.0), ("path /q:fast", 100.0)],
            Ok(1),
        ),
        (
            "a whole mount disk each",
            vec![volume(mount(None), 100)],
            vec![("mount /m", 500.0), ("mount /n", 100.0), ("mount /o", 99.0)],
            Ok(2),
        ),
        (
            "a mount disk that is too large",
            vec![volume(mount(Some(400)), 100)],
            vec![("mount /m", 401.0)],
            no_disk(),
        ),
        (
            "two volumes, one way to give out the disks",
            vec![volume(mount(None), 10), volume(mount(Some(20)), 10)],
            vec![("mount /m", 15.0), ("mount /n", 50.0)],
            Ok(1),
        ),
        (
            "a path that is wanted",
            vec![with(PathConstraint::like("/ssd.*"), volume(mount(None), 10))],
            vec![("mount /ssd1", 50.0), ("mount /hdd1", 50.0)],
            Ok(1),
        ),
        (
            "a path that is not wanted",
            vec![with(PathConstraint::unlike("/hdd.*"), volume(path(None), 10))],
            vec![("path /hdd1", 50.0)],
            no_disk(),
        ),
        (
            "the volume with a constraint chooses first",
            vec![
                volume(mount(Some(20)), 10),
                with(PathConstraint::like("/ssd"), volume(mount(None), 10)),
            ],
            vec![("mount /ssd", 12.0), ("mount /hdd", 15.0)],
            Ok(1),
        ),
    ];
    for (case, volumes, disks, expected) in table {
        let disks = disks.iter().map(|(kind, size)| disk(kind, *size)).collect();
        assert_capacity(case, &open_offer(plain(disks)), &requirements(volumes), expected);
    }
}

#[test]
fn smallest_mount_disk_is_allocated_whole_and_as_offered() {
    let disks = [("mount /m", 500.0), ("mount /n", 120.0), ("path /p", 300.0)];
    let disks = disks.map(|(kind, size)| disk(kind, size));
    let mut open_offer = open_offer(plain(disks.to_vec()));
    let requirements = requirements(vec![
        volume(path(None), 50),
        volume(mount(None), 100),
        volume(DiskKind::Root, 30),
    ]);
    let allocation = open_offer.take(&requirements, &mut rng()).unwrap();
    let expected = [
        disk("path /p", 50.0),
        disk("mount /n", 120.0),
        v1::Resource::scalar("disk", 30.0),
    ];
    assert_eq!(allocation.volumes, expected);
    assert_eq!(
        allocation.parts[0].resources[2],
        v1::Resource::scalar("disk", 100.0)
    );
    assert!(
        capacity(
            &open_offer,
            &Requirements::of(&spec("/app"), &["*".to_owned()]),
            9,
            0
        )
        .is_ok(),
        "other tasks use the rest"
    );
}

#[test]
fn volume_on_the_root_disk_is_one_resource() {
    let halves = |size| {
        vec![
            v1::Resource::scalar("cpus", 2.0),
            v1::Resource::scalar("mem", 1000.0),
            reserved(v1::Resource::scalar("disk", size), "eng"),
            v1::Resource::scalar("disk", size),
        ]
    };
    let spec = RunSpec {
        volumes: vec![volume(DiskKind::Root, 150)],
        role: Some("eng/db".to_owned()),
        ..spec("/db")
    };
    let requirements = Requirements::for_new_reservation(&spec, &[]);
    assert_eq!(
        capacity(&open_offer(halves(100.0)), &requirements, 9, 0),
        Err(vec![Reason::InsufficientDisk])
    );
    assert_eq!(capacity(&open_offer(halves(150.0)), &requirements, 9, 0), Ok(2));
}

#[test]
fn reservation_uses_only_resources_that_can_be_reserved_for_its_role() {
    let cpus = |amount| v1::Resource::scalar("cpus", amount);
    let mem = || v1::Resource::scalar("mem", 1000.0);
    let spec = |role: &str, roles: &[&str]| RunSpec {
        volumes: vec![volume(DiskKind::Root, 1)],
        role: Some(role.to_owned()),
        roles: roles.iter().map(ToString::to_string).collect(),
        ..spec("/db")
    };
    let disk = || v1::Resource::scalar("disk", 10.0);
    for (case, role, roles, owner, fits) in [
        ("unreserved", "prod", &[][..], "*", true),
        ("reserved for the role already", "prod", &[], "prod", false),
        ("reserved for an ancestor", "prod/db", &[], "prod", true),
        (
            "only unreserved ones are accepted",
            "prod/db",
            &["*"],
            "prod",
            false,
        ),
        (
            "reserved for another accepted role",
            "prod",
            &["dev", "*"],
            "dev",
            false,
        ),
    ] {
        let mark = |resource| {
            if owner == "*" {
                resource
            } else {
                reserved(resource, owner)
            }
        };
        let open_offer = open_offer(vec![mark(cpus(1.0)), mark(mem()), mark(disk())]);
        let found = capacity(
            &open_offer,
            &Requirements::for_new_reservation(&spec(role, roles), &[]),
            1,
            0,
        );
        assert_eq!(found.is_ok(), fits, "{case}: {found:?}");
    }
}

#[test]
fn offer_is_used_by_run_specs_of_its_role() {
    let mut allocated_offer = offer("o", "a", 2.0, &[]);
    let of_role = |role: Option<&str>| {
        let spec = RunSpec {
            role: role.map(str::to_owned),
            ..spec("/app")
        };
        Requirements::of(&spec, &["a".to_owned(), "*".to_owned()])
    };
    let rejected = Err(vec![Reason::UnfulfilledRole]);
    for (allocated, role, expected) in [
        (None, Some("a"), Ok(4)),
        (Some("a"), None, Ok(4)),
        (Some("a"), Some("a"), Ok(4)),
        (Some("b"), Some("a"), rejected.clone()),
        (Some("a/b"), Some("a"), rejected),
    ] {
        allocated_offer.allocation_info = allocated.map(|role| v1::AllocationInfo {
            role: Some(role.to_owned()),
        });
        let open = OpenOffer::new(&allocated_offer, 0);
        let case = format!("{role:?} of {allocated:?}");
        assert_capacity(&case, &open, &of_role(role), expected.clone());
        let scan = Offers::new(vec![open]).scan(&of_role(role), 9, 0);
        assert_eq!(
            scan.candidates.first().map(|(_, capacity)| *capacity),
            expected.ok(),
            "{case}"
        );
    }
}

#[test]
fn run_spec_with_a_role_accepts_its_own_and_unreserved_resources() {
    let requirements = Requirements::of(
        &RunSpec {
            role: Some("a/b".to_owned()),
            ..spec("/app")
        },
        &["prod".to_owned(), "*".to_owned()],
    );
    for (role, accepted) in [("a/b", true), ("a", true), ("*", true), ("prod", false)] {
        assert_eq!(requirements.accepts_role(role), accepted, "{role}");
    }
}

/// Reserves everything that the spec needs; returns the record and the operations.
fn reserve(spec: &RunSpec, open_offer: &mut OpenOffer) -> (Reservation, Vec<v1::Operation>) {
    let allocation = open_offer
        .take(&Requirements::for_new_reservation(spec, &[]), &mut rng())
        .unwrap();
    let volumes = spec.volumes.iter();
    let record = Reservation {
        volumes: volumes
            .map(|volume| LocalVolume::new(&spec.id, &volume.container_path))
            .collect(),
        role: spec.role.clone().unwrap(),
        ..reservation("k", "id")
    };
    let owner = Owner {
        framework: "F".to_owned(),
        key: "k".to_owned(),
        id: "id".to_owned(),
    };
    let resources = allocation
        .parts
        .into_iter()
        .flat_map(|part| part.resources)
        .collect();
    let operations = offered_reservation::reserve(&record, &owner, Some("p"), resources, allocation.volumes);
    (record, operations)
}

fn resident(of: RunSpec) -> RunSpec {
    RunSpec {
        volumes: vec![volume(DiskKind::Root, 30), volume(mount(None), 100)],
        disk: 5.0,
        role: Some("prod".to_owned()),
        ..of
    }
}

#[test]
fn reserved_resources_are_held_for_their_instance_alone_and_can_be_removed() {
    let spec = resident(spec("/db"));
    let mut source = open_offer(plain(vec![disk("mount /m", 120.0)]));
    let (record, operations) = reserve(&spec, &mut source);
    let names: Vec<_> = operations
        .iter()
        .map(|operation| operation.r#type.as_str())
        .collect();
    assert_eq!(names, ["RESERVE", "CREATE"]);
    let created = &operations[1].create.as_ref().unwrap().volumes;
    let info = created[1].disk.as_ref().unwrap();
    assert_eq!(info.root(), Some("/m"));
    assert_eq!(
        info.persistence.as_ref().unwrap(),
        &v1::DiskPersistence {
            id: record.volumes[1].persistence_id.clone(),
            principal: Some("p".to_owned())
        }
    );
    assert_eq!(info.volume.as_ref().unwrap().container_path, "data-100");

    let offered = resources_after(&operations);
    let last = offered[0].reservations.last().unwrap();
    assert_eq!(
        (last.role.as_deref(), last.principal.as_deref()),
        (Some("prod"), Some("p"))
    );
    let open = open_offer(offered.clone());
    let plain_need = Requirements::of(
        &RunSpec {
            mem: 0.0,
            ..crate::testing::spec("/app")
        },
        &["prod".to_owned(), "*".to_owned()],
    );
    assert_eq!(
        capacity(&open, &plain_need, 1, 0),
        Err(vec![Reason::UnfulfilledRole]),
        "no other run spec may use them"
    );
    let [offered] = open.offered_reservations() else {
        panic!("{open:?}")
    };
    assert!(offered.owner.belongs_to(&record, "F") && offered.owner.was_reserved_by("F"));
    assert!(offered.owner.belongs_to(&record, "F-new") && !offered.owner.was_reserved_by("F-new"));
    assert!(!offered.owner.belongs_to(&reservation("k", "other"), "F"));
    assert!(offered.has_volumes_of(&record));
    let requirements = Requirements::for_existing_reservation(&spec, &record.role);
    assert_eq!(
        capacity(&open.only_reservation(offered), &requirements, 9, 0),
        Ok(1)
    );

    let removal = offered.removal_operations();
    let names: Vec<_> = removal
        .iter()
        .map(|operation| operation.r#type.as_str())
        .collect();
    assert_eq!(names, ["DESTROY", "UNRESERVE"]);
    assert_eq!(removal[0].destroy.as_ref().unwrap().volumes, *created);
    let unreserved = &removal[1].unreserve.as_ref().unwrap().resources;
    let mut expected = operations[0].reserve.as_ref().unwrap().resources.clone();
    assert_eq!(unreserved.len(), expected.len());
    expected.retain(|resource| !unreserved.contains(resource));
    assert_eq!(expected, [], "all reserved resources are removed");
}

#[test]
fn reservation_of_a_group_serves_all_of_its_parts() {
    let spec = RunSpec {
        disk: 0.0,
        ..resident(pair_spec("/pod"))
    };
    let mut resources = plain(vec![disk("mount /m", 120.0)]);
    resources.push(v1::Resource::ranges("ports", &[(7005, 7006)]));
    let (record, operations) = reserve(&spec, &mut open_offer(resources));
    let open = open_offer(resources_after(&operations));
    let requirements = Requirements::for_existing_reservation(&spec, &record.role);
    let mut only_reservation = open.only_reservation(&open.offered_reservations()[0]);
    assert_eq!(capacity(&only_reservation, &requirements, 9, 0), Ok(1));
    let allocation = only_reservation.take(&requirements, &mut rng()).unwrap();
    assert_eq!(allocation.parts.len(), 3);
    assert_eq!(allocation.parts[1].host_ports, [7005]);
    assert!(only_reservation.take(&requirements, &mut rng()).is_none());
}

#[test]
fn operations_do_not_mix_resource_providers() {
    let mut provided = disk("mount /m", 120.0);
    provided.provider_id = Some("rp".into());
    let (_, operations) = reserve(&resident(spec("/db")), &mut open_offer(plain(vec![provided])));
    let names: Vec<_> = operations
        .iter()
        .map(|operation| operation.r#type.as_str())
        .collect();
    assert_eq!(names, ["RESERVE", "RESERVE", "CREATE", "CREATE"]);
    let mut all = Vec::new();
    OfferedReservation::add(
        &mut all,
        Owner::of(&resources_after(&operations)[0]).unwrap(),
        &resources_after(&operations)[0],
    );
    assert_eq!(all.len(), 1);
}

#[test]
fn labels_of_marathon_are_known() {
    let labels = [
        ("marathon_framework_id", "F"),
        ("marathon_task_id", "db.instance-1"),
    ];
    let mut resource = v1::Resource::scalar("cpus", 1.0);
    resource.reservations = vec![v1::ReservationInfo {
        labels: Some(labels.into_iter().collect()),
        ..v1::ReservationInfo::default()
    }];
    let owner = Owner::of(&resource).unwrap();
    assert_eq!((owner.key.as_str(), owner.id.as_str()), ("db.instance-1", ""));
    assert!(
        !owner.was_reserved_by("F"),
        "resources of Marathon are not removed without a record"
    );
    let imported = reservation("db.instance-1", "");
    assert!(owner.belongs_to(&imported, "F") && !owner.belongs_to(&imported, "F-other"));
}
