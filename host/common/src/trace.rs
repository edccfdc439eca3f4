//! The trace context of work, passed along through queues and actors.
//!
//! Exported spans have the target [`TARGET`] and are created with [`root`] and
//! [`TraceContext::child`]. While traces are off, both read one flag and return a disabled span.
//! Only work that a traced request caused has spans: background work does not start a trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use opentelemetry::trace::{SpanContext, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of exported spans. Each has an empty field `trace_id`, which is filled in for the
/// log.
pub const TARGET: &str = "transom_trace";

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Turns traces on, for the rest of the process; called when their exporter is set up.
pub fn turn_on() {
    ENABLED.store(true, Relaxed);
}

/// Whether traces are on.
pub fn is_on() -> bool {
    ENABLED.load(Relaxed)
}

/// The context of a span in its trace, which may outlive the span. Empty while traces are off and
/// for traces that were not sampled. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext(Option<Arc<SpanContext>>);

impl TraceContext {
    /// The context of the current span.
    pub fn current() -> Self {
        if is_on() {
            Self::of(&Span::current())
        } else {
            Self::default()
        }
    }

    /// The context of a span.
    pub fn of(span: &Span) -> Self {
        if span.is_none() {
            return Self::default();
        }
        let context = span.context();
        let span_context = context.span().span_context().clone();
        Self((span_context.is_valid() && span_context.is_sampled()).then(|| Arc::new(span_context)))
    }

    /// Whether child spans are exported.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// A child span, created by `span`; a disabled span if nothing is exported.
    pub fn child(&self, span: impl FnOnce() -> Span) -> Span {
        let Some(span_context) = &self.0 else {
            return Span::none();
        };
        let parent = Context::new().with_remote_span_context(SpanContext::clone(span_context));
        with_parent(&parent, span())
    }

    /// Links a span that also does the work of this context.
    pub fn link(&self, span: &Span) {
        if let Some(span_context) = &self.0 {
            span.add_link(SpanContext::clone(span_context));
        }
    }
}

/// The span of a request from outside, created by `span`. `parent` has the caller's context, if the
/// request carried one.
pub fn root(parent: &Context, span: impl FnOnce() -> Span) -> Span {
    if is_on() {
        with_parent(parent, span())
    } else {
        Span::none()
    }
}

fn with_parent(parent: &Context, span: Span) -> Span {
    // Fails only for a span that has been entered; this one is new.
    let _ = span.set_parent(parent.clone());
    let id = span.context().span().span_context().trace_id();
    span.record("trace_id", tracing::field::display(id));
    span
}

/// Records an event in a span.
pub fn event(span: &Span, name: &'static str, attribute: (&'static str, String)) {
    let (key, value) = attribute;
    span.add_event(name, vec![KeyValue::new(key, value)]);
}

/// Marks a span as failed.
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
        let span = context.child(|| panic!("a span was created"));
        assert!(span.is_none());
        assert!(root(&Context::new(), || panic!("a span was created")).is_none());
        context.link(&span);
        event(&span, "status", ("state", "TASK_RUNNING".to_owned()));
        failed(&span, "500");
    }
}
