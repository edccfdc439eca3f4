//! An event filter whose behaviour is chosen by tests. The query's expression selects a [`Fault`];
//! the configuration marks and drops events, so that a test sees which version decided.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

use std::hint::black_box;
use std::rc::Rc;

use serde::Deserialize;
use transom_sdk::events::{Decision, Event, Filter, Query, View};
use transom_sdk::{ConfigError, Description, Plugin, export_filter};

/// A fault, by the name in the query's expression or in the configuration's `fault`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Rejects the query.
    Reject,
    /// Traps when it opens the query.
    TrapOpen,
    /// Loops forever when it opens the query.
    LoopOpen,
    /// Traps when it decides.
    Trap,
    /// Loops forever when it decides.
    Loop,
    /// Allocates memory without limit when it decides.
    Allocate,
    /// Returns one decision too few.
    Short,
    /// Returns one decision too many.
    Long,
    /// Returns two hundred thousand decisions of 12 bytes each.
    Huge,
    /// Rejects the query with a text that controls a terminal and looks like a log line of the
    /// host.
    Forge,
    /// Replaces every event by something that is not JSON.
    BadJson,
    /// Rejects the configuration.
    RejectConfig,
    /// Traps when it is configured.
    TrapConfig,
}

/// The configuration that an operator may write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Added to every event's document as `"mark"`. With `None` events pass unchanged.
    mark: Option<String>,
    /// A secret that is added in place of `mark`.
    token: Option<String>,
    /// Kinds that are dropped.
    drop: Vec<String>,
    /// Kinds of events on which it traps when it decides.
    trap_on: Vec<String>,
    /// Size in bytes of the document that replaces every event.
    grow: usize,
    /// A fault for every query, whatever its expression.
    fault: Fault,
}

/// The plugin.
#[derive(Debug)]
pub struct FaultyEvents(Rc<Config>);

impl Plugin for FaultyEvents {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "misbehaves on demand",
            config_schema: Some(r#"{"type": "object", "properties": {"token": {"writeOnly": true}}}"#),
        }
    }

    #[allow(clippy::panic, reason = "a trap is what was asked for")]
    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        match config.fault {
            Fault::RejectConfig => Err(vec![ConfigError::at("/fault", "rejected, as asked")]),
            Fault::TrapConfig => panic!("trapped, as asked"),
            _ => Ok(Self(Rc::new(config))),
        }
    }
}

impl Filter for FaultyEvents {
    type View = FaultyView;

    #[allow(clippy::panic, reason = "a trap is what was asked for")]
    fn open(&self, query: Query) -> Result<FaultyView, String> {
        let fault = match (self.0.fault, query.expression) {
            (Fault::None, Some(expression)) => {
                serde_json::from_value(expression.into()).map_err(|error| error.to_string())?
            }
            (fault, _) => fault,
        };
        match fault {
            Fault::Reject => Err("rejected, as asked".to_owned()),
            Fault::Forge => Err("no\r\n2026 INFO all is well \u{1b}[2J\0".to_owned()),
            Fault::TrapOpen => panic!("trapped, as asked"),
            Fault::LoopOpen => loop_forever(),
            fault => Ok(FaultyView {
                config: Rc::clone(&self.0),
                event_types: query.event_types,
                fault,
            }),
        }
    }
}

/// An open query.
#[derive(Debug)]
pub struct FaultyView {
    config: Rc<Config>,
    event_types: Vec<String>,
    fault: Fault,
}

impl View for FaultyView {
    #[allow(clippy::panic, reason = "a trap is what was asked for")]
    fn decide(&mut self, events: &[Event]) -> Vec<Decision> {
        let mut decisions: Vec<_> = events.iter().map(|event| self.decide_one(event)).collect();
        match self.fault {
            Fault::Trap => panic!("trapped, as asked"),
            Fault::Loop => loop_forever(),
            Fault::Allocate => loop {
                decisions.extend(std::iter::repeat_n(Decision::Drop, 64 * 1024));
            },
            Fault::Short => drop(decisions.pop()),
            Fault::Long => decisions.push(Decision::Pass),
            Fault::Huge => decisions.extend(std::iter::repeat_n(Decision::Drop, 200_000)),
            _ => {}
        }
        decisions
    }
}

impl FaultyView {
    fn decide_one(&self, event: &Event) -> Decision {
        let wanted = self.event_types.is_empty() || self.event_types.contains(&event.kind);
        if !wanted || self.config.drop.contains(&event.kind) {
            return Decision::Drop;
        }
        assert!(!self.config.trap_on.contains(&event.kind), "trapped, as asked");
        if self.config.grow > 0 {
            return Decision::Replace(format!(r#"{{"grown":"{}"}}"#, "x".repeat(self.config.grow)));
        }
        if self.fault == Fault::BadJson {
            return Decision::Replace("{not json".to_owned());
        }
        match self.config.token.as_ref().or(self.config.mark.as_ref()) {
            Some(mark) => Decision::Replace(with_mark(&event.body, mark)),
            None => Decision::Pass,
        }
    }
}

/// The document with an additional member at its end; the other members are unchanged.
fn with_mark(body: &str, mark: &str) -> String {
    let Some(members) = body.trim_end().strip_suffix('}') else {
        return body.to_owned();
    };
    let comma = if members.trim_end().ends_with('{') {
        ""
    } else {
        ","
    };
    format!("{members}{comma}\"mark\":{mark:?}}}")
}

fn loop_forever() -> ! {
    loop {
        black_box(());
    }
}

export_filter!(FaultyEvents);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{event, plugin, query};

    use super::*;

    fn view(config: &str, expression: Option<&str>) -> Result<FaultyView, String> {
        let query = Query {
            expression: expression.map(str::to_owned),
            ..query(&[])
        };
        plugin::<FaultyEvents>(config).unwrap().open(query)
    }

    #[test]
    fn filter_marks_and_drops_events() {
        let mut view = view(r#"{"mark": "v1", "drop": ["b"]}"#, None).unwrap();
        let decisions = view.decide(&[event(1, "a"), event(2, "b")]);
        let body = r#"{"eventType":"a","sequence":1,"mark":"v1"}"#.to_owned();
        assert_eq!(decisions, [Decision::Replace(body), Decision::Drop]);
        assert_eq!(with_mark("{}", "x"), r#"{"mark":"x"}"#);
    }

    #[test]
    #[should_panic(expected = "as asked")]
    fn filter_traps_on_a_configured_kind() {
        let mut view = view(r#"{"trap_on": ["b"]}"#, None).unwrap();
        assert_eq!(view.decide(&[event(1, "a")]), [Decision::Pass]);
        view.decide(&[event(1, "a"), event(2, "b")]);
    }

    #[test]
    fn faults_are_selected_by_expression_or_configuration() {
        let events = [event(1, "a"), event(2, "b")];
        assert_eq!(view("{}", Some("short")).unwrap().decide(&events).len(), 1);
        assert_eq!(
            view(r#"{"fault": "long"}"#, None).unwrap().decide(&events).len(),
            3
        );
        assert!(view("{}", Some("reject")).unwrap_err().contains("as asked"));
        assert!(view(r#"{"fault": "reject"}"#, None).is_err());
        assert!(view("{}", Some("nonsense")).unwrap_err().contains("nonsense"));
        assert_eq!(
            plugin::<FaultyEvents>(r#"{"fault": "reject-config"}"#).unwrap_err()[0].pointer,
            "/fault"
        );
    }
}
