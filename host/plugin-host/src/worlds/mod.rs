//! The types of the four worlds' calls and answers, independent of the engine. [`crate`] re-exports
//! those that callers use.

pub(crate) mod about;
pub(crate) mod agent_mirror;
pub mod bootstrap;
pub(crate) mod events;
pub(crate) mod matcher;
pub mod probe;
pub(crate) mod step;

/// The world of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorldName {
    CheckProbe,
    AttributeMatcher,
    BootstrapHandler,
    EventFilter,
}

impl WorldName {
    const ALL: &'static [WorldName] = &[
        WorldName::CheckProbe,
        WorldName::AttributeMatcher,
        WorldName::BootstrapHandler,
        WorldName::EventFilter,
    ];

    pub(crate) fn short(self) -> &'static str {
        match self {
            WorldName::CheckProbe => "check-probe",
            WorldName::AttributeMatcher => "attribute-matcher",
            WorldName::BootstrapHandler => "bootstrap-handler",
            WorldName::EventFilter => "event-filter",
        }
    }

    fn full(self) -> &'static str {
        match self {
            WorldName::CheckProbe => "transom:probe/check-probe@0.1.0",
            WorldName::AttributeMatcher => "transom:matcher/attribute-matcher@0.1.0",
            WorldName::BootstrapHandler => "transom:bootstrap/bootstrap-handler@0.1.0",
            WorldName::EventFilter => "transom:events/event-filter@0.1.0",
        }
    }

    /// The version of the world's interface.
    pub(crate) fn interface_version(self) -> &'static str {
        self.full().split_once('@').map_or("", |(_, version)| version)
    }

    pub(crate) fn parse(text: &str) -> Option<WorldName> {
        WorldName::ALL
            .iter()
            .copied()
            .find(|world| text == world.short() || text == world.full())
    }
}
