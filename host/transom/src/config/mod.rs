//! What the daemon is told: the settings, section by section, and where they come from.
//!
//! Settings are read from a TOML file and from `TRANSOM_SECTION_KEY` variables ([`load`]); a section that is present
//! switches its job on. Parsing binds nothing and starts nothing: `daemon` turns settings into running parts.

mod file;
mod load;
mod mesos_dns;
mod names;
mod renamed;
mod report;
mod secret;
mod settings;
mod workflow;

pub(crate) use load::{Overrides, admin, load, missing};
pub(crate) use mesos_dns::{Import, read as read_mesos_dns};
pub(crate) use names::WORKFLOW;
pub(crate) use renamed::value as renamed_value;
pub(crate) use report::{rows, toml};
pub(crate) use settings::{
    Apps, CheckRunner, Cluster, Discovery, LogFormat, Oci, OciCredentials, Plugins, Settings, Signatures,
    Store,
};
pub(crate) use workflow::Workflow;
