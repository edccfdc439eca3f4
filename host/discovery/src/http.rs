//! Lookups over HTTP, in mesos-dns's shapes: its JSON with its indents, its plain-text errors.

mod settings;

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::{HeaderMap, StatusCode, header};
use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rand::seq::{IndexedRandom, SliceRandom};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;

use crate::Config;
use crate::http::settings::Shown;
use crate::listing::{self, ListedFramework};
use crate::shared::Shared;
use crate::zone::Zone;

#[derive(Clone)]
struct Api {
    shared: Arc<Shared>,
    settings: Arc<Shown>,
}

/// The five lookups of the specification. Paths may end with one slash.
pub(crate) fn router(
    config: &Config,
    dns: Option<SocketAddr>,
    http: Option<SocketAddr>,
    shared: Arc<Shared>,
) -> Router {
    let api = Api {
        shared,
        settings: Arc::new(Shown::of(config, dns, http)),
    };
    let mut paths = vec![
        ("/v1/version", get(version)),
        ("/v1/config", get(shown_config)),
        ("/v1/hosts/{host}", get(hosts)),
        (
            "/v1/hosts/{host}/ports",
            get(async || plain(StatusCode::NOT_IMPLEMENTED, "To be implemented...")),
        ),
        ("/v1/services/{service}", get(services)),
    ];
    if config.enumeration_on {
        paths.push(("/v1/enumerate", get(enumerate)));
    }
    let router = paths.into_iter().fold(Router::new(), |router, (path, method)| {
        router
            .route(path, method.clone())
            .route(&format!("{path}/"), method)
    });
    let router = router
        .route_layer(middleware::from_fn(acceptable))
        .with_state(api);
    transom_web::layers(router)
        .fallback(async || plain(StatusCode::NOT_FOUND, "404: Page Not Found"))
        .method_not_allowed_fallback(async || {
            plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
        })
}

/// There is JSON and nothing else.
async fn acceptable(request: Request, next: Next) -> Response {
    if takes_json(request.headers()) {
        next.run(request).await
    } else {
        plain(StatusCode::NOT_ACCEPTABLE, "406: Not Acceptable")
    }
}

fn takes_json(headers: &HeaderMap) -> bool {
    let mut kinds = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        kinds.extend(value.to_str().unwrap_or_default().split(','));
    }
    let json = |kind: &&str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        matches!(kind, "" | "*/*" | "application/json")
    };
    kinds.is_empty() || kinds.iter().any(json)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
#[allow(clippy::struct_field_names)] // The specification's names.
struct Version {
    service: &'static str,
    #[serde(rename = "URL")]
    url: &'static str,
    version: &'static str,
}

async fn version() -> Response {
    json(&Version {
        service: "Transom",
        url: env!("CARGO_PKG_REPOSITORY"),
        version: env!("CARGO_PKG_VERSION"),
    })
}

async fn shown_config(State(api): State<Api>) -> Response {
    let serial = api.shared.zone.load().as_ref().map_or(0, |zone| zone.serial());
    json(&api.settings.with_serial(serial))
}

/// A host record (specification, part A).
#[derive(Default, Serialize)]
struct Host {
    host: String,
    ip: String,
}

async fn hosts(State(api): State<Api>, Path(host): Path<String>, RawQuery(query): RawQuery) -> Response {
    let Some(zone) = api.shared.zone.load_full() else {
        return not_yet();
    };
    let name = normal(&host);
    let Some(node) = zone.node(&name) else {
        return unknown(&host, query.as_deref(), Host::default());
    };
    let record = |ip: String| Host {
        host: name.clone(),
        ip,
    };
    let mut a: Vec<_> = node.a().iter().map(|ip| record(ip.to_string())).collect();
    let mut aaaa: Vec<_> = node.aaaa().iter().map(|ip| record(ip.to_string())).collect();
    a.shuffle(&mut rand::rng());
    aaaa.shuffle(&mut rand::rng());
    a.append(&mut aaaa);
    if a.is_empty() {
        unknown(&host, query.as_deref(), Host::default())
    } else {
        json(&a)
    }
}

/// A service record (specification, part A).
#[derive(Default, Serialize)]
#[allow(clippy::struct_field_names)] // The specification's names.
struct Service {
    service: String,
    host: String,
    ip: String,
    port: String,
}

async fn services(
    State(api): State<Api>,
    Path(service): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(zone) = api.shared.zone.load_full() else {
        return not_yet();
    };
    let records = service_records(&zone, &service);
    if records.is_empty() {
        unknown(&service, query.as_deref(), Service::default())
    } else {
        json(&records)
    }
}

/// For each target one address of each kind, whichever come up; a target without address is left out.
fn service_records(zone: &Zone, asked: &str) -> Vec<Service> {
    let services = zone.node(&normal(asked)).map_or(&[][..], |node| node.srv());
    let mut records = Vec::with_capacity(services.len());
    for service in services {
        let Some(target) = zone.node(&service.target) else {
            continue;
        };
        let a = target.a().choose(&mut rand::rng()).map(ToString::to_string);
        let aaaa = target.aaaa().choose(&mut rand::rng()).map(ToString::to_string);
        records.extend([a, aaaa].into_iter().flatten().map(|ip| Service {
            service: asked.to_owned(),
            host: service.target.to_string(),
            ip,
            port: service.port.to_string(),
        }));
    }
    records
}

/// The enumerate object (specification, part A); a cluster without frameworks has null.
#[derive(Serialize)]
struct Enumeration {
    frameworks: Option<Vec<ListedFramework>>,
}

async fn enumerate(State(api): State<Api>) -> Response {
    let Some(zone) = api.shared.zone.load_full() else {
        return not_yet();
    };
    let frameworks: Vec<_> = listing::frameworks(&zone).collect();
    json(&Enumeration {
        frameworks: (!frameworks.is_empty()).then_some(frameworks),
    })
}

/// The name as the zone has it.
fn normal(name: &str) -> String {
    let mut name = name.to_ascii_lowercase().replace(".*", "");
    if !name.ends_with('.') {
        name.push('.');
    }
    name
}

/// Clients depend on one record of empty texts; those that ask for it get a 404.
fn unknown<T: Serialize>(name: &str, query: Option<&str>, empty: T) -> Response {
    let strict = query.is_some_and(|query| query.split('&').any(|pair| pair == "strict=true"));
    if strict {
        plain(StatusCode::NOT_FOUND, &format!("404: No Such Name: {name}"))
    } else {
        json(&[empty])
    }
}

fn not_yet() -> Response {
    let answer = plain(
        StatusCode::SERVICE_UNAVAILABLE,
        "503: The cluster has not been heard of yet",
    );
    ([(header::RETRY_AFTER, "1")], answer).into_response()
}

fn plain(status: StatusCode, text: &str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        text.to_owned(),
    )
        .into_response()
}

fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text(value)).into_response()
}

/// JSON indented by one space a level, and every line but the first by one more.
fn text<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(Indented(&mut text), formatter);
    // Texts, numbers and lists, into memory: cannot fail.
    if let Err(error) = value.serialize(&mut serializer) {
        tracing::error!(%error, "an answer could not be written");
    }
    text
}

/// Adds a space after every line feed; within JSON texts there are none.
struct Indented<'t>(&'t mut Vec<u8>);

impl std::io::Write for Indented<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            self.0.push(*byte);
            if *byte == b'\n' {
                self.0.push(b' ');
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
