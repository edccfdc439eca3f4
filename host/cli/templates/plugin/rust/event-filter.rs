//! Hides the events of some apps.

#![forbid(unsafe_code)]

use serde::Deserialize;
use transom_sdk::events::{Decision, Event, Filter, Query};
use transom_sdk::{ConfigError, Description, Plugin, describe, export_filter};

/// The operator's `[config]`, as described by `config.schema.json`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    hide: Vec<String>,
}

/// The plugin, built from its configuration.
#[derive(Debug)]
pub struct AppFilter(Config);

impl Plugin for AppFilter {
    type Config = Config;

    fn describe() -> Description {
        describe!(include_str!("../config.schema.json"))
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        Ok(Self(config))
    }
}

impl Filter for AppFilter {
    type View = Box<dyn FnMut(&Event) -> Decision>;

    /// Called once for each distinct query. The subscriber receives the text of a rejection.
    fn open(&self, query: Query) -> Result<Self::View, String> {
        if query.expression.is_some() {
            return Err("this filter takes no expressions".to_owned());
        }
        let Config { hide } = self.0.clone();
        Ok(Box::new(move |event| {
            let hidden = event
                .subject
                .as_deref()
                .is_some_and(|app| hide.iter().any(|it| below(app, it)));
            if hidden || !query.wants(&event.kind) {
                Decision::Drop
            } else {
                Decision::Pass
            }
        }))
    }
}

/// Whether an app is the given app or belongs to the given group.
fn below(app: &str, group: &str) -> bool {
    app.strip_prefix(group)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

export_filter!(AppFilter);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_matches_the_group_and_apps_within_it_only() {
        for (app, expected) in [
            ("/load", true),
            ("/load/a", true),
            ("/loader", false),
            ("/", false),
        ] {
            assert_eq!(below(app, "/load"), expected, "{app}");
        }
    }
}
