//! `[plugins.use]`: which plugins serve which extension point.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_plugin_host::{VALID_NAMES, is_name};

/// `[plugins.use]`: the plugin for each extension point.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bindings {
    /// The matcher, or up to eight in their order. Matchers decide which agents may run a task.
    pub matcher: Chain,
    /// The filter, or up to eight in their order. Filters decide which events a subscriber of the event
    /// stream receives.
    pub filter: Chain,
    /// The bootstrap handler, which decides what a container of the kubernetes service runs first.
    pub bootstrap: String,
    /// The probe of HTTP checks.
    pub http: String,
    /// The probe of TCP checks.
    pub tcp: String,
    /// The probe of checks that run commands.
    pub exec: String,
}

impl Default for Bindings {
    fn default() -> Self {
        Bindings {
            matcher: Chain::One("attributes".into()),
            filter: Chain::One("events".into()),
            bootstrap: "bootstrap".into(),
            http: "check-http".into(),
            tcp: "check-tcp".into(),
            exec: "check-command".into(),
        }
    }
}

impl Bindings {
    /// Problems, one line each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, chain) in [("matcher", &self.matcher), ("filter", &self.filter)] {
            let names = chain.names();
            let count = names.len();
            if !(1..=MAX_CHAIN).contains(&count) {
                problems.push(format!(
                    "`plugins.use.{key}` has {count} plugins; expected 1 to {MAX_CHAIN}"
                ));
            }
            let duplicate = (1..count).find(|index| names[..*index].contains(&names[*index]));
            problems
                .extend(duplicate.map(|index| format!("`plugins.use.{key}` has {:?} twice", names[index])));
        }
        let bindings = [
            ("matcher", self.matcher.names()),
            ("filter", self.filter.names()),
            ("bootstrap", std::slice::from_ref(&self.bootstrap)),
            ("http", std::slice::from_ref(&self.http)),
            ("tcp", std::slice::from_ref(&self.tcp)),
            ("exec", std::slice::from_ref(&self.exec)),
        ];
        for (key, names) in bindings {
            let invalid = names.iter().filter(|name| !is_name(name));
            problems.extend(invalid.map(|name| {
                format!(
                    "`plugins.use.{key}`: {name:?} is not the name of a plugin, which is that of its file \
                     without `.wasm`; expected {VALID_NAMES}"
                )
            }));
        }
        problems
    }
}

/// The maximum number of plugins of one extension point.
const MAX_CHAIN: usize = 8;

/// One plugin, or several in their order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(untagged, expecting = "expected the name of a plugin or a list of names")]
pub enum Chain {
    One(String),
    Several(Vec<String>),
}

impl Chain {
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}
