//! A probe that imports the host's files, which no plugin may. Admission must reject it and name
//! the import.

use transom_sdk::probe::{Answer, Attempt, Outcome, Probe, Request, Step};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_probe};

#[allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated"
)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "wants", generate_all });
}

/// The plugin.
#[derive(Debug)]
pub struct Greedy;

impl Plugin for Greedy {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "wants the host's files",
            config_schema: None,
        }
    }

    fn configure(NoConfig {}: NoConfig) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }
}

impl Probe for Greedy {
    type Attempt = Look;

    fn attempt(&self, _: Request) -> Look {
        Look
    }
}

/// An attempt that reads the host's files.
#[derive(Debug)]
pub struct Look;

impl Attempt for Look {
    fn next(&mut self, _: Option<Answer>) -> Step {
        let found = bindings::greedy::greedy::files::read("/etc/passwd").map_or(0, |content| content.len());
        Step::Done(Outcome::Custom(format!(r#"{{"bytes": {found}}}"#)))
    }
}

export_probe!(Greedy);
