//! The settings, section by section, their sources, and what they configure.
//!
//! Settings are read from a TOML file and from `TRANSOM_SECTION_KEY` variables ([`load`]); a
//! section enables its service. [`parts`] converts the sections to the configurations of the parts of
//! the daemon. Nothing here binds a port or starts something.
#![forbid(unsafe_code)]

mod addresses;
mod aliases;
mod faults;
mod file;
mod kubernetes;
mod load;
mod log_level;
mod marathon;
mod mesos_dns;
mod note;
pub mod parts;
mod plugin_bindings;
mod port;
mod reference;
mod renamed;
mod report;
mod settings;
mod skip_ssl;
mod variables;

pub use aliases::WORKFLOW_ALIASES;
pub use faults::expected_in_words;
pub use kubernetes::ignored_variables as ignored_kubernetes_variables;
pub use load::{Overrides, admin, load, missing};
pub use log_level::LogLevel;
pub use marathon::{Counterpart, FlagForm, counterpart, parse_flag_value};
pub use mesos_dns::{Import, read as read_mesos_dns};
pub use note::print_note;
pub use reference::{markdown as reference, schema};
pub use renamed::value as renamed_value;
pub use report::{rows, secrets, toml};
pub use settings::{
    ADMIN_PORT, Cluster, Log, LogFormat, Oci, OciCredentials, Plugins, SECTIONS, Settings, Signatures, Store,
    Telemetry,
};
pub use transom_apps::Settings as Apps;
pub use transom_apps::settings::{Feature, GpuScheduling, PlanForm};
pub use transom_discovery::Settings as Discovery;
pub use transom_kubernetes::Settings as Kubernetes;
pub use transom_workflow::Settings as Workflow;
