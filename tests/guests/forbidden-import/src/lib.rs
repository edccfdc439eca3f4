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
pub struct ForbiddenImport;

impl Plugin for ForbiddenImport {
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

impl Probe for ForbiddenImport {
    type Attempt = ReadFile;

    fn attempt(&self, _: Request) -> ReadFile {
        ReadFile
    }
}

/// An attempt that reads the host's files.
#[derive(Debug)]
pub struct ReadFile;

impl Attempt for ReadFile {
    fn next(&mut self, _: Option<Answer>) -> Step {
        let found = bindings::test::forbidden::files::read("/etc/passwd").map_or(0, |content| content.len());
        Step::Done(Outcome::Custom(format!(r#"{{"bytes": {found}}}"#)))
    }
}

export_probe!(ForbiddenImport);
