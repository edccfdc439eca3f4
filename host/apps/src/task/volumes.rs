//! The persistent volumes that an instance asks for.

use transom_scheduler::{DiskKind, PathConstraint, VolumeRequest};

use crate::model::{self, App, PersistentVolume, Volume};

/// The volumes of an app.
pub(super) fn of_app(app: &App) -> Vec<VolumeRequest> {
    let persistent = app.volumes().iter().filter_map(|volume| match volume {
        Volume::Persistent {
            container_path,
            persistent,
            ..
        } => Some(request(container_path, persistent)),
        _ => None,
    });
    persistent.collect()
}

/// The request for a volume at this path.
pub(super) fn request(path: &str, volume: &PersistentVolume) -> VolumeRequest {
    let profile = volume.profile_name.clone();
    VolumeRequest {
        container_path: path.to_owned(),
        size: volume.size,
        disk: match volume.kind {
            model::DiskKind::Root => DiskKind::Root,
            model::DiskKind::Path => DiskKind::Path { profile },
            model::DiskKind::Mount => DiskKind::Mount {
                max_size: volume.max_size,
                profile,
            },
        },
        // The rules have validated each pattern.
        constraints: volume
            .constraints
            .iter()
            .filter_map(|it| constraint(it))
            .collect(),
    }
}

/// `["path", "LIKE", "/mnt/.*"]`
fn constraint(texts: &[String]) -> Option<PathConstraint> {
    let pattern = texts.get(2).map_or("", String::as_str);
    match texts.get(1)?.as_str() {
        "LIKE" => PathConstraint::like(pattern).ok(),
        _ => PathConstraint::unlike(pattern).ok(),
    }
}
