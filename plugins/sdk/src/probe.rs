//! `check-probe`: checks a running task. The package `transom:probe` describes when the host calls
//! a probe, and how it performs each step.

use std::cell::RefCell;

use crate::bindings::exports::transom::probe::probe as wit;
use crate::plugin::{Exported, Installed, Plugin, installed};

pub use wit::{
    Answer, CommandLine, CommandOutput, Endpoint, Failure, HttpRequest, HttpResponse, IoError, Outcome, Port,
    Reason, Request, Step, Tls,
};

/// A plugin of the world `check-probe`.
pub trait Probe: Plugin {
    /// One execution of a check, from its first step to its outcome.
    type Attempt: Attempt;

    /// Begins an attempt. The host requests the first step afterwards with [`Attempt::next`].
    fn attempt(&self, request: Request) -> Self::Attempt;
}

/// One execution of a check of one task.
pub trait Attempt: 'static {
    /// Returns the next step for the host. The first call has no answer; each further call has the
    /// answer to the previous step, until the attempt returns [`Step::Done`] or [`Step::Failed`].
    fn next(&mut self, last: Option<Answer>) -> Step;
}

/// A function from the last answer to the next step is an attempt.
impl<F: FnMut(Option<Answer>) -> Step + 'static> Attempt for F {
    fn next(&mut self, last: Option<Answer>) -> Step {
        self(last)
    }
}

/// The step that ends an attempt without a result.
pub fn failed(reason: Reason, message: impl Into<String>) -> Step {
    Step::Failed(Failure {
        reason,
        message: message.into(),
    })
}

impl Failure {
    /// The failure of an attempt that an input or output error ends without a result. `what`: the
    /// failed operation, for the message.
    pub fn of(error: &IoError, what: &str) -> Self {
        let reason = match error {
            IoError::Denied => Reason::Denied,
            IoError::TimedOut => Reason::TimedOut,
            IoError::Unresolved
            | IoError::Refused
            | IoError::Unreachable
            | IoError::Closed
            | IoError::Unavailable(_) => Reason::Unreachable,
            IoError::Tls(_) | IoError::Protocol(_) => Reason::Invalid,
        };
        Self {
            reason,
            message: format!("{what}: {}", describe(error)),
        }
    }
}

/// Describes an input or output error.
pub fn describe(error: &IoError) -> String {
    match error {
        IoError::Denied => "not granted to this plugin".to_owned(),
        IoError::Unresolved => "the name did not resolve".to_owned(),
        IoError::Refused => "connection refused".to_owned(),
        IoError::Unreachable => "no route to it".to_owned(),
        IoError::TimedOut => "timed out".to_owned(),
        IoError::Closed => "the peer closed the connection".to_owned(),
        IoError::Tls(text) => format!("TLS: {text}"),
        IoError::Protocol(text) => format!("protocol error: {text}"),
        IoError::Unavailable(text) => format!("not available: {text}"),
    }
}

impl<P: Probe + Installed> wit::Guest for Exported<P> {
    type Attempt = ExportedAttempt<P>;
}

#[doc(hidden)]
pub struct ExportedAttempt<P: Probe>(RefCell<P::Attempt>);

impl<P: Probe + Installed> wit::GuestAttempt for ExportedAttempt<P> {
    fn new(request: Request) -> Self {
        Self(RefCell::new(installed::<P>().attempt(request)))
    }

    fn next(&self, last: Option<Answer>) -> Step {
        self.0.borrow_mut().next(last)
    }
}

/// Makes the crate a component of the world `check-probe`: `export_probe!(MyProbe)`, once, in a
/// `cdylib`.
#[macro_export]
macro_rules! export_probe {
    ($plugin:ty) => {
        $crate::__export!(
            $plugin,
            PROBE,
            "component-type:transom:check-probe",
            probe::probe,
            __export_transom_probe_probe_0_1_0_cabi
        );
    };
}
