//! Reads settings. The sources in the order of increasing precedence: the file, the environment (first
//! the specification's variables, then `TRANSOM_` variables), and `--port`. [`DefaultOfSkipSsl`] is a
//! default that depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::bail;
use figment::error::{Actual, Kind};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::aliases::{SpecifiedVariables, WithAliases};
use super::file::Toml;
use super::kubernetes::{self, INSTANCES, Inheritance, Variables as KubernetesVariables, WithInstances};
use super::plugin_bindings::Bindings;
use super::settings::{Admin, Settings, SettingsVersion};
use super::skip_ssl::DefaultOfSkipSsl;
use super::variables::Variables;
use super::{limits, marathon, reference, renamed, report};

/// The bounds of a lease's duration.
const LEASE_SECONDS: RangeInclusive<u64> = 1..=600;

/// The bounds of the times in `plugins.oci`.
const OCI_SECONDS: RangeInclusive<u64> = 1..=86_400;

/// The bounds of `plugins.compile_timeout_seconds`.
const COMPILE_SECONDS: RangeInclusive<u64> = 1..=3600;

/// The bounds of `plugins.compile_memory_bytes`: 256 MiB to 64 GiB.
const COMPILE_BYTES: RangeInclusive<u64> = 256 << 20..=64 << 30;

/// The bounds of `plugins.recording.sample_percent`.
const SAMPLE_PERCENT: RangeInclusive<u64> = 1..=100;

/// The bounds of `plugins.recording.max_bytes`: at most one TiB.
const RECORDED_BYTES: RangeInclusive<u64> = transom_plugin_host::Recording::MIN_SIZE..=1 << 40;

/// The bounds of `plugins.recording.max_age_seconds`: a minute to a year.
const RECORDED_SECONDS: RangeInclusive<u64> = 60..=31_536_000;

/// Keys given on the command line, as `section.key` to value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides(BTreeMap<String, Value>);

impl Overrides {
    pub(crate) fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }
}

impl Provider for Overrides {
    fn metadata(&self) -> Metadata {
        Metadata::named("the command line")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = Dict::new();
        for (key, value) in &self.0 {
            if let Value::Dict(_, nested) = figment::util::nest(key, value.clone()) {
                for (section, entry) in nested {
                    merge(&mut dict, section, entry);
                }
            }
        }
        Ok(Profile::Default.collect(dict))
    }
}

fn merge(into: &mut Dict, key: String, value: Value) {
    match (into.get_mut(&key), value) {
        (Some(Value::Dict(_, existing)), Value::Dict(_, added)) => {
            for (key, value) in added {
                merge(existing, key, value);
            }
        }
        (_, value) => {
            into.insert(key, value);
        }
    }
}

/// Reads `file` (`None`: only the environment) and returns the settings with the source of each value.
///
/// # Errors
/// A missing or invalid file, an unknown key (with the most similar known one), or a value of the wrong
/// type. Each error names its place.
pub(crate) fn load(file: Option<&Path>, overrides: Overrides) -> anyhow::Result<(Settings, Figment)> {
    let mut figment = Figment::new();
    if let Some(file) = file {
        if !file.is_file() {
            bail!(
                "no configuration at {}: name one with --config, or start with `transom dev`",
                file.display()
            );
        }
        figment = figment.merge(WithInstances {
            source: WithAliases(Toml::File(file)),
            names: &BTreeSet::new(),
        });
    }
    let names = kubernetes::instance_names(&figment);
    let specified = Figment::from(SpecifiedVariables::from_environment());
    let overriding = Figment::from(WithInstances {
        source: WithAliases(Variables::of_environment()),
        names: &names,
    })
    .merge(overrides);
    let default = DefaultOfSkipSsl::of(&specified, [&figment, &overriding]);
    let mut figment = figment.merge(default).merge(specified);
    // The variables of part B configure the service; they do not enable it.
    let is_enabled = figment.contains("kubernetes") || overriding.contains("kubernetes");
    let mut faults = if is_enabled {
        match KubernetesVariables::from_environment() {
            Ok(variables) => {
                figment = figment.merge(variables);
                Vec::new()
            }
            Err(faults) => faults,
        }
    } else {
        Vec::new()
    };
    let figment = figment.merge(overriding);
    let inheritance = Inheritance::of(&figment);
    faults.extend(inheritance.faults.iter().cloned());
    let figment = figment.join(&inheritance);
    // The version is checked first, because newer settings may contain unknown keys.
    if figment.contains("settings_version")
        && let Err(error) = figment.extract_inner::<SettingsVersion>("settings_version")
    {
        bail!("{}", error_text(&error));
    }
    match figment.extract::<Settings>() {
        Ok(mut settings) => {
            inheritance.identify(&mut settings);
            for path in settings.paths() {
                *path = resolve_relative(file, path);
            }
            let instances = settings.kubernetes_instances.values_mut();
            for section in settings.kubernetes.iter_mut().chain(instances) {
                section.default_hostname(std::env::var("HOSTNAME").ok());
            }
            faults.extend(kubernetes::problems(&settings));
            faults.extend(settings.telemetry.problems());
            if !faults.is_empty() {
                bail!("{}", faults.join("\n"));
            }
            check(&settings)?;
            Ok((settings, figment))
        }
        Err(error) if faults.is_empty() => bail!("{}", error_text(&error)),
        Err(error) => bail!("{}\n{}", faults.join("\n"), error_text(&error)),
    }
}

/// The section `[admin]` of a daemon's configuration alone, for clients of that daemon: they need
/// neither the other sections nor their secrets.
///
/// # Errors
/// As [`load`], for this section.
pub(crate) fn admin(file: &Path) -> anyhow::Result<Admin> {
    if !file.is_file() {
        bail!(
            "no configuration at {}: name the daemon's with --config",
            file.display()
        );
    }
    let figment = Figment::new()
        .merge(Toml::File(file))
        .merge(Variables::of_environment());
    // This also fails for invalid TOML, which the full extraction reports.
    if figment.find_value("admin").is_err() {
        return match figment.extract::<Dict>() {
            Ok(_) => Ok(Admin::default()),
            Err(error) => bail!("{}", error_text(&error)),
        };
    }
    match figment.extract_inner::<Admin>("admin") {
        Ok(mut section) => {
            for path in section.paths() {
                *path = resolve_relative(Some(file), path);
            }
            Ok(section)
        }
        Err(error) => bail!("{}", error_text(&error)),
    }
}

/// The settings that `serve` requires and `text` lacks, one line each.
pub(crate) fn missing(text: &str) -> Vec<String> {
    let figment = Figment::new().merge(WithAliases(Toml::Text(text)));
    let checked = figment
        .extract::<Settings>()
        .map_err(|error| error_text(&error))
        .and_then(|settings| check(&settings).map_err(|error| error.to_string()));
    match checked {
        Ok(()) => Vec::new(),
        Err(gaps) => gaps.lines().map(str::to_owned).collect(),
    }
}

/// Checks the rules that involve several keys.
fn check(settings: &Settings) -> anyhow::Result<()> {
    refuse_plugin_limits(settings)?;
    refuse_recording(settings)?;
    refuse_ports(settings)?;
    refuse_lease(settings)?;
    refuse_prefix(settings)?;
    refuse_network_name(settings)?;
    refuse_limits(settings)?;
    refuse_quic(settings)?;
    refuse_missing_keys(settings)
}

/// Rejects a port that this build cannot serve.
fn refuse_quic(settings: &Settings) -> anyhow::Result<()> {
    let quic_port = settings.discovery.as_ref().and_then(|section| section.quic_port);
    if quic_port.is_some() && !transom_discovery::config::check::HAS_QUIC {
        bail!(
            "`discovery.quic_port` is set, but this build has no DNS over QUIC: build it with `--features quic`"
        );
    }
    Ok(())
}

/// Checks credentials, certificates and exposure of the ports.
fn refuse_ports(settings: &Settings) -> anyhow::Result<()> {
    let problems = settings.port_problems();
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"));
}

/// Checks the duration of leases: a very short lease expires after any delay, and a very long one
/// delays a failover.
fn refuse_lease(settings: &Settings) -> anyhow::Result<()> {
    let seconds = settings.store.lease_seconds;
    if !LEASE_SECONDS.contains(&seconds) {
        let (min, max) = (LEASE_SECONDS.start(), LEASE_SECONDS.end());
        bail!("`store.lease_seconds` is {seconds}: it must be between {min} and {max} seconds");
    }
    Ok(())
}

/// Reports all missing keys of `[workflow]` together, and names that two frameworks share.
fn refuse_missing_keys(settings: &Settings) -> anyhow::Result<()> {
    let mut gaps = settings.plugins.bindings.problems();
    if let Some(workflow) = &settings.workflow {
        gaps.extend(workflow.gaps());
        // Another matcher may have another constraint syntax.
        if settings.plugins.bindings.matcher == Bindings::default().matcher {
            gaps.extend(workflow.unmatchable_attributes());
        }
    }
    let apps = settings.apps.iter().map(|apps| ("apps", &apps.framework_name));
    let workflow = settings.workflow.iter();
    let workflow = workflow.map(|workflow| ("workflow", &workflow.framework_name));
    let kubernetes = settings.kubernetes().into_iter();
    let kubernetes = kubernetes.map(|section| (section.instance.section, &section.framework_name));
    let frameworks: Vec<_> = apps.chain(workflow).chain(kubernetes).collect();
    for (index, (section, name)) in frameworks.iter().enumerate() {
        let other = frameworks[..index].iter().find(|(_, other)| name == other);
        if let Some((other, _)) = other {
            gaps.push(format!(
                "`{section}.framework_name` is {name:?}, the same as `{other}.framework_name`: each \
                 framework needs a different name"
            ));
        }
    }
    if gaps.is_empty() {
        return Ok(());
    }
    bail!("{}", gaps.join("\n"));
}

/// Rejects limits of `[apps]` and `[workflow]` that are out of bounds.
fn refuse_limits(settings: &Settings) -> anyhow::Result<()> {
    let mut problems: Vec<String> = settings.apps.iter().flat_map(limits::problems).collect();
    problems.extend(settings.workflow.iter().filter_map(limits::workflow_problem));
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"));
}

/// Checks that names of variables with the prefix are valid.
fn refuse_prefix(settings: &Settings) -> anyhow::Result<()> {
    let prefix = settings.apps.as_ref().map(|apps| apps.env_vars_prefix.as_str());
    let prefix = prefix.unwrap_or_default();
    let starts_well = !prefix.starts_with(|char: char| char.is_ascii_digit());
    if starts_well
        && prefix
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
    {
        return Ok(());
    }
    bail!(
        "`apps.env_vars_prefix` is {prefix:?}; expected letters, digits and underscores, not beginning with a digit, as in \
         \"MARATHON_\""
    );
}

/// Checks the network's name as in definitions, except that capital letters are accepted, as Marathon
/// accepts them in this setting.
fn refuse_network_name(settings: &Settings) -> anyhow::Result<()> {
    let name = settings
        .apps
        .as_ref()
        .map(|apps| apps.default_network_name.as_str());
    let name = name.unwrap_or_default();
    let is_alphanumeric = |char: char| char.is_ascii_alphanumeric();
    let is_allowed = |char: char| is_alphanumeric(char) || matches!(char, '-' | '_');
    let valid =
        name.starts_with(is_alphanumeric) && name.ends_with(is_alphanumeric) && name.chars().all(is_allowed);
    if name.is_empty() || valid && name.len() <= 63 {
        return Ok(());
    }
    bail!(
        "`apps.default_network_name` is {name:?}; expected at most 63 letters and digits, with hyphens and \
         underscores only inside, as in \"dcos\""
    );
}

/// Checks the limits of fetching and compiling, and the interval of registry requests.
fn refuse_plugin_limits(settings: &Settings) -> anyhow::Result<()> {
    let seconds = settings.plugins.compile_timeout_seconds;
    if !COMPILE_SECONDS.contains(&seconds) {
        let (min, max) = (COMPILE_SECONDS.start(), COMPILE_SECONDS.end());
        bail!("`plugins.compile_timeout_seconds` is {seconds}: it must be between {min} and {max} seconds");
    }
    let bytes = settings.plugins.compile_memory_bytes;
    if !COMPILE_BYTES.contains(&bytes) {
        let (min, max) = (COMPILE_BYTES.start(), COMPILE_BYTES.end());
        bail!("`plugins.compile_memory_bytes` is {bytes}: it must be between {min} and {max} bytes");
    }
    let oci = &settings.plugins.oci;
    for (key, seconds) in [
        ("refresh_seconds", oci.refresh_seconds),
        ("timeout_seconds", oci.timeout_seconds),
    ] {
        if !OCI_SECONDS.contains(&seconds) {
            let (min, max) = (OCI_SECONDS.start(), OCI_SECONDS.end());
            bail!("`plugins.oci.{key}` is {seconds}: it must be between {min} and {max} seconds");
        }
    }
    Ok(())
}

/// Checks the bounds of the call log's size, age and sample.
fn refuse_recording(settings: &Settings) -> anyhow::Result<()> {
    let recording = &settings.plugins.recording;
    for (key, value, bounds) in [
        ("sample_percent", recording.sample_percent, SAMPLE_PERCENT),
        ("max_bytes", recording.max_bytes, RECORDED_BYTES),
        ("max_age_seconds", recording.max_age_seconds, RECORDED_SECONDS),
    ] {
        if !bounds.contains(&value) {
            let (min, max) = (bounds.start(), bounds.end());
            bail!("`plugins.recording.{key}` is {value}: it must be between {min} and {max}");
        }
    }
    Ok(())
}

/// Resolves a relative path against the directory of its file, not the working directory.
fn resolve_relative(file: Option<&Path>, path: &Path) -> PathBuf {
    match file.and_then(Path::parent) {
        Some(parent) if path.is_relative() => parent.join(path),
        _ => path.to_path_buf(),
    }
}

/// Rewrites figment's errors: place, value, and expected value.
pub(super) fn error_text(error: &figment::Error) -> String {
    error
        .clone()
        .into_iter()
        .map(|error| error_line(&error))
        .collect::<Vec<_>>()
        .join("\n")
}

fn error_line(error: &figment::Error) -> String {
    let location = match &error.metadata {
        Some(metadata) => match &metadata.source {
            Some(source) => format!(" (in {source})"),
            None => format!(" (from {})", metadata.name),
        },
        None => String::new(),
    };
    let path = report::display_key(&error.path.join(".")).into_owned();
    match &error.kind {
        Kind::UnknownField(name, known) => {
            let known: Vec<_> = known.iter().copied().filter(|key| *key != INSTANCES).collect();
            // The path ends with the key if figment knows it.
            let key = match error.path.last() {
                None => name.clone(),
                Some(last) if last == name => path,
                Some(_) => format!("{path}.{name}"),
            };
            let hint = match (renamed::key(&key), marathon::reason(&key), nearest(name, &known)) {
                (Some(new), _, _) => format!("it is now `{new}`"),
                (None, Some(reason), _) => format!("Marathon's flag has no counterpart: {reason}"),
                (None, None, Some(candidate)) => format!("did you mean `{candidate}`?"),
                (None, None, None) => format!("known keys: {}", known.join(", ")),
            };
            format!("unknown key `{key}`{location}; {hint}")
        }
        Kind::InvalidType(Actual::Map, expected) if is_kubernetes_key(&error.path) => {
            format!(
                "`{path}` is a table{location}; expected {expected}, because no instance can have the name of a key of [kubernetes]"
            )
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected)
            if reference::is_secret(&error.path) =>
        {
            format!("`{path}` is {}{location}; expected {expected}", type_name(found))
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("`{path}` is {found}{location}; expected {expected}")
        }
        Kind::UnknownVariant(found, known) => {
            let known = known.join(", ");
            let hint = renamed::value(&path, found);
            let hint = hint.map_or_else(String::new, |new| format!("; `{found}` is now `{new}`"));
            format!("`{path}` is `{found}`{location}; expected one of {known}{hint}")
        }
        kind if path.is_empty() => format!("{kind}{location}"),
        kind => format!("`{path}`: {kind}{location}"),
    }
}

/// The type of a value that must not be shown.
fn type_name(value: &Actual) -> &'static str {
    match value {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "an integer",
        Actual::Float(_) => "a number",
        Actual::Str(_) | Actual::Char(_) => "another text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "a value of another type",
    }
}

fn is_kubernetes_key(path: &[String]) -> bool {
    matches!(path, [section, _] if section == "kubernetes")
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests;
