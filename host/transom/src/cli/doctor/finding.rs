//! The result of a check.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum State {
    Ok,
    Warning,
    Error,
    /// The check does not apply, or a check that it depends on has failed.
    Skipped,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Finding {
    pub(in crate::cli) check: &'static str,
    pub(in crate::cli) state: State,
    pub(in crate::cli) message: String,
    /// What the operator can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) advice: Option<String>,
    /// Set for an error whose only cause is an unavailable server, file or port.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::cli) unavailable: bool,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Ok, message.into(), None)
    }

    pub(super) fn warning(
        check: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, State::Warning, message.into(), Some(advice.into()))
    }

    pub(super) fn error(check: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, State::Error, message.into(), Some(advice.into()))
    }

    /// `message`: the reason why the check was skipped.
    pub(super) fn skipped(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, State::Skipped, message.into(), None)
    }

    /// Marks an error as caused by something unavailable.
    pub(super) fn unavailable(mut self) -> Self {
        self.unavailable = true;
        self
    }

    fn new(check: &'static str, state: State, message: String, advice: Option<String>) -> Self {
        Self {
            check,
            state,
            message,
            advice,
            unavailable: false,
        }
    }
}
