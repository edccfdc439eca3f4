//! Reads settings. The sources in the order of increasing precedence: the file, the environment (first
//! the specification's variables, then `TRANSOM_` variables), and `--port`. [`DefaultOfSkipSsl`] is a
//! default that depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::aliases::{SpecifiedVariables, WithAliases};
use super::faults::{Faults, error_text};
use super::file::{Readable, Toml, without_syntax_errors};
use super::kubernetes::{self, Inheritance, Variables as KubernetesVariables, WithInstances};
use super::plugin_bindings::Bindings;
use super::settings::{Admin, Settings, SettingsVersion};
use super::skip_ssl::DefaultOfSkipSsl;
use super::variables::Variables;
use crate::Apps;

/// Keys given on the command line, as `section.key` to value.
#[derive(Clone, Debug, Default)]
pub struct Overrides(BTreeMap<String, Value>);

impl Overrides {
    /// Sets `section.key`; a later value replaces an earlier one.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
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
pub fn load(file: Option<&Path>, overrides: Overrides) -> anyhow::Result<(Settings, Figment)> {
    let mut figment = Figment::new();
    let mut readable = Readable::default();
    if let Some(file) = file {
        if !file.is_file() {
            bail!(
                "no configuration at {}: name one with --config, or start with `transom dev`",
                file.display()
            );
        }
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        readable = without_syntax_errors(&text);
        for error in &mut readable.errors {
            *error = format!("{}: {error}", file.display());
        }
        figment = figment.merge(WithInstances {
            source: WithAliases(Toml::Read(file, &readable.text)),
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
    let mut variable_faults = Vec::new();
    if is_enabled {
        match KubernetesVariables::from_environment() {
            Ok(variables) => figment = figment.merge(variables),
            Err(faults) => variable_faults = faults,
        }
    }
    let figment = figment.merge(overriding);
    let inheritance = Inheritance::of(&figment);
    let figment = figment.join(&inheritance);
    // The version is checked first, because newer settings may contain unknown keys.
    if figment.contains("settings_version")
        && let Err(error) = figment.extract_inner::<SettingsVersion>("settings_version")
    {
        bail!("{}", error_text(&error));
    }
    let mut faults = Faults::new(&figment, file, &readable);
    faults.extend_placed(variable_faults);
    let settings = faults.extract().map(|mut settings| {
        inheritance.identify(&mut settings);
        for path in settings.paths() {
            *path = resolve_relative(file, path);
        }
        let instances = settings.kubernetes_instances.values_mut();
        for section in settings.kubernetes.iter_mut().chain(instances) {
            section.default_hostname(std::env::var("HOSTNAME").ok());
        }
        settings
    });
    faults.extend(inheritance.faults);
    if let Some(settings) = &settings {
        faults.extend(kubernetes::problems(settings));
        faults.extend(problems(settings));
    }
    faults.into_result()?;
    let settings = settings.context("the settings cannot be read")?;
    Ok((settings, figment))
}

/// The section `[admin]` of a daemon's configuration alone, for clients of that daemon: they need
/// neither the other sections nor their secrets.
///
/// # Errors
/// As [`load`], for this section.
pub fn admin(file: &Path) -> anyhow::Result<Admin> {
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
pub fn missing(text: &str) -> Vec<String> {
    let figment = Figment::new().merge(WithAliases(Toml::Text(text)));
    let checked = figment
        .extract::<Settings>()
        .map_err(|error| error_text(&error))
        .map(|settings| problems(&settings));
    match checked {
        Ok(problems) => problems,
        Err(error) => error.lines().map(str::to_owned).collect(),
    }
}

/// All values that are out of bounds, and all violations of rules that involve several keys, one line
/// each.
fn problems(settings: &Settings) -> Vec<String> {
    let mut problems = settings.telemetry.problems();
    problems.extend(settings.plugins.out_of_bounds("plugins"));
    problems.extend(settings.plugins.oci.out_of_bounds("plugins.oci"));
    problems.extend(settings.plugins.recording.out_of_bounds("plugins.recording"));
    problems.extend(settings.port_problems());
    problems.extend(settings.shared_ports());
    problems.extend(settings.store.out_of_bounds("store"));
    problems.extend(settings.apps.iter().flat_map(Apps::problems));
    problems.extend(workflow_problems(settings));
    problems.extend(shared_names(settings));
    problems.extend(crate::addresses::problems(settings));
    problems
}

/// The problems of `[workflow]` and of the plugins' names.
fn workflow_problems(settings: &Settings) -> Vec<String> {
    let mut problems = settings.plugins.bindings.problems();
    if let Some(workflow) = &settings.workflow {
        problems.extend(workflow.problems());
        // Another matcher may have another constraint syntax.
        if settings.plugins.bindings.matcher == Bindings::default().matcher {
            problems.extend(workflow.unmatchable_attributes());
        }
    }
    problems
}

/// Names that two frameworks share. Those of Kubernetes instances are compared with each other in
/// [`kubernetes::problems`].
fn shared_names(settings: &Settings) -> Vec<String> {
    let apps = settings.apps.iter().map(|apps| ("apps", &apps.framework_name));
    let workflow = settings.workflow.iter();
    let workflow = workflow.map(|workflow| ("workflow", &workflow.framework_name));
    let kubernetes = settings.kubernetes().into_iter();
    let kubernetes = kubernetes.map(|section| (section.instance.section, &section.framework_name));
    let frameworks: Vec<_> = apps.chain(workflow).chain(kubernetes).collect();
    let mut problems = Vec::new();
    for (index, (section, name)) in frameworks.iter().enumerate() {
        let is_kubernetes = |section: &str| section.starts_with("kubernetes");
        let other = frameworks[..index].iter().find(|(other_section, other)| {
            name == other && !(is_kubernetes(section) && is_kubernetes(other_section))
        });
        if let Some((other, _)) = other {
            problems.push(format!(
                "`{section}.framework_name` is {name:?}, the same as `{other}.framework_name`: each \
                 framework needs a different name"
            ));
        }
    }
    problems
}

/// Resolves a relative path against the directory of its file, not the working directory.
fn resolve_relative(file: Option<&Path>, path: &Path) -> PathBuf {
    match file.and_then(Path::parent) {
        Some(parent) if path.is_relative() => parent.join(path),
        _ => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests;
