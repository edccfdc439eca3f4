//! A TOML source of settings.
//!
//! figment's own TOML provider would add a second, older TOML parser to the build.

use std::path::Path;

use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};

/// Settings in TOML. Read and parse errors name the file, and the line if known.
pub(super) enum Toml<'a> {
    File(&'a Path),
    Text(&'a str),
}

impl Provider for Toml<'_> {
    fn metadata(&self) -> Metadata {
        match self {
            Toml::File(path) => Metadata::from("TOML file", *path),
            Toml::Text(_) => Metadata::named("TOML"),
        }
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match self {
            Toml::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
                toml::from_str::<Dict>(&text)
            }
            Toml::Text(text) => toml::from_str(text),
        };
        let dict = dict.map_err(|error| error.to_string())?;
        Ok(Profile::Default.collect(dict))
    }
}
