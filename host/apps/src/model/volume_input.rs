//! Parses the volumes of a container.

use super::reader::Reader;
use super::reader::read_choice;
use super::{
    CsiAccess, CsiCapability, CsiOptions, CsiProvider, CsiVolume, DiskKind, DvdiVolume, ExternalVolume,
    PersistentVolume, ReadMode, Volume,
};

/// The access modes of the CSI specification.
const ACCESS_MODES: &[(&str, &str)] = &[
    ("SINGLE_NODE_WRITER", "SINGLE_NODE_WRITER"),
    ("SINGLE_NODE_READER_ONLY", "SINGLE_NODE_READER_ONLY"),
    ("MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY"),
    ("MULTI_NODE_SINGLE_WRITER", "MULTI_NODE_SINGLE_WRITER"),
    ("MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"),
];

/// Parses `volumes`.
pub(super) fn read(container: &mut Reader<'_>) -> Option<Vec<Volume>> {
    container.list("volumes", read_volume)
}

fn read_volume(volume: &mut Reader<'_>) -> Option<Volume> {
    let container_path = volume.required("containerPath", "a volume needs its path in the container");
    if volume.raw("secret").is_some() {
        let secret = volume.required("secret", "a secret volume needs its secret");
        return Some(Volume::Secret {
            container_path: container_path?,
            secret: secret?,
        });
    }
    let mode = read_mode(volume);
    if volume.raw("persistent").is_some() {
        let persistent = volume.nested("persistent", read_persistent).flatten();
        return Some(Volume::Persistent {
            container_path: container_path?,
            mode: mode?,
            persistent: persistent?,
        });
    }
    if volume.raw("external").is_some() {
        let external = volume.nested("external", read_external).flatten();
        return Some(Volume::External {
            container_path: container_path?,
            mode: mode?,
            external: external?,
        });
    }
    let host_path = volume.required(
        "hostPath",
        "expected one of hostPath, persistent, external or secret",
    );
    Some(Volume::Host {
        container_path: container_path?,
        mode: mode?,
        host_path: host_path?,
    })
}

fn read_mode(volume: &mut Reader<'_>) -> Option<ReadMode> {
    let modes = [("RO", ReadMode::ReadOnly), ("RW", ReadMode::ReadWrite)];
    required_choice(volume, "mode", &modes, "expected RO or RW")
}

fn required_choice<T: Copy>(
    reader: &mut Reader<'_>,
    key: &str,
    choices: &[(&str, T)],
    why: &str,
) -> Option<T> {
    if reader.raw(key).is_none() {
        reader.problem(key, format!("is undefined: {why}"));
    }
    read_choice(reader, key, choices)
}

/// Parses `persistent` of a volume.
pub(super) fn read_persistent(volume: &mut Reader<'_>) -> Option<PersistentVolume> {
    let kinds = [
        ("root", DiskKind::Root),
        ("path", DiskKind::Path),
        ("mount", DiskKind::Mount),
    ];
    let kind = read_choice(volume, "type", &kinds).unwrap_or(DiskKind::Root);
    if volume.raw("size").is_none() {
        volume.problem(
            "size",
            "is undefined: a persistent volume needs its size in megabytes",
        );
    }
    let size = volume.integer("size");
    Some(PersistentVolume {
        kind,
        max_size: volume.integer("maxSize"),
        profile_name: volume.string("profileName"),
        constraints: read_constraints(volume),
        size: size?,
    })
}

fn read_constraints(volume: &mut Reader<'_>) -> Vec<Vec<String>> {
    let mut constraints = Vec::new();
    for (index, item) in volume.array("constraints").into_iter().flatten().enumerate() {
        let fields: Option<Vec<String>> = item.as_array().and_then(|fields| {
            let texts = fields.iter().map(|field| field.as_str().map(str::to_owned));
            texts.collect()
        });
        match fields {
            None => volume.problem(&format!("constraints({index})"), "error.expected.jsarray"),
            Some(fields) => constraints.push(fields),
        }
    }
    constraints
}

fn read_external(volume: &mut Reader<'_>) -> Option<ExternalVolume> {
    if volume.raw("provider").and_then(|provider| provider.as_str()) == Some("csi") {
        return read_csi(volume).map(ExternalVolume::Csi);
    }
    Some(ExternalVolume::Dvdi(DvdiVolume {
        size: volume.integer("size"),
        name: volume.string("name"),
        provider: volume.string("provider"),
        options: volume.texts("options").unwrap_or_default(),
        shared: volume.boolean("shared").unwrap_or(false),
    }))
}

fn read_csi(volume: &mut Reader<'_>) -> Option<CsiVolume> {
    let name = volume.required("name", "a CSI volume needs its id");
    if volume.raw("options").is_none() {
        volume.problem(
            "options",
            "is undefined: a CSI volume needs its plugin and capability",
        );
    }
    let options = volume.nested("options", |options| {
        let plugin_name = options.required("pluginName", "a CSI volume needs its plugin");
        if options.raw("capability").is_none() {
            options.problem("capability", "is undefined: a CSI volume needs its capability");
        }
        let capability = options.nested("capability", read_capability).flatten();
        let (stage, publish) = (
            options.texts("nodeStageSecret"),
            options.texts("nodePublishSecret"),
        );
        let context = options.texts("volumeContext");
        Some(CsiOptions {
            plugin_name: plugin_name?,
            capability: capability?,
            node_stage_secret: stage.unwrap_or_default(),
            node_publish_secret: publish.unwrap_or_default(),
            volume_context: context.unwrap_or_default(),
        })
    });
    Some(CsiVolume {
        name: name?,
        provider: CsiProvider::Csi,
        options: options.flatten()?,
    })
}

fn read_capability(capability: &mut Reader<'_>) -> Option<CsiCapability> {
    let why = "expected an access mode of the CSI specification, such as SINGLE_NODE_WRITER";
    let access_mode = required_choice(capability, "accessMode", ACCESS_MODES, why);
    let types = [("block", CsiAccess::Block), ("mount", CsiAccess::Mount)];
    let why = "expected block or mount";
    let access_type = required_choice(capability, "accessType", &types, why);
    Some(CsiCapability {
        fs_type: capability.string("fsType"),
        mount_flags: capability.strings("mountFlags").unwrap_or_default(),
        access_mode: access_mode?.to_owned(),
        access_type: access_type?,
    })
}
