//! Counts the requests of a port by route, and traces them.

use std::hash::{Hash, Hasher};

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{self, Next};
use http::Method;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tracing::Instrument;

use crate::request_trace;

/// The label of paths without a route. No route has this name, because routes begin with a slash.
const UNMATCHED: &str = "unmatched";
/// The label of methods that HTTP does not define. Their number is unbounded, so they share one
/// label.
const OTHER: &str = "other";

transom_common::metrics! {
    /// The requests of a port's routes: how many by route, method and status, and how long they took
    /// until the head of the response. An event stream counts at its start. Clones share everything.
    /// While tracing is enabled, each request has a span, which is a child of the span that
    /// `traceparent` names.
    ///
    /// Requests that the port rejects before routing, for their host name or credentials, do not count.
    pub struct RequestMetrics {
        requests: Family<RequestLabels, Counter>
            => "api_requests", "Requests to the routes of the API, by route, method and status";
        seconds: Family<RouteLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(transom_common::durations)
            => "api_seconds", "Time from a request to the head of its response, by route";
    }
}

impl RequestMetrics {
    /// Registers `PREFIX_api_requests_total` and `PREFIX_api_seconds`.
    pub fn register(registry: &mut Registry, prefix: &str) -> Self {
        Self::registered(registry.sub_registry_with_prefix(prefix))
    }

    /// Counts the requests to all routes and fallbacks of `router`.
    pub fn around<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        router.layer(middleware::from_fn(move |request: Request, next: Next| {
            let metrics = self.clone();
            async move {
                let route = Route(request.extensions().get().cloned());
                let method = name(request.method());
                let span = request_trace::span(request.method(), route.as_str(), request.headers());
                let began = Instant::now();
                let response = next.run(request).instrument(span.clone()).await;
                request_trace::answered(&span, response.status().as_u16());
                metrics.answered(route, method, response.status().as_u16(), began);
                response
            }
        }))
    }

    fn answered(&self, route: Route, method: &'static str, status: u16, began: Instant) {
        let route = RouteLabel { route };
        self.seconds
            .get_or_create(&route)
            .observe(began.elapsed().as_secs_f64());
        let labels = RequestLabels {
            route: route.route,
            method,
            status,
        };
        self.requests.get_or_create(&labels).inc();
    }
}

fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => OTHER,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: Route,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    method: &'static str,
    status: u16,
}

/// The template of a route, which the router shares with each request.
#[derive(Clone, Debug)]
struct Route(Option<MatchedPath>);

impl Route {
    fn as_str(&self) -> &str {
        self.0.as_ref().map_or(UNMATCHED, MatchedPath::as_str)
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.as_str().encode(encoder)
    }
}
