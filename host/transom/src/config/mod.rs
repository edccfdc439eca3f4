//! The settings, section by section, and their sources.
//!
//! Settings are read from a TOML file and from `TRANSOM_SECTION_KEY` variables ([`load`]); a
//! section enables its service. Parsing binds and starts nothing: `daemon` starts services from
//! settings.

mod aliases;
mod faults;
mod file;
mod kubernetes;
mod limits;
mod load;
mod log_level;
mod marathon;
mod mesos_dns;
mod plugin_bindings;
mod port;
mod reference;
mod renamed;
mod report;
mod schema;
mod settings;
mod skip_ssl;
mod variables;
mod workflow;

pub(crate) use aliases::WORKFLOW_ALIASES;
pub(crate) use faults::expected_in_words;
pub(crate) use kubernetes::{
    Kubernetes, Label as KubernetesLabel, ignored_variables as ignored_kubernetes_variables,
};
pub(crate) use load::{Overrides, admin, load, missing};
pub(crate) use log_level::LogLevel;
pub(crate) use marathon::{Counterpart, FlagForm, counterpart, parse_flag_value};
pub(crate) use mesos_dns::{Import, read as read_mesos_dns};
pub(crate) use reference::{markdown as reference, schema};
pub(crate) use renamed::value as renamed_value;
pub(crate) use report::{rows, secrets, toml};
#[cfg(test)]
pub(crate) use settings::SECTIONS;
pub(crate) use settings::{
    ADMIN_PORT, Apps, CheckRunner, Cluster, Discovery, Feature, GpuScheduling, Log, LogFormat, Maintenance,
    Oci, OciCredentials, OnDeadline, PlanFormat, Plugins, Settings, Signatures, Store, Telemetry,
};
pub(crate) use workflow::Workflow;
