//! Lookups over HTTP in mesos-dns's shapes, with additions: `ETags`, watches and an OpenAPI
//! document.
//!
//! [`route`] decodes a request, [`lookup`] reads the newest zone, and [`answer`] writes the
//! response.

mod answer;
mod enumeration;
mod events;
mod lookup;
mod openapi;
mod route;
mod settings;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ::http::{HeaderMap, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use futures::stream;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use transom_web::{Owner, Shares};

use crate::listing::BUSY_TIMEOUT;
use crate::metrics::{Metrics, RequestLabels};
use crate::shared::Shared;
use crate::zone::Zone;
use crate::{Config, Settings};
use answer::{busy, is_current, json, json_text, not_ready, plain, rejected, tagged, unchanged};
use enumeration::{Enumeration, MAX_ENUMERATIONS};
use lookup::{Host, Service};
use route::Route;
use settings::ConfigDocument;

#[derive(Clone)]
struct Api {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    config_document: Arc<ConfigDocument>,
    watchers: Shares,
    enumerations: Arc<Semaphore>,
    metrics: Metrics,
}

/// The router of all paths, unknown ones included.
pub(crate) fn router(
    config: &Config,
    dns: Option<SocketAddr>,
    http: Option<SocketAddr>,
    shared: Arc<Shared>,
    metrics: Metrics,
) -> Router {
    let api = Api {
        shared,
        settings: Arc::new(config.settings.clone()),
        config_document: Arc::new(ConfigDocument::of(config, dns, http)),
        watchers: Shares::new("discovery", "watches", events::MAX_WATCHERS),
        enumerations: Arc::new(Semaphore::new(MAX_ENUMERATIONS)),
        metrics,
    };
    // Paths are parsed by `route`, because mesos-dns's rules apply before routing.
    let router = Router::new()
        .route("/", any(handle))
        .route("/{*path}", any(handle))
        .with_state(api);
    transom_web::with_fallbacks(router)
}

async fn handle(State(api): State<Api>, request: Request) -> Response {
    let (uri, began) = (request.uri(), Instant::now());
    let owner = Owner::of(request.extensions());
    let found = route::route(
        request.method(),
        uri.path(),
        uri.query(),
        request.headers(),
        api.settings.enumeration_on,
    );
    let (name, response) = match found {
        Ok(route) => (
            route.name(),
            api.answer(route, request.headers(), uri.query(), owner).await,
        ),
        Err(rejection) => ("none", rejected(&rejection)),
    };
    let labels = RequestLabels {
        route: name,
        code: response.status().as_u16(),
    };
    api.metrics.request(&labels, began.elapsed());
    response
}

impl Api {
    async fn answer(&self, route: Route, headers: &HeaderMap, query: Option<&str>, owner: Owner) -> Response {
        match route {
            Route::Version => version(),
            Route::Config => {
                let serial = self.shared.zone.load().as_ref().map_or(0, |zone| zone.serial());
                json(&self.config_document.with_serial(serial))
            }
            Route::OpenApi => json_text(openapi::TEXT.clone()),
            Route::HostPorts => plain(StatusCode::NOT_IMPLEMENTED, "To be implemented..."),
            Route::WatchHosts(host) => self.watch(owner, move |zone| lookup::all_hosts(zone, &host)),
            Route::WatchServices(service) => {
                self.watch(owner, move |zone| lookup::all_services(zone, &service))
            }
            Route::Hosts(_) | Route::Services(_) | Route::Enumerate | Route::Axfr => {
                let Some(zone) = self.shared.zone.load_full() else {
                    return not_ready();
                };
                let serial = zone.serial();
                if is_current(headers, serial) {
                    return unchanged(serial);
                }
                let response = self.of_zone(route, zone, query).await;
                if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                    return response;
                }
                tagged(serial, response)
            }
        }
    }

    /// Answers from the zone.
    async fn of_zone(&self, route: Route, zone: Arc<Zone>, query: Option<&str>) -> Response {
        match route {
            Route::Hosts(host) => listed(&lookup::hosts(&zone, &host), &host, query, Host::default),
            Route::Services(service) => {
                let found = lookup::services(&zone, &service);
                listed(&found, &service, query, Service::default)
            }
            Route::Enumerate => self.enumeration(zone).await,
            _ => match self.shared.listing.of(zone, Arc::clone(&self.settings)).await {
                Some(text) => json_text(text),
                None => busy("503: Too many clients read older listings of the zone"),
            },
        }
    }

    async fn enumeration(&self, zone: Arc<Zone>) -> Response {
        let permit = timeout(BUSY_TIMEOUT, Arc::clone(&self.enumerations).acquire_owned());
        let Ok(Ok(permit)) = permit.await else {
            return busy("503: Too many clients enumerate the zone");
        };
        let pieces = Enumeration::of(zone, permit).map(Ok::<_, Infallible>);
        json_text(Body::from_stream(stream::iter(pieces)))
    }

    fn watch<T: Serialize>(
        &self,
        owner: Owner,
        answer: impl Fn(&Zone) -> Vec<T> + Send + 'static,
    ) -> Response {
        match self.watchers.take(owner, 1) {
            Some(share) => events::events(Arc::clone(&self.shared), share, &self.metrics.watchers, answer),
            None => busy("503: Too many watchers"),
        }
    }
}

/// A list of records. If it is empty, clients expect one record with empty strings, or a 404 with
/// `strict=true`.
fn listed<T: Serialize>(records: &[T], name: &str, query: Option<&str>, empty: impl Fn() -> T) -> Response {
    if !records.is_empty() {
        return json(records);
    }
    let strict = query.is_some_and(|query| query.split('&').any(|pair| pair == "strict=true"));
    if strict {
        plain(StatusCode::NOT_FOUND, &format!("404: No Such Name: {name}"))
    } else {
        json(&[empty()])
    }
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
#[allow(clippy::struct_field_names)] // The specification's names.
struct Version {
    service: &'static str,
    /// The place of the source code.
    #[serde(rename = "URL")]
    url: &'static str,
    version: &'static str,
}

fn version() -> Response {
    json(&Version {
        service: "Transom",
        url: env!("CARGO_PKG_REPOSITORY"),
        version: env!("CARGO_PKG_VERSION"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use ::http::header;
    use prometheus_client::registry::Registry;
    use tower::ServiceExt;

    use super::*;
    use crate::zone::testing::Builder;

    #[tokio::test(start_paused = true)]
    async fn enumerations_beyond_the_maximum_get_503() {
        let shared = Arc::new(Shared::new());
        shared.publish(Arc::new(Builder::new().build(7)));
        let metrics = Metrics::register(&mut Registry::default(), &shared);
        let router = router(&Config::default(), None, None, shared, metrics);
        let ask = async || {
            let request = Request::get("/v1/enumerate").body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        let mut readers = Vec::new();
        for _ in 0..MAX_ENUMERATIONS {
            let response = ask().await;
            assert_eq!(response.status(), 200);
            assert!(response.headers().contains_key(header::ETAG));
            readers.push(response);
        }
        let rejected = ask().await;
        assert_eq!(rejected.status(), 503);
        assert!(rejected.headers().contains_key(header::RETRY_AFTER));
        assert!(!rejected.headers().contains_key(header::ETAG));
        readers.pop();
        assert_eq!(ask().await.status(), 200);
    }
}
