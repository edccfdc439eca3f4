//! Filters the event stream: subscribers receive the kinds that they name with `event_type`, or
//! every kind that is not opt-in. Of these they receive the events that match their `filter`, an
//! expression in CEL (see [`cel`]).
//!
//! Names match exactly. An unknown name matches nothing and is not an error, because a client may be newer or
//! older than the daemon. A `filter` does not select kinds that are opt-in: a client receives these only if
//! it names them, so that a filter such as `event.appId == "/a"` is as safe for old clients as no filter.

pub mod cel;

use std::collections::BTreeSet;
use std::rc::Rc;

use cel::{Input, Program};
use serde::Deserialize;
use transom_sdk::events::{Decision, Event, Filter, Query, View};
use transom_sdk::{ConfigError, Description, Plugin, export_filter};

/// The operator's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Kinds that are sent only to subscribers that name them; a star at the end matches any
    /// suffix.
    opt_in: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            opt_in: [
                "check_result_changed_event",
                "deployment_canary_held_event",
                "event_too_large_event",
                "plugin_*",
                "scheduler_*",
            ]
            .map(str::to_owned)
            .into(),
        }
    }
}

/// The plugin.
#[derive(Debug)]
pub struct Events {
    opt_in: Rc<[Pattern]>,
}

impl Plugin for Events {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "event stream: the kinds that a subscriber names, or all that are not opt-in, and a filter in CEL",
            config_schema: Some(include_str!("config.schema.json")),
        }
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut patterns = Vec::new();
        let mut errors = Vec::new();
        for (index, text) in config.opt_in.iter().enumerate() {
            match Pattern::parse(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(message) => errors.push(ConfigError::at(format!("/opt-in/{index}"), message)),
            }
        }
        if errors.is_empty() {
            Ok(Self {
                opt_in: patterns.into(),
            })
        } else {
            Err(errors)
        }
    }
}

/// A pattern for kinds: a name or a prefix.
#[derive(Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Exactly this kind.
    Kind(String),
    /// All kinds with this prefix.
    Prefix(String),
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, prefix) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        if name.is_empty() || name.contains('*') {
            return Err(format!(
                "expected the name of a kind, with a star at most at its end; found {text:?}"
            ));
        }
        Ok(if prefix {
            Self::Prefix(name.to_owned())
        } else {
            Self::Kind(name.to_owned())
        })
    }

    fn matches(&self, kind: &str) -> bool {
        match self {
            Self::Kind(name) => name == kind,
            Self::Prefix(beginning) => kind.starts_with(beginning.as_str()),
        }
    }
}

impl Filter for Events {
    type View = Wanted;

    fn open(&self, query: Query) -> Result<Wanted, String> {
        // An empty parameter means no filter.
        let expression = query.expression.filter(|text| !text.trim().is_empty());
        let program = match expression {
            Some(text) => Some(Program::compile(&text).map_err(|rejection| format!("filter, {rejection}"))?),
            None => None,
        };
        let kinds = if query.event_types.is_empty() {
            Kinds::AllBut(Rc::clone(&self.opt_in))
        } else {
            Kinds::Only(query.event_types.into_iter().collect())
        };
        Ok(Wanted { kinds, program })
    }
}

/// The events of one query.
#[derive(Debug)]
pub struct Wanted {
    kinds: Kinds,
    program: Option<Program>,
}

/// The kinds of one query.
#[derive(Debug)]
enum Kinds {
    /// The kinds that the query names.
    Only(BTreeSet<String>),
    /// Every kind that is not opt-in.
    AllBut(Rc<[Pattern]>),
}

impl Kinds {
    fn have(&self, kind: &str) -> bool {
        match self {
            Self::Only(kinds) => kinds.contains(kind),
            Self::AllBut(opt_in) => !opt_in.iter().any(|pattern| pattern.matches(kind)),
        }
    }
}

impl Wanted {
    fn has(&self, event: &Event) -> bool {
        let matches = |program: &Program| {
            program.matches(Input {
                kind: &event.kind,
                subject: event.subject.as_deref(),
                body: &event.body,
            })
        };
        self.kinds.have(&event.kind) && self.program.as_ref().is_none_or(matches)
    }
}

impl View for Wanted {
    fn decide(&mut self, events: &[Event]) -> Vec<Decision> {
        events
            .iter()
            .map(|event| {
                if self.has(event) {
                    Decision::Pass
                } else {
                    Decision::Drop
                }
            })
            .collect()
    }
}

export_filter!(Events);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{event, plugin, query};

    use super::*;

    const KINDS: [&str; 7] = [
        "status_update_event",
        "api_post_event",
        "check_result_changed_event",
        "plugin_refused_event",
        "plugin_admitted_event",
        "scheduler_registered_event",
        "event_too_large_event",
    ];

    fn seen(config: &str, event_types: &[&str]) -> Vec<&'static str> {
        let mut view = plugin::<Events>(config)
            .unwrap()
            .open(query(event_types))
            .unwrap();
        let events: Vec<_> = KINDS
            .iter()
            .zip(1..)
            .map(|(kind, sequence)| event(sequence, kind))
            .collect();
        let decisions = view.decide(&events);
        assert_eq!(decisions.len(), events.len());
        KINDS
            .into_iter()
            .zip(decisions)
            .filter(|(_, decision)| *decision == Decision::Pass)
            .map(|(kind, _)| kind)
            .collect()
    }

    #[test]
    fn query_receives_its_kinds() {
        let all = &["status_update_event", "api_post_event"];
        let cases: [(&str, &[&str], &[&str]); 10] = [
            ("{}", &[], all),
            ("{}", &["api_post_event"], &["api_post_event"]),
            (
                "{}",
                &["api_post_event", "status_update_event", "api_post_event"],
                &["status_update_event", "api_post_event"],
            ),
            ("{}", &["plugin_refused_event"], &["plugin_refused_event"]),
            (
                "{}",
                &["check_result_changed_event"],
                &["check_result_changed_event"],
            ),
            ("{}", &["event_too_large_event"], &["event_too_large_event"]),
            ("{}", &["no_such_event"], &[]),
            // Names match exactly: no part of a name, no other case and no pattern matches.
            ("{}", &["api_post", "API_POST_EVENT", "plugin_*", ""], &[]),
            (r#"{"opt-in": []}"#, &[], &KINDS),
            (r#"{"opt-in": ["s*", "event_*"]}"#, &[], &KINDS[1..5]),
        ];
        for (config, event_types, expected) in cases {
            assert_eq!(seen(config, event_types), expected, "{config} {event_types:?}");
        }
    }

    fn filtered(event_types: &[&str], expression: &str) -> Result<Wanted, String> {
        let query = Query {
            expression: Some(expression.to_owned()),
            ..query(event_types)
        };
        plugin::<Events>("{}").unwrap().open(query)
    }

    #[test]
    fn filter_and_kinds_must_both_match() {
        let posts = |app: &str| Event {
            body: format!(r#"{{"eventType": "api_post_event", "appId": "{app}"}}"#),
            subject: Some(app.to_owned()),
            ..event(1, "api_post_event")
        };
        let events = [
            posts("/a"),
            posts("/b"),
            event(2, "status_update_event"),
            event(3, "plugin_refused_event"),
        ];
        let cases: [(&[&str], &str, [bool; 4]); 8] = [
            (&[], "event.appId == '/a'", [true, false, false, false]),
            (&[], "subject == '/a'", [true, false, false, false]),
            (&["status_update_event"], "event.appId == '/a'", [false; 4]),
            (&["api_post_event"], "true", [true, true, false, false]),
            // Opt-in kinds have to be named, whatever the filter is.
            (&[], "true", [true, true, true, false]),
            (&[], "kind == 'plugin_refused_event'", [false; 4]),
            (&["plugin_refused_event"], "true", [false, false, false, true]),
            // An empty parameter means no filter.
            (&[], " \n", [true, true, true, false]),
        ];
        for (event_types, expression, expected) in cases {
            let decisions = filtered(event_types, expression).unwrap().decide(&events);
            let passed: Vec<_> = decisions.iter().map(|it| *it == Decision::Pass).collect();
            assert_eq!(passed, expected, "{event_types:?} {expression}");
        }
    }

    #[test]
    fn invalid_expression_is_rejected_with_its_position() {
        let rejection = filtered(&["api_post_event"], "kind == 'a' &&\n  appId == '/a'").unwrap_err();
        assert_eq!(
            rejection,
            "filter, line 2, column 3: unknown variable `appId`, expected one of: event, kind, subject"
        );
    }

    #[test]
    fn invalid_pattern_is_rejected_with_its_pointer() {
        for (text, pointer) in [
            ("", "/opt-in/1"),
            ("*", "/opt-in/1"),
            ("a*b", "/opt-in/1"),
            ("**", "/opt-in/1"),
        ] {
            let errors = plugin::<Events>(&format!(r#"{{"opt-in": ["plugin_*", "{text}"]}}"#)).unwrap_err();
            assert_eq!(errors[0].pointer, pointer, "{text:?}");
        }
    }
}
