//! The span of a request, and W3C trace context in headers.

use http::{HeaderMap, HeaderName, Method};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use transom_common::trace;

use crate::text::truncated;

/// The headers that carry the client's trace context.
const HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// The span of a request to a route, a child of the span that the headers name.
pub(crate) fn span(method: &Method, route: &str, headers: &HeaderMap) -> Span {
    if !trace::is_on() {
        return Span::none();
    }
    let method = truncated(method.as_str());
    let propagator = TraceContextPropagator::new();
    let parent = propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
    trace::root(&parent, || {
        tracing::info_span!(
            target: trace::TARGET,
            "request",
            otel.name = format!("{method} {route}"),
            otel.kind = "server",
            http.request.method = method,
            http.route = route,
            http.response.status_code = Empty,
            trace_id = Empty,
        )
    })
}

/// Ends the span of a request.
pub(crate) fn answered(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 500 {
        trace::failed(span, "server error");
    }
}

/// Replaces the client's trace context with that of the current span, for a request that is
/// forwarded.
pub(crate) fn pass_on(headers: &mut HeaderMap) {
    if !trace::TraceContext::current().is_recorded() {
        return;
    }
    for name in HEADERS {
        headers.remove(name);
    }
    let context = Span::current().context();
    TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    fn headers(flags: &str) -> HeaderMap {
        let value = format!("00-{TRACE}-{PARENT}-{flags}");
        let [traceparent, tracestate] = HEADERS;
        HeaderMap::from_iter([
            (traceparent, value.try_into().unwrap()),
            (tracestate, "vendor=1".try_into().unwrap()),
        ])
    }

    /// The headers of the forwarded request if the received one has `headers`.
    fn passed_on(mut headers: HeaderMap) -> HeaderMap {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            trace::turn_on();
            let span = span(&Method::POST, "/v2/apps", &headers);
            span.in_scope(|| pass_on(&mut headers));
            answered(&span, 502);
        });
        headers
    }

    #[test]
    fn forwarded_request_names_the_span_of_this_daemon_as_parent() {
        let [traceparent, tracestate] = HEADERS;
        let passed = passed_on(headers("01"));
        let parts: Vec<&str> = passed[&traceparent].to_str().unwrap().split('-').collect();
        assert_eq!((parts[1], parts[3]), (TRACE, "01"));
        assert_ne!(parts[2], PARENT);
        assert_eq!(passed[&tracestate], "vendor=1");
        let new_trace = passed_on(HeaderMap::new());
        assert!(
            new_trace[&traceparent].to_str().unwrap().ends_with("-01"),
            "{new_trace:?}"
        );
    }

    #[test]
    fn unsampled_trace_context_is_forwarded_unchanged() {
        assert_eq!(passed_on(headers("00")), headers("00"));
    }
}
