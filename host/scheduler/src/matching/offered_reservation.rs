//! Reserved resources of instances in offers, recognised by the labels of their reservation.
//!
//! Only the run spec of their instance may use them, so they are kept separate from all other
//! resources.

use transom_cluster::v1;

use crate::Reservation;

const FRAMEWORK_LABEL: &str = "transom_framework_id";
const KEY_LABEL: &str = "transom_reservation";
const ID_LABEL: &str = "transom_reservation_id";

/// The labels of Marathon, whose reservations may have been imported.
const MARATHON_FRAMEWORK_LABEL: &str = "marathon_framework_id";
const MARATHON_KEY_LABEL: &str = "marathon_task_id";

/// The owner of reserved resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) framework: String,
    pub(crate) key: String,
    /// [`Reservation::id`].
    pub(crate) id: String,
}

impl Owner {
    pub(super) fn of(resource: &v1::Resource) -> Option<Self> {
        let labels = resource.reservations.last()?.labels.as_ref()?;
        let text = |key: &str| labels.get(key).map(str::to_owned);
        if let Some(key) = text(KEY_LABEL) {
            return Some(Self {
                framework: text(FRAMEWORK_LABEL)?,
                key,
                id: text(ID_LABEL).unwrap_or_default(),
            });
        }
        Some(Self {
            framework: text(MARATHON_FRAMEWORK_LABEL)?,
            key: text(MARATHON_KEY_LABEL)?,
            id: String::new(),
        })
    }

    pub(crate) fn labels(&self) -> v1::Labels {
        let labels = [
            (FRAMEWORK_LABEL, &self.framework),
            (KEY_LABEL, &self.key),
            (ID_LABEL, &self.id),
        ];
        labels
            .into_iter()
            .map(|(key, value)| (key, value.clone()))
            .collect()
    }

    /// Whether a scheduler of this kind reserved the resources for this framework. If there is no
    /// record of them, they are a remnant.
    pub(crate) fn was_reserved_by(&self, framework: &str) -> bool {
        self.framework == framework && !self.id.is_empty()
    }

    /// Whether the resources belong to the record. The id identifies them even after the framework
    /// was registered under another framework id.
    pub(crate) fn belongs_to(&self, record: &Reservation, framework: &str) -> bool {
        self.key == record.key && self.id == record.id && (!self.id.is_empty() || self.framework == framework)
    }
}

/// The resources of one reservation in one offer, as offered.
#[derive(Clone, Debug)]
pub(crate) struct OfferedReservation {
    pub(crate) owner: Owner,
    /// The resources other than volumes.
    pub(crate) resources: Vec<v1::Resource>,
    pub(crate) volumes: Vec<v1::Resource>,
}

impl OfferedReservation {
    /// Adds a resource to the reservation of its owner.
    pub(super) fn add(reservations: &mut Vec<Self>, owner: Owner, resource: &v1::Resource) {
        let position = reservations
            .iter()
            .position(|reservation| reservation.owner == owner);
        let index = position.unwrap_or_else(|| {
            reservations.push(Self {
                owner,
                resources: Vec::new(),
                volumes: Vec::new(),
            });
            reservations.len() - 1
        });
        let reservation = &mut reservations[index];
        if persistence_id(resource).is_some() {
            reservation.volumes.push(resource.clone());
        } else {
            reservation.resources.push(resource.clone());
        }
    }

    /// Whether all volumes of the record are present.
    pub(crate) fn has_volumes_of(&self, record: &Reservation) -> bool {
        record.volumes.iter().all(|volume| {
            let id = Some(volume.persistence_id.as_str());
            self.volumes.iter().any(|offered| persistence_id(offered) == id)
        })
    }

    /// The operations that destroy the volumes and unreserve all resources.
    pub(crate) fn removal_operations(&self) -> Vec<v1::Operation> {
        let disks = self.volumes.iter().map(without_volume);
        let unreserved: Vec<_> = self.resources.iter().cloned().chain(disks).collect();
        let destroy = group_by_provider(self.volumes.clone()).map(v1::Operation::destroy);
        destroy
            .chain(group_by_provider(unreserved).map(v1::Operation::unreserve))
            .collect()
    }
}

fn persistence_id(resource: &v1::Resource) -> Option<&str> {
    Some(resource.disk.as_ref()?.persistence.as_ref()?.id.as_str())
}

/// The disk on which a volume was created.
fn without_volume(volume: &v1::Resource) -> v1::Resource {
    let source = volume.disk.as_ref().and_then(|disk| disk.source.clone());
    v1::Resource {
        disk: source.map(|source| v1::DiskInfo {
            source: Some(source),
            ..v1::DiskInfo::default()
        }),
        ..volume.clone()
    }
}

/// The operations for a new reservation: RESERVE of all resources and CREATE of the volumes.
/// `disks` contains one disk for each volume of the record, as offered.
pub(crate) fn reserve(
    record: &Reservation,
    owner: &Owner,
    principal: Option<&str>,
    resources: Vec<v1::Resource>,
    disks: Vec<v1::Resource>,
) -> Vec<v1::Operation> {
    let reservation = v1::ReservationInfo {
        r#type: Some("DYNAMIC".to_owned()),
        role: Some(record.role.clone()),
        principal: principal.map(str::to_owned),
        labels: Some(owner.labels()),
    };
    let reserved = |mut resource: v1::Resource| {
        resource.reservations.push(reservation.clone());
        resource
    };
    let disks: Vec<_> = disks.into_iter().map(reserved).collect();
    let volumes = disks.iter().zip(&record.volumes).map(|(disk, volume)| {
        let source = disk.disk.as_ref().and_then(|disk| disk.source.clone());
        let info = v1::DiskInfo {
            persistence: Some(v1::DiskPersistence {
                id: volume.persistence_id.clone(),
                principal: principal.map(str::to_owned),
            }),
            volume: Some(v1::Volume {
                container_path: volume.container_path.clone(),
                mode: Some(v1::VolumeMode::ReadWrite),
                ..v1::Volume::default()
            }),
            source,
        };
        v1::Resource {
            disk: Some(info),
            ..disk.clone()
        }
    });
    let volumes: Vec<_> = volumes.collect();
    let resources: Vec<_> = resources.into_iter().map(reserved).chain(disks).collect();
    group_by_provider(resources)
        .map(v1::Operation::reserve)
        .chain(group_by_provider(volumes).map(v1::Operation::create))
        .collect()
}

/// Groups resources by resource provider, because an operation must not mix providers.
fn group_by_provider(resources: Vec<v1::Resource>) -> impl Iterator<Item = Vec<v1::Resource>> {
    let mut lists: Vec<Vec<v1::Resource>> = Vec::new();
    for resource in resources {
        let has_same_provider = |list: &&mut Vec<v1::Resource>| list[0].provider_id == resource.provider_id;
        match lists.iter_mut().find(has_same_provider) {
            Some(list) => list.push(resource),
            None => lists.push(vec![resource]),
        }
    }
    lists.into_iter()
}
