//! Rules of volumes.

use super::network_rules::repeats;
use super::{
    App, Container, CsiVolume, DefinitionSettings, DiskKind, DvdiVolume, Engine, ExternalVolume,
    PersistentVolume, ReadMode, Volume,
};
use crate::settings::Feature;
use transom_web::Problems;

/// The option that names the driver of a volume.
pub(crate) const DRIVER: &str = "dvdi/driver";

/// Adds the problems of the container's volumes.
pub(super) fn check(
    app: &App,
    container: &Container,
    settings: &DefinitionSettings,
    problems: &mut Problems,
) {
    let names = container.volumes.iter().filter_map(|volume| match volume {
        Volume::External { external, .. } => external.name(),
        _ => None,
    });
    if repeats(names) {
        problems.add("/container/volumes", "Volume names must be unique");
    }
    for (index, volume) in container.volumes.iter().enumerate() {
        let path = format!("/container/volumes({index})");
        match volume {
            Volume::Host { .. } => {}
            Volume::Secret { secret, .. } => {
                settings.require(Feature::Secrets, &path, problems);
                if !app.secrets.contains_key(secret) {
                    problems.add(path, "volume.secret must refer to an existing secret");
                }
            }
            Volume::Persistent {
                container_path,
                mode,
                persistent,
            } => {
                relative(container_path, &path, problems);
                writable(*mode, &path, problems);
                persistent_volume(persistent, &format!("{path}/persistent"), problems);
            }
            Volume::External { external, .. } => {
                settings.require(Feature::ExternalVolumes, &path, problems);
                match external {
                    ExternalVolume::Csi(csi) => csi_volume(app, csi, container.engine, &path, problems),
                    ExternalVolume::Dvdi(dvdi) => {
                        dvdi_volume(dvdi, &format!("{path}/external"), problems);
                        dvdi_use(app, container.engine, volume, dvdi, &path, problems);
                    }
                }
            }
        }
    }
}

/// Adds the problems of a path that must be a single name below the sandbox.
fn relative(container_path: &str, path: &str, problems: &mut Problems) {
    no_dots(container_path, path, problems);
    if container_path.contains('/') {
        problems.add(format!("{path}/containerPath"), "value must not contain \"/\"");
    }
}

fn no_dots(container_path: &str, path: &str, problems: &mut Problems) {
    if matches!(container_path, "." | "..") {
        problems.add(format!("{path}/containerPath"), "must not be one of (., ..)");
    }
}

fn writable(mode: ReadMode, path: &str, problems: &mut Problems) {
    if mode != ReadMode::ReadWrite {
        problems.add(format!("{path}/mode"), "must be equal to RW");
    }
}

/// Adds the problems of a persistent volume.
pub(super) fn persistent_volume(volume: &PersistentVolume, path: &str, problems: &mut Problems) {
    if volume.size == 0 {
        problems.add(format!("{path}/size"), "got 0, expected more than 0");
    }
    if volume.kind == DiskKind::Root && !volume.constraints.is_empty() {
        problems.add(path, "Constraints on root volumes are not supported");
    }
    if volume.kind != DiskKind::Mount && volume.max_size.is_some() {
        problems.add(path, "Only mount volumes can have maxSize");
    }
    if volume.max_size.is_some_and(|max_size| max_size <= volume.size) {
        problems.add(path, "Max size must be larger than size");
    }
    for (index, constraint) in volume.constraints.iter().enumerate() {
        let fields: Vec<&str> = constraint.iter().map(String::as_str).collect();
        let wrong = match fields.as_slice() {
            [] => "Missing field and operator".to_owned(),
            ["path", "LIKE" | "UNLIKE", pattern] if is_pattern(pattern) => continue,
            ["path", "LIKE" | "UNLIKE", _] => "Invalid regular expression".to_owned(),
            ["path", "UNIQUE" | "CLUSTER" | "GROUP_BY" | "MAX_PER" | "IS", _] => {
                "Operator must be one of LIKE, UNLIKE".to_owned()
            }
            ["path", operator, _] => format!("unknown constraint operator {operator}"),
            fields => format!("Unsupported constraint {}", fields.join(",")),
        };
        problems.add(format!("{path}/constraints({index})"), wrong);
    }
}

/// Whether a text is a regular expression. A short one may stand for a large automaton
/// (`(a{1000}){1000}`), so its size is limited, too.
fn is_pattern(text: &str) -> bool {
    const MAX_BYTES: usize = 64 << 10;
    let mut pattern = regex_lite::RegexBuilder::new(text);
    pattern.size_limit(MAX_BYTES).build().is_ok()
}

fn dvdi_volume(volume: &DvdiVolume, path: &str, problems: &mut Problems) {
    let label = |key: &str, value: Option<&str>, problems: &mut Problems| match value {
        None => problems.add(format!("{path}/{key}"), "not defined"),
        Some(value) if !is_label(value) => {
            let text = format!("must fully match regular expression '{LABEL}'");
            problems.add(format!("{path}/{key}"), text);
        }
        Some(_) => {}
    };
    label("name", volume.name.as_deref(), problems);
    label("provider", volume.provider.as_deref(), problems);
    if volume
        .provider
        .as_deref()
        .is_some_and(|provider| is_label(provider) && provider != "dvdi")
    {
        problems.add(format!("{path}/provider"), "must be one of dvdi, csi");
    }
    let driver = volume.options.get(DRIVER).map(String::as_str);
    label(&format!("options(\"{DRIVER}\")"), driver, problems);
    if driver == Some("rexray") {
        rexray_options(volume, path, problems);
    }
    for (index, key) in volume.options.keys().enumerate() {
        let mut parts = key.split('/');
        let named = parts.next().is_some_and(is_label) && parts.next().is_none_or(is_label);
        if !named || parts.next().is_some() {
            problems.add(
                format!("{path}/options/keys({index})"),
                format!("must be a name or a prefix, a slash and a name, as in {DRIVER}"),
            );
        }
    }
}

/// Adds the problems of the options that the driver `rexray` knows.
fn rexray_options(volume: &DvdiVolume, path: &str, problems: &mut Problems) {
    type Rule = (&'static str, fn(&str) -> bool, &'static str);
    const RULES: &[Rule] = &[
        ("dvdi/volumetype", is_label, "a name"),
        ("dvdi/newfstype", is_label, "a name"),
        ("dvdi/iops", is_natural, "a whole number of 1 or more"),
        ("dvdi/overwritefs", is_boolean, "true or false"),
    ];
    for &(option, is_valid, expected) in RULES {
        let value = volume.options.get(option).map(|value| value.trim());
        if let Some(value) = value.filter(|value| !is_valid(value)) {
            problems.add(
                format!("{path}/options/\"{option}\""),
                format!("got {value:?}, expected {expected}"),
            );
        }
    }
}

fn is_natural(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number > 0)
}

fn is_boolean(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

/// The pattern of names of volumes and drivers.
const LABEL: &str = "^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$";

fn is_label(text: &str) -> bool {
    let outer = |char: char| char.is_ascii_alphanumeric();
    text.starts_with(outer)
        && text.ends_with(outer)
        && text.chars().all(|char| outer(char) || "._-".contains(char))
}

/// Adds the problems of a volume that its containerizer or driver does not support.
fn dvdi_use(
    app: &App,
    engine: Engine,
    volume: &Volume,
    dvdi: &DvdiVolume,
    path: &str,
    problems: &mut Problems,
) {
    if app.instances > 1 && !dvdi.shared {
        let text = format!(
            "Number of instances is limited to 1 when declaring DVDI volumes in app [{}]",
            app.id
        );
        problems.add("/", text);
    }
    no_dots(volume.container_path(), path, problems);
    if let Volume::External { mode, .. } = volume
        && engine == Engine::Mesos
    {
        writable(*mode, path, problems);
    }
    if engine == Engine::Docker {
        if dvdi.options.keys().any(|key| key != DRIVER) {
            problems.add(
                format!("{path}/external/options"),
                format!("must only contain {DRIVER}"),
            );
        }
        if dvdi.size.is_some() {
            let path = format!("{path}/external/size");
            problems.add(path, "must be undefined for Docker containers");
        }
    }
}

fn csi_volume(app: &App, volume: &CsiVolume, engine: Engine, path: &str, problems: &mut Problems) {
    if engine == Engine::Docker {
        problems.add(
            path,
            "CSI volumes are not supported with the Docker containerizer",
        );
    }
    let options = &volume.options;
    for (key, secrets) in [
        ("nodeStageSecret", &options.node_stage_secret),
        ("nodePublishSecret", &options.node_publish_secret),
    ] {
        for (name, secret) in secrets {
            if !app.secrets.contains_key(secret) {
                problems.add(
                    format!("{path}/external/options/{key}/{name}"),
                    "references an undefined secret",
                );
            }
        }
    }
}
