//! A client's definition, complete or partial, and its conversion to a canonical one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::check_input::{self, CheckInput};
use super::health_check::{self, HealthCheck};
use super::network_input::{self, NetworkInput};
use super::reader::{Reader, nul_characters, read_choice};
use super::readiness::{self, ReadinessCheck};
use super::{
    App, Artifact, Constraint, DefinitionSettings, EnvValue, ExecutorResources, KillSelection, Residency,
    ResourceLimits, SecretDef, UnreachableStrategy, UpgradeStrategy, Volume, app, container_input,
    limits_input, patch,
};
use crate::ids::{GroupId, IdError, SpecId};
use crate::time::Moment;
use transom_web::Problems;

/// The problem of a document with a version and further members; upstream's text.
pub(crate) const VERSION_WITH_OTHERS: &str = "The 'version' field may only be combined with the 'id' field.";

/// Why a document is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Wrong types or limits: "Invalid JSON" in upstream's wording.
    Shape(Problems),
    /// The shapes are valid, but a rule is violated: "Object is not valid".
    Rules(Problems),
}

/// A client's document; fields that it omits are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppUpdate {
    pub(crate) id: Option<SpecId>,
    pub(crate) version: Option<Moment>,
    /// Whether the document has no members but `version` and perhaps `id`.
    pub(crate) is_version_alone: bool,
    /// The patch that this update is merged from when it is applied to a definition.
    pub(super) patch: Option<Value>,
    instances: Option<u32>,
    cmd: Option<String>,
    args: Option<Vec<String>>,
    user: Option<String>,
    env: Option<BTreeMap<String, EnvValue>>,
    secrets: Option<BTreeMap<String, SecretDef>>,
    cpus: Option<f64>,
    mem: Option<f64>,
    disk: Option<f64>,
    gpus: Option<u32>,
    resource_limits: Option<ResourceLimits>,
    executor: Option<String>,
    executor_resources: Option<ExecutorResources>,
    tty: Option<bool>,
    residency: Option<Residency>,
    constraints: Option<Vec<Constraint>>,
    fetch: Option<Vec<Artifact>>,
    network: NetworkInput,
    require_ports: Option<bool>,
    backoff_seconds: Option<u32>,
    backoff_factor: Option<f64>,
    max_launch_delay_seconds: Option<u32>,
    check: Option<CheckInput>,
    health_checks: Option<Vec<HealthCheck>>,
    readiness_checks: Option<Vec<ReadinessCheck>>,
    grace: Option<u32>,
    dependencies: Option<Vec<SpecId>>,
    upgrade_strategy: Option<UpgradeStrategy>,
    labels: Option<BTreeMap<String, String>>,
    accepted_resource_roles: Option<Vec<String>>,
    unreachable_strategy: Option<UnreachableStrategy>,
    kill_selection: Option<KillSelection>,
    role: Option<String>,
    /// Violated rules, which are reported together with those of the whole definition.
    pub(crate) broken: Problems,
}

/// Parses a document and reports all problems of shape together. Relative dependencies are resolved
/// against the id in the document.
pub(crate) fn read(document: &Value) -> Result<AppUpdate, Invalid> {
    read_members(document, None)
}

/// As [`read`], with dependencies that are relative to `base`: the enclosing group, or the path of
/// an app whose id the document omits.
pub(crate) fn read_in(document: &Value, base: &GroupId) -> Result<AppUpdate, Invalid> {
    read_members(document, Some(base))
}

/// Parses a patch. Its objects are parsed by [`patch::merge`], because they may be incomplete.
pub(crate) fn read_patch(patch: &Value, base: Option<&GroupId>) -> Result<AppUpdate, Invalid> {
    let plain = match patch.as_object() {
        Some(members) => {
            let plain = members.iter().filter(|(_, value)| !value.is_object());
            Value::Object(plain.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        None => patch.clone(),
    };
    let mut update = read_members(&plain, base)?;
    update.is_version_alone &= !patch
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .any(Value::is_object);
    update.patch = Some(patch.clone());
    Ok(update)
}

fn read_members(document: &Value, base: Option<&GroupId>) -> Result<AppUpdate, Invalid> {
    let mut shape = Problems::default();
    let Some(members) = document.as_object() else {
        shape.add("/", "error.expected.jsobject");
        return Err(Invalid::Shape(shape));
    };
    let is_other = |(name, value): (&String, &Value)| name != "id" && name != "version" && !value.is_null();
    let mut update = AppUpdate {
        is_version_alone: !members.iter().any(is_other),
        ..AppUpdate::default()
    };
    let mut broken = Problems::default();
    read_fields(
        &mut Reader::new(members, "", &mut shape),
        base,
        &mut update,
        &mut broken,
    );
    update.broken.extend(broken);
    update.broken.extend(nul_characters(document));
    if shape.is_empty() {
        Ok(update)
    } else {
        Err(Invalid::Shape(shape))
    }
}

fn read_fields(
    reader: &mut Reader<'_>,
    base: Option<&GroupId>,
    update: &mut AppUpdate,
    broken: &mut Problems,
) {
    update.id = reader
        .string("id")
        .and_then(|text| read_id(reader, "id", &text, broken));
    update.version = read_version(reader);
    read_program(reader, update);
    read_resources(reader, update);
    update.require_ports = reader.boolean("requirePorts");
    let container = container_input::read(reader, broken);
    update.network = network_input::read(reader, container, broken);
    read_times(reader, update);
    update.constraints = read_constraints(reader);
    update.fetch = read_fetch(reader, broken);
    update.check = reader.nested("check", check_input::read).flatten();
    update.health_checks = reader.list("healthChecks", health_check::read);
    update.readiness_checks = reader.list("readinessChecks", readiness::read);
    let own = update.id.as_ref().map_or_else(GroupId::root, GroupId::from);
    let base = base.cloned().unwrap_or(own);
    update.dependencies = read_dependencies(reader, &base, broken);
    update.upgrade_strategy = reader.nested("upgradeStrategy", read_upgrade).flatten();
    update.labels = reader.texts("labels");
    update.accepted_resource_roles = read_roles(reader);
    update.unreachable_strategy = read_unreachable(reader, broken);
    update.kill_selection = read_kill_selection(reader);
    update.role = read_role(reader);
}

/// Parses `killSelection`.
pub(super) fn read_kill_selection(reader: &mut Reader<'_>) -> Option<KillSelection> {
    let choices = [
        ("YOUNGEST_FIRST", KillSelection::YoungestFirst),
        ("OLDEST_FIRST", KillSelection::OldestFirst),
    ];
    read_choice(reader, "killSelection", &choices)
}

/// Parses `role`.
pub(super) fn read_role(reader: &mut Reader<'_>) -> Option<String> {
    let role = reader.string("role");
    if role.as_deref() == Some("") {
        reader.problem("role", "error.minLength");
    }
    role
}

/// Parses the id of an app or a pod.
pub(super) fn read_id(
    reader: &mut Reader<'_>,
    key: &str,
    text: &str,
    broken: &mut Problems,
) -> Option<SpecId> {
    read_id_in(reader, key, &GroupId::root(), text, broken)
}

/// Parses the id of an app, a pod or a group that is relative to `base`.
fn read_id_in(
    reader: &mut Reader<'_>,
    key: &str,
    base: &GroupId,
    text: &str,
    broken: &mut Problems,
) -> Option<SpecId> {
    match SpecId::parse_in(base, text) {
        Ok(id) => Some(id),
        Err(IdError::Pattern) => {
            reader.problem(key, "error.pattern");
            reader.problem(key, IdError::Pattern.to_string());
            None
        }
        Err(error) => {
            broken.add(reader.path(key), error.to_string());
            None
        }
    }
}

/// Parses `version`.
pub(super) fn read_version(reader: &mut Reader<'_>) -> Option<Moment> {
    let text = reader.string("version")?;
    let moment = text.parse().ok();
    if moment.is_none() {
        reader.problem("version", "error.expected.date");
    }
    moment
}

fn read_program(reader: &mut Reader<'_>, update: &mut AppUpdate) {
    update.cmd = reader.string("cmd");
    if update.cmd.as_deref() == Some("") {
        reader.problem("cmd", "error.minLength");
    }
    update.args = reader.strings("args");
    update.user = reader.string("user");
    update.executor = reader.string("executor");
    update.executor_resources = limits_input::read_executor_resources(reader);
    update.env = limits_input::read_env(reader, "env");
    update.secrets = limits_input::read_secrets(reader);
    update.tty = reader.boolean("tty");
    update.residency = limits_input::read_residency(reader);
}

fn read_resources(reader: &mut Reader<'_>, update: &mut AppUpdate) {
    update.instances = reader.count("instances");
    update.cpus = reader.number("cpus", 0.0);
    update.mem = reader.number("mem", 0.0);
    update.disk = reader.number("disk", 0.0);
    update.gpus = reader.count("gpus");
    update.resource_limits = limits_input::read_limits(reader);
}

fn read_times(reader: &mut Reader<'_>, update: &mut AppUpdate) {
    update.backoff_seconds = reader.count("backoffSeconds");
    update.backoff_factor = reader.number("backoffFactor", 1.0);
    update.max_launch_delay_seconds = reader.count("maxLaunchDelaySeconds");
    update.grace = reader.count("taskKillGracePeriodSeconds");
}

fn read_constraints(reader: &mut Reader<'_>) -> Option<Vec<Constraint>> {
    let items = reader.array("constraints")?;
    let mut constraints = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let key = format!("constraints({index})");
        let Some(fields) = item.as_array() else {
            reader.wrong_type(&key, item, "error.expected.jsarray");
            continue;
        };
        match reader.texts_of(&key, fields) {
            None => {}
            Some(fields) if !(2..=3).contains(&fields.len()) => {
                reader.problem(&key, "Each constraint must have either 2 or 3 fields");
            }
            Some(mut fields) => {
                fields[1] = fields[1].to_uppercase();
                constraints.push(Constraint(fields));
            }
        }
    }
    Some(constraints)
}

fn read_fetch(reader: &mut Reader<'_>, broken: &mut Problems) -> Option<Vec<Artifact>> {
    let fetch = reader.list("fetch", read_artifact);
    let uris = reader.strings("uris");
    if fetch.as_ref().is_some_and(|fetch| !fetch.is_empty())
        && uris.as_ref().is_some_and(|uris| !uris.is_empty())
    {
        broken.add("/uris", "may not be set in conjunction with fetch");
    }
    let uris = uris.map(|uris| uris.into_iter().map(legacy_artifact).collect());
    // One of them may be empty beside the other.
    match fetch {
        Some(fetch) if fetch.is_empty() => uris.or(Some(fetch)),
        fetch => fetch.or(uris),
    }
}

/// Parses one artifact.
pub(super) fn read_artifact(item: &mut Reader<'_>) -> Option<Artifact> {
    let uri = item.string("uri");
    if uri.is_none() && item.raw("uri").is_none() {
        item.problem("uri", "is undefined: every artifact needs its uri");
    }
    Some(Artifact {
        uri: uri?,
        extract: item.boolean("extract").unwrap_or(true),
        executable: item.boolean("executable").unwrap_or(false),
        cache: item.boolean("cache").unwrap_or(false),
        dest_path: item.string("destPath"),
    })
}

/// The deprecated `uris`: archives are extracted.
fn legacy_artifact(uri: String) -> Artifact {
    const ARCHIVE_SUFFIXES: &[&str] = &[
        ".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".gz", ".tgz", ".tbz2", ".txz", ".zip",
    ];
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let extract = ARCHIVE_SUFFIXES.iter().any(|suffix| path.ends_with(suffix));
    Artifact {
        uri,
        extract,
        executable: false,
        cache: false,
        dest_path: None,
    }
}

fn read_dependencies(reader: &mut Reader<'_>, base: &GroupId, broken: &mut Problems) -> Option<Vec<SpecId>> {
    let texts = reader.strings("dependencies")?;
    let mut dependencies = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let key = format!("dependencies({index})");
        dependencies.extend(read_id_in(reader, &key, base, text, broken));
    }
    Some(dependencies)
}

fn read_upgrade(strategy: &mut Reader<'_>) -> Option<UpgradeStrategy> {
    for key in ["maximumOverCapacity", "minimumHealthCapacity"] {
        if strategy.raw(key).is_none() {
            strategy.problem(key, "is undefined: an upgradeStrategy needs both of its values");
        }
    }
    let (over, health) = (
        strategy.fraction("maximumOverCapacity"),
        strategy.fraction("minimumHealthCapacity"),
    );
    Some(UpgradeStrategy {
        maximum_over_capacity: over?,
        minimum_health_capacity: health?,
    })
}

/// Parses `acceptedResourceRoles`.
pub(super) fn read_roles(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let roles = reader.strings("acceptedResourceRoles")?;
    let distinct: std::collections::BTreeSet<&String> = roles.iter().collect();
    if distinct.len() != roles.len() {
        reader.problem("acceptedResourceRoles", "error.uniqueItems");
    }
    Some(roles)
}

/// Parses `unreachableStrategy`.
pub(super) fn read_unreachable(
    reader: &mut Reader<'_>,
    broken: &mut Problems,
) -> Option<UnreachableStrategy> {
    let value = reader.raw("unreachableStrategy")?;
    if value.as_str() == Some("disabled") {
        return Some(UnreachableStrategy::Disabled(app::Disabled::Disabled));
    }
    let (inactive, expunge) = reader.nested("unreachableStrategy", |strategy| {
        (
            strategy.count("inactiveAfterSeconds").unwrap_or(0),
            strategy.count("expungeAfterSeconds").unwrap_or(0),
        )
    })?;
    if inactive > expunge {
        broken.add(
            reader.path("unreachableStrategy"),
            format!(
                "inactiveAfterSeconds ({inactive}) must be less or equal to expungeAfterSeconds, which is {expunge}"
            ),
        );
    }
    Some(UnreachableStrategy::Enabled {
        inactive_after_seconds: inactive,
        expunge_after_seconds: expunge,
    })
}

impl AppUpdate {
    /// A change of the number of instances of an app, and of nothing else.
    pub(crate) fn scaling(id: SpecId, instances: u32) -> Self {
        Self {
            id: Some(id),
            instances: Some(instances),
            ..Self::default()
        }
    }

    /// Keeps the number of instances of a definition that is replaced, unless the update has one.
    pub(crate) fn keep_instances(&mut self, present: u32) {
        self.instances.get_or_insert(present);
    }

    /// The constraints of the update; none when they stay unchanged.
    pub(crate) fn constraints(&self) -> &[Constraint] {
        self.constraints.as_deref().unwrap_or_default()
    }

    /// Fills in missing fields from the current definition, or from the defaults for a new app.
    /// Violated rules are added to [`AppUpdate::broken`].
    pub(crate) fn apply(
        &mut self,
        id: SpecId,
        base: Option<&App>,
        settings: &DefinitionSettings,
        version: Moment,
    ) -> App {
        let mut app = base
            .cloned()
            .unwrap_or_else(|| defaults(id.clone(), &settings.role, version));
        if let (Some(patch), Some(base)) = (self.patch.take(), base) {
            let merged = patch::merge(&patch, base).and_then(|(document, kept)| {
                let update = read_members(&document, Some(&GroupId::from(&base.id)));
                match update {
                    Ok(update) => Ok((update, kept)),
                    Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => Err(problems),
                }
            });
            match merged {
                Ok((update, kept)) => {
                    let broken = std::mem::replace(self, update).broken;
                    self.broken.extend(broken);
                    app = kept;
                }
                Err(problems) => self.broken.extend(problems),
            }
        }
        app.id = id;
        app.version = version;
        std::mem::take(&mut self.network).apply(&mut app, settings);
        if base.is_none() {
            default_strategies(&mut app);
        }
        macro_rules! take {
            ($($from:ident => $to:ident),* $(,)?) => { $(if let Some(value) = self.$from.take() { app.$to = value; })* };
        }
        take!(
            args => args, env => env, secrets => secrets, instances => instances, cpus => cpus, mem => mem, disk => disk, gpus => gpus,
            executor => executor, constraints => constraints, fetch => fetch,
            backoff_seconds => backoff_seconds, backoff_factor => backoff_factor,
            max_launch_delay_seconds => max_launch_delay_seconds, dependencies => dependencies,
            upgrade_strategy => upgrade_strategy, labels => labels, accepted_resource_roles => accepted_resource_roles,
            unreachable_strategy => unreachable_strategy, kill_selection => kill_selection, role => role,
            health_checks => health_checks, readiness_checks => readiness_checks,
        );
        // Upstream ignores `requirePorts` in other networks.
        if let Some(require) = self.require_ports.filter(|_| app.uses_host_network()) {
            app.require_ports = require;
        }
        app.resource_limits = self.resource_limits.or(app.resource_limits);
        app.executor_resources = self.executor_resources.or(app.executor_resources);
        app.tty = self.tty.or(app.tty);
        app.residency = self.residency.or(app.residency);
        app.cmd = self.cmd.take().or(app.cmd);
        app.user = self.user.take().or(app.user);
        app.task_kill_grace_period_seconds = self.grace.or(app.task_kill_grace_period_seconds);
        if let Some(check) = self.check.take() {
            app.check = check_input::resolve(&check, app.port_count(), &mut self.broken);
        }
        let ports = app.port_count();
        health_check::resolve(&mut app.health_checks, ports);
        app
    }
}

/// Sets the defaults for apps with volumes. A persistent volume exists only on its agent, so its
/// instance is not replaced elsewhere. Such volumes, and those of drivers, are not shared by an old
/// and a new instance.
fn default_strategies(app: &mut App) {
    let external = |volume: &Volume| matches!(volume, Volume::External { .. });
    if app.is_resident() {
        app.unreachable_strategy = UnreachableStrategy::Disabled(app::Disabled::Disabled);
    }
    if app.is_resident() || app.volumes().iter().any(external) {
        app.upgrade_strategy = UpgradeStrategy {
            maximum_over_capacity: 0.0,
            minimum_health_capacity: 0.5,
        };
    }
}

fn defaults(id: SpecId, role: &str, version: Moment) -> App {
    App {
        id,
        cmd: None,
        args: Vec::new(),
        user: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        instances: 1,
        cpus: 1.0,
        mem: 128.0,
        disk: 0.0,
        gpus: 0,
        resource_limits: None,
        executor: String::new(),
        executor_resources: None,
        container: None,
        tty: None,
        residency: None,
        constraints: Vec::new(),
        fetch: Vec::new(),
        networks: Vec::new(),
        port_definitions: None,
        require_ports: false,
        backoff_seconds: 1,
        backoff_factor: 1.15,
        max_launch_delay_seconds: 300,
        check: None,
        health_checks: Vec::new(),
        readiness_checks: Vec::new(),
        task_kill_grace_period_seconds: None,
        dependencies: Vec::new(),
        upgrade_strategy: UpgradeStrategy {
            maximum_over_capacity: 1.0,
            minimum_health_capacity: 1.0,
        },
        labels: BTreeMap::new(),
        accepted_resource_roles: Vec::new(),
        unreachable_strategy: UnreachableStrategy::Enabled {
            inactive_after_seconds: 0,
            expunge_after_seconds: 0,
        },
        kill_selection: KillSelection::YoungestFirst,
        role: role.to_owned(),
        version,
        version_info: None,
    }
}
