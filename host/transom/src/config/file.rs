//! The configuration file as a source of settings.
//!
//! figment has a TOML provider of its own, which brings a second, older TOML parser into the build.

use std::path::Path;

use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};

/// A TOML file. Reading and parsing errors name the file, and the line where there is one.
pub(super) struct TomlFile<'a>(pub(super) &'a Path);

impl Provider for TomlFile<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::from("TOML file", self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let text = std::fs::read_to_string(self.0).map_err(|error| error.to_string())?;
        let dict: Dict = toml::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Profile::Default.collect(dict))
    }
}
