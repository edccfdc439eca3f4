//! The place of work in a trace, carried over queues and actors.
//!
//! Spans that are exported have the target [`TARGET`], and are made with [`root`] and
//! [`TraceContext::child`]. While traces are off, both return a span without an effect, after
//! reading one flag. Only work that a traced request has caused has spans: background work starts
//! no trace of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of exported spans. Each has an empty field `trace_id`, which is filled in for the
/// log.
pub const TARGET: &str = "transom_trace";

static ON: AtomicBool = AtomicBool::new(false);

/// Turns traces on, for the rest of the process; called when their exporter is set up.
pub fn turn_on() {
    ON.store(true, Relaxed);
}

/// Whether traces are on.
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// The place of a span in its trace, which outlives the span. Empty while traces are off and for
/// traces that the sampler left out. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext(Option<Arc<SpanContext>>);

impl TraceContext {
    /// The place of the present span.
    pub fn current() -> Self {
        if is_on() {
            Self::of(&Span::current())
        } else {
            Self::default()
        }
    }

    /// The place of a span.
    pub fn of(span: &Span) -> Self {
        if span.is_none() {
            return Self::default();
        }
        let context = span.context();
        let place = context.span().span_context().clone();
        Self((place.is_valid() && place.is_sampled()).then(|| Arc::new(place)))
    }

    /// Whether spans below are exported.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// A span below this place, made by `span`; one without an effect if nothing is exported.
    pub fn child(&self, span: impl FnOnce() -> Span) -> Span {
        let Some(place) = &self.0 else {
            return Span::none();
        };
        let parent = Context::new().with_remote_span_context(SpanContext::clone(place));
        below(&parent, span())
    }

    /// Notes in a span that it also does the work of this place.
    pub fn link(&self, span: &Span) {
        if let Some(place) = &self.0 {
            span.add_link(SpanContext::clone(place));
        }
    }
}

/// The span of a request from outside, made by `span`. `parent` has the caller's place, if it named
/// one.
pub fn root(parent: &Context, span: impl FnOnce() -> Span) -> Span {
    if is_on() {
        below(parent, span())
    } else {
        Span::none()
    }
}

fn below(parent: &Context, span: Span) -> Span {
    // It fails for a span that has been entered, which a new one has not.
    let _ = span.set_parent(parent.clone());
    let id = span.context().span().span_context().trace_id();
    span.record("trace_id", tracing::field::display(id));
    span
}

/// Notes an event in a span.
pub fn event(span: &Span, name: &'static str, attribute: (&'static str, String)) {
    let (key, value) = attribute;
    span.add_event(name, vec![KeyValue::new(key, value)]);
}

/// Notes in a span that its work failed.
pub fn failed(span: &Span, reason: &str) {
    span.set_status(Status::error(reason.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recorded_while_traces_are_off() {
        let context = TraceContext::current();
        assert!(!context.is_recorded());
        let span = context.child(|| panic!("a span is made"));
        assert!(span.is_none());
        assert!(root(&Context::new(), || panic!("a span is made")).is_none());
        context.link(&span);
        event(&span, "status", ("state", "TASK_RUNNING".to_owned()));
        failed(&span, "500");
    }
}
