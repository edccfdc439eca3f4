//! `[kubernetes.NAME]`: several instances with separate settings.
//!
//! An instance inherits every key of `[kubernetes]` that it does not set, except for the framework's
//! name and the volumes. [`WithInstances`] moves the tables of instances out of `[kubernetes]`, where
//! they would be unknown keys, into [`SECTION`]; [`Inheritance`] then adds the inherited keys. Both
//! keep the source of each value.

mod collisions;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use figment::error::Kind;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use transom_kubernetes::settings::Instance;

use crate::{Kubernetes, Settings};

/// The section to which the tables of instances are moved. It does not occur in any source.
pub(crate) const SECTION: &str = "kubernetes_instances";
/// The section from which instances inherit.
const SHARED: &str = "kubernetes";
/// The maximum length of a name, which is that of a DNS label.
const MAX_NAME: usize = 63;

/// The keys of the port. They have no effect in an instance without its own port.
const PORT_KEYS: &[&str] = &[
    "hostname",
    "trusted_networks",
    "allowed_hosts",
    "allowed_origins",
    "tls_certificate",
    "tls_key",
    "ssl_crt_base64",
    "ssl_key_base64",
    "auth_username",
    "auth_password",
    "auth_read_only_username",
    "auth_read_only_password",
];

/// Groups of keys: an instance that sets one key of a group inherits none of the group.
const INHERITANCE_GROUPS: &[&[&str]] = &[
    &["tls_certificate", "tls_key", "ssl_crt_base64", "ssl_key_base64"],
    &["auth_username", "auth_password"],
    &["auth_read_only_username", "auth_read_only_password"],
];

/// The keys of `[kubernetes]` and their aliases.
static KEYS: LazyLock<&'static [&'static str]> = LazyLock::new(|| {
    let unknown = Dict::from([(String::new(), Value::from(0))]);
    match Value::from(unknown).deserialize::<Kubernetes>() {
        Err(error) => match error.kind {
            Kind::UnknownField(_, known) => known,
            _ => &[],
        },
        Ok(_) => &[],
    }
});

/// Whether `[kubernetes]` has a key or a table with this name.
pub(crate) fn is_key(name: &str) -> bool {
    KEYS.contains(&name)
}

/// A source of settings whose tables of instances are moved to [`SECTION`].
pub(crate) struct WithInstances<'a, P> {
    pub source: P,
    /// The names of instances whose keys may be written as `NAME_KEY`, which is their form in
    /// environment variables.
    pub names: &'a BTreeSet<String>,
}

impl<P: Provider> Provider for WithInstances<'_, P> {
    fn metadata(&self) -> Metadata {
        self.source.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut data = self.source.data()?;
        for settings in data.values_mut() {
            if settings.contains_key(SECTION) {
                return Err(Kind::UnknownField(SECTION.to_owned(), &[SHARED]).into());
            }
            move_instances(settings, self.names);
        }
        Ok(data)
    }
}

fn move_instances(settings: &mut Dict, names: &BTreeSet<String>) {
    let Some(Value::Dict(_, section)) = settings.get_mut(SHARED) else {
        return;
    };
    let mut instances = Dict::new();
    for (key, value) in std::mem::take(section) {
        match (value, key_of_instance(&key, names)) {
            (Value::Dict(tag, keys), _) if !KEYS.contains(&key.as_str()) => {
                instances.insert(key, Value::Dict(tag, merge_role_alias(keys)));
            }
            (value, Some((name, key))) => {
                let keys = instances
                    .entry(name.to_owned())
                    .or_insert_with(|| Dict::new().into());
                if let Value::Dict(_, keys) = keys {
                    keys.insert(key.to_owned(), value);
                }
            }
            (value, None) => {
                section.insert(key, value);
            }
        }
    }
    *section = merge_role_alias(std::mem::take(section));
    if !instances.is_empty() {
        settings.insert(SECTION.to_owned(), instances.into());
    }
}

/// Splits `NAME_KEY` into the name of an instance and its key, unless it is a key of `[kubernetes]`. A
/// hyphen of the name is written as an underscore.
fn key_of_instance<'a>(key: &'a str, names: &'a BTreeSet<String>) -> Option<(&'a str, &'a str)> {
    if KEYS.contains(&key) {
        return None;
    }
    let candidates = names.iter().filter_map(|name| {
        let rest = key.strip_prefix(&name.replace('-', "_"))?.strip_prefix('_')?;
        KEYS.contains(&rest).then_some((name.as_str(), rest))
    });
    candidates.max_by_key(|(name, _)| name.len())
}

/// Renames the alias of `role` to the key, because a key that is set by both names is an error.
fn merge_role_alias(mut keys: Dict) -> Dict {
    if let Some(role) = keys.remove("framework_role") {
        keys.entry("role".to_owned()).or_insert(role);
    }
    keys
}

/// The names of the instances.
pub(crate) fn names(figment: &Figment) -> BTreeSet<String> {
    table(figment, SECTION).into_keys().collect()
}

fn table(figment: &Figment, key: &str) -> Dict {
    match figment.find_value(key) {
        Ok(Value::Dict(_, table)) => table,
        _ => Dict::new(),
    }
}

/// The keys that the instances inherit: a source of settings for [`SECTION`] with a lower precedence
/// than their own keys.
#[derive(Default)]
pub(crate) struct Inheritance {
    sections: Dict,
    /// The instances with their own port.
    ports: BTreeSet<String>,
    /// Faults, one line each.
    pub faults: Vec<String>,
}

impl Provider for Inheritance {
    /// The name of the source for values without another one.
    fn metadata(&self) -> Metadata {
        Metadata::named("default of an instance")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut settings = Dict::new();
        if !self.sections.is_empty() {
            settings.insert(SECTION.to_owned(), self.sections.clone().into());
        }
        Ok(Profile::Default.collect(settings))
    }
}

impl Inheritance {
    /// Computes the inherited keys. All sources must be merged before.
    pub(crate) fn of(figment: &Figment) -> Self {
        let mut inheritance = Self::default();
        let shared = table(figment, SHARED);
        let instances = table(figment, SECTION);
        if !instances.is_empty() && shared.contains_key("framework_name") {
            inheritance.faults.push(
                "`kubernetes.framework_name` (FRAMEWORK_NAME) is set and there are named instances, which do not share a \
                 name; set it in their sections"
                    .to_owned(),
            );
        }
        for (name, keys) in instances {
            if let Some(fault) = name_fault(&name) {
                inheritance.faults.push(fault);
            }
            if let Value::Dict(_, own) = keys {
                inheritance.add(name, &own, &shared);
            }
        }
        inheritance
    }

    fn add(&mut self, name: String, own: &Dict, shared: &Dict) {
        let has_port = own.contains_key("port") || own.contains_key("listener");
        if has_port {
            let advertised = |section: &Dict| text_at(section, "bootstrap.advertise");
            if advertised(own).is_none() && advertised(shared).is_some_and(|text| text.contains(':')) {
                self.faults.push(format!(
                    "`kubernetes.bootstrap.advertise` has a port, and [kubernetes.{name}] has a port of its own; set \
                     `kubernetes.{name}.bootstrap.advertise`"
                ));
            }
            let number = |section: &Dict| {
                let value = Value::from(section.clone()).find("bootstrap.port");
                value
                    .and_then(|value| value.deserialize::<u16>().ok())
                    .unwrap_or_default()
            };
            if number(shared) != 0 && Value::from(own.clone()).find("bootstrap.port").is_none() {
                self.faults.push(format!(
                    "`kubernetes.bootstrap.port` is that of the port of [kubernetes], and [kubernetes.{name}] has a \
                     port of its own; set `kubernetes.{name}.bootstrap.port`, or 0"
                ));
            }
        } else {
            let ineffective = PORT_KEYS.iter().filter(|key| own.contains_key(**key));
            self.faults.extend(ineffective.map(|key| {
                format!(
                    "`kubernetes.{name}.{key}` has no effect, because the instance is served on the port of [kubernetes]; \
                     set it there, or set `kubernetes.{name}.port`"
                )
            }));
        }
        let mut inherited = shared.clone();
        for &group in INHERITANCE_GROUPS {
            if group.iter().any(|key| own.contains_key(*key)) {
                inherited.retain(|key, _| !group.contains(&key.as_str()));
            }
        }
        let defaults = Kubernetes::default();
        for (key, default) in [
            ("volume_orch_server", defaults.volume_orch_server),
            ("volume_ds", defaults.volume_ds),
        ] {
            let shared = text_at(shared, key).unwrap_or(default);
            inherited.insert(key.to_owned(), instance_volume(&shared, &name).into());
        }
        inherited.insert("framework_name".to_owned(), name.clone().into());
        self.sections.insert(name.clone(), inherited.into());
        if has_port {
            self.ports.insert(name);
        }
    }

    /// Sets the section's name and the path of each instance.
    pub(crate) fn identify(&self, settings: &mut Settings) {
        for (name, section) in &mut settings.kubernetes_instances {
            let own_port = self.ports.contains(name);
            section.instance = Instance {
                // The name is leaked, because services and ports use it as long as the process runs.
                section: Box::leak(format!("{SHARED}.{name}").into_boxed_str()),
                path: if own_port {
                    String::new()
                } else {
                    format!("/{name}")
                },
            };
        }
    }
}

fn text_at(section: &Dict, key: &str) -> Option<String> {
    let value = Value::from(section.clone()).find(key)?;
    value.into_string()
}

/// The error text for a name that no instance can have.
fn name_fault(name: &str) -> Option<String> {
    let is_allowed = |char: char| matches!(char, 'a'..='z' | '0'..='9' | '-');
    let is_invalid = name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_allowed);
    is_invalid.then(|| {
        format!(
            "[kubernetes.{name}] is not a table of [kubernetes], and {name:?} is not a valid \
             instance name; expected 1 to {MAX_NAME} lowercase letters, digits and hyphens"
        )
    })
}

/// The default volume of an instance: the instance's name is appended to a path as its last part, and
/// to the name of a volume after a hyphen.
fn instance_volume(shared: &str, name: &str) -> String {
    let base = shared.trim_end_matches('/');
    let separator = if shared.contains('/') { '/' } else { '-' };
    let end = &shared[base.len()..];
    format!("{base}{separator}{name}{end}")
}

impl Settings {
    /// The instances of the Kubernetes service: the named ones, or else `[kubernetes]` itself.
    pub fn kubernetes(&self) -> Vec<&Kubernetes> {
        if self.kubernetes_instances.is_empty() {
            self.kubernetes.iter().collect()
        } else {
            self.kubernetes_instances.values().collect()
        }
    }

    /// The sections whose ports are opened: those of instances with their own port, and `[kubernetes]`
    /// if its port serves an instance.
    pub fn kubernetes_ports(&self) -> Vec<&Kubernetes> {
        let instances = self.kubernetes();
        let shared = instances.iter().any(|section| !section.instance.path.is_empty());
        let own = instances
            .into_iter()
            .filter(|section| section.instance.path.is_empty());
        let shared = self.kubernetes.iter().filter(|_| shared);
        shared.chain(own).collect()
    }
}

/// The problems of all instances, one line each. A problem that all instances inherit is listed once.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let Some(shared) = &settings.kubernetes else {
        return Vec::new();
    };
    let mut problems = shared.problems();
    let instances: Vec<_> = settings.kubernetes_instances.values().collect();
    if instances.is_empty() {
        return problems;
    }
    let problems_by_instance: Vec<_> = instances.iter().map(|section| section.problems()).collect();
    problems.retain(|problem| {
        problems_by_instance
            .iter()
            .all(|problems| problems.contains(problem))
    });
    let common = problems.clone();
    for (section, instance_problems) in instances.iter().zip(problems_by_instance) {
        let key = format!("`{}.", section.instance.section);
        let own = instance_problems
            .into_iter()
            .filter(|problem| !common.contains(problem));
        problems.extend(own.map(|problem| problem.replace("`kubernetes.", &key)));
    }
    problems.extend(collisions::find(settings));
    problems
}

#[cfg(test)]
mod tests;
