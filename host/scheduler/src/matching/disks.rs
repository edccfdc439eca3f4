//! Disks for persistent volumes: on which disk of an offer a volume is created.

use std::sync::Arc;

use transom_cluster::v1;

use super::milli_units;
use crate::{DiskKind, VolumeRequest};

/// A disk in an offer that is not on the agent's own file system.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    resource: Arc<v1::Resource>,
    pub(super) role: Arc<str>,
    /// In thousandths of MB.
    remaining: u64,
    /// Whether it is of type `MOUNT`, which is used as a whole.
    is_mount: bool,
}

impl Disk {
    /// `None` for other types of disks, and for volumes.
    pub(super) fn new(resource: &v1::Resource, role: Arc<str>) -> Option<Self> {
        let info = resource.disk.as_ref()?;
        if resource.name != "disk" || info.persistence.is_some() || info.volume.is_some() {
            return None;
        }
        let is_mount = match info.source_type()? {
            "PATH" => false,
            "MOUNT" => true,
            _ => return None,
        };
        Some(Self {
            remaining: milli_units(resource.scalar_value()?),
            resource: Arc::new(resource.clone()),
            role,
            is_mount,
        })
    }

    pub(super) fn offered_resource(&self) -> Arc<v1::Resource> {
        Arc::clone(&self.resource)
    }

    fn can_hold(&self, volume: &VolumeRequest) -> bool {
        let size = milli_units(volume.size as f64);
        let (is_mount, max_size_limit, profile) = match &volume.disk {
            DiskKind::Root => return false,
            DiskKind::Path { profile } => (false, None, profile),
            DiskKind::Mount { max_size, profile } => (true, *max_size, profile),
        };
        let info = self.resource.disk.as_ref();
        let has_profile = info.and_then(v1::DiskInfo::profile);
        let root = info.and_then(v1::DiskInfo::root);
        let mut constraints = volume.constraints.iter();
        self.is_mount == is_mount
            && self.remaining >= size.max(1)
            && max_size_limit
                .is_none_or(|max_size_limit| self.remaining <= milli_units(max_size_limit as f64))
            && profile
                .as_deref()
                .is_none_or(|profile| has_profile == Some(profile))
            && constraints.all(|constraint| root.is_some_and(|root| constraint.allows(root)))
    }

    /// Allocates a volume, the whole disk or a part of it.
    fn take(&mut self, volume: &VolumeRequest) -> v1::Resource {
        let amount = if self.is_mount {
            self.remaining
        } else {
            milli_units(volume.size as f64)
        };
        self.remaining -= amount;
        v1::Resource {
            scalar: Some(v1::Scalar {
                value: amount as f64 / 1000.0,
            }),
            ..v1::Resource::clone(&self.resource)
        }
    }
}

/// Allocates a disk for each volume that is not on the root disk; the entry is `None` for those
/// that are. Returns `None` if a volume finds no disk; `disks` is then invalid.
///
/// Volumes with constraints are placed first, then those with the lowest maximum size, each on the
/// smallest disk that fits. So every volume without constraints gets a mount disk if that is
/// possible.
pub(super) fn take<'a>(
    disks: &mut [Disk],
    volumes: &'a [VolumeRequest],
    usable: impl Fn(&str) -> bool,
) -> Option<Vec<Option<v1::Resource>>> {
    let mut by_constraints: Vec<(usize, &'a VolumeRequest)> = volumes.iter().enumerate().collect();
    by_constraints.sort_by_key(|(_, volume)| (volume.constraints.is_empty(), max_size(volume), volume.size));
    let mut taken = vec![None; volumes.len()];
    for (index, volume) in by_constraints {
        if volume.disk == DiskKind::Root {
            continue;
        }
        let fitting = disks
            .iter_mut()
            .filter(|disk| usable(&disk.role) && disk.can_hold(volume));
        taken[index] = Some(fitting.min_by_key(|disk| disk.remaining)?.take(volume));
    }
    Some(taken)
}

fn max_size(volume: &VolumeRequest) -> u64 {
    match volume.disk {
        DiskKind::Mount {
            max_size: Some(limit),
            ..
        } => limit,
        _ => u64::MAX,
    }
}
