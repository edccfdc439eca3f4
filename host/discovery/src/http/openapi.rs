//! The OpenAPI document of the lookups. [`route`](super::route) decides about paths, because
//! mesos-dns's rules apply before routing.

use std::sync::LazyLock;

use ::http::Method;
use bytes::Bytes;
use schemars::JsonSchema;
use serde_json::json;
use transom_web::Requirement;
use transom_web::routes::{self, ErrorResponse, Info, Parameter, Route, Table, Values};

use super::Version;
use super::lookup::{Host, Service};
use super::settings::ConfigDocument;
use crate::enumerate::EnumeratedFramework;
use crate::listing::Axfr;

/// The document as text.
pub(super) static TEXT: LazyLock<Bytes> = LazyLock::new(|| routes::text(&table().document()).into());

/// All records by framework and task.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only for its schema")]
struct Enumeration {
    /// Null without frameworks.
    frameworks: Option<Vec<EnumeratedFramework>>,
}

const TEXT_ERRORS: &[&str] = &["text/plain"];
const ERRORS: &[ErrorResponse] = &[
    ErrorResponse::new(404, "NotFound", "The path does not exist, or it is switched off.")
        .of_types(TEXT_ERRORS),
    ErrorResponse::new(
        406,
        "NotAcceptable",
        "The client does not accept the content type.",
    )
    .of_types(TEXT_ERRORS),
    ErrorResponse::new(501, "NotImplemented", "Never implemented, as in mesos-dns.").of_types(TEXT_ERRORS),
    ErrorResponse::new(
        503,
        "Unavailable",
        "The daemon has no data from the cluster yet, or too many clients read or watch; see `Retry-After`.",
    )
    .of_types(TEXT_ERRORS)
    .with_headers(&["Retry-After"]),
];

const PARAMETERS: &[Parameter] = &[
    Parameter::path("host", "A name in the domain.", Values::Text),
    Parameter::path(
        "service",
        "`_<task>._<protocol>.<framework>.<domain>.`",
        Values::Text,
    ),
    Parameter::query(
        "strict",
        "With `true` an unknown name is 404.",
        Values::Flag(false),
    ),
    Parameter::header(
        "If-None-Match",
        "Tags of responses that the client has.",
        Values::Text,
    ),
];

const UNKNOWN: &str = "The name is unknown, and `strict` is true.";

fn get(path: &'static str, id: &'static str, summary: &'static str) -> Route {
    Route::described(Method::GET, path, id, summary).requires(Requirement::Nothing)
}

/// A response from the zone: it has a tag, and 304 if the client has it.
fn of_zone<T: JsonSchema + 'static>(route: Route, description: &'static str) -> Route {
    route
        .returns::<T>(description)
        .headers(&["ETag"])
        .empty(304, "Nothing has changed since the response with that tag.")
        .errors(&[406, 503])
        .parameters(&["If-None-Match"])
}

fn watch(route: Route, what: &str) -> Route {
    let description = format!(
        "An event `changed` with the whole answer at first, and another one whenever it is not what it was. `id` is the \
         zone's serial, `data` {what}; empty lines between keep the connection."
    );
    route.text("text/event-stream", description).errors(&[406, 503])
}

fn table() -> Table {
    Table {
        info: Info {
            title: "Transom discovery",
            version: "1",
            description: "Lookups of what runs where. Names are fully qualified; the dot at their end may be left out. Every \
                path may end with one slash; every GET may be a HEAD.",
            error: |_| json!({"type": "string"}),
            errors: ERRORS,
            headers: &[
                ("ETag", "The serial of the zone.", "string"),
                (
                    "Retry-After",
                    "Seconds until the request may be sent again.",
                    "integer",
                ),
            ],
        },
        parameters: PARAMETERS,
        routes: vec![
            get("/v1/version", "version", "The program and its version").returns::<Version>("The version."),
            get("/v1/config", "config", "The settings in force, never a secret")
                .returns::<ConfigDocument>("The settings."),
            of_zone::<Vec<Host>>(
                get(
                    "/v1/hosts/{host}",
                    "hosts",
                    "The addresses of a host, as A and AAAA records have them",
                )
                .parameters(&["strict"])
                .error(404, UNKNOWN),
                "Addresses in another order every time. Of an unknown name: one record of empty texts.",
            ),
            get(
                "/v1/hosts/{host}/ports",
                "hostPorts",
                "Never implemented, as in mesos-dns",
            )
            .errors(&[501]),
            of_zone::<Vec<Service>>(
                get(
                    "/v1/services/{service}",
                    "services",
                    "The targets of a service, as SRV records have them",
                )
                .parameters(&["strict"])
                .error(404, UNKNOWN),
                "For each target a random address of each kind. Of an unknown service: one record of empty texts.",
            ),
            of_zone::<Enumeration>(
                get(
                    "/v1/enumerate",
                    "enumerate",
                    "All records by framework and task, unless switched off",
                )
                .errors(&[404]),
                "All records.",
            ),
            of_zone::<Axfr<'_>>(
                get("/v1/axfr", "axfr", "All records by name, unless switched off").errors(&[404]),
                "All records.",
            ),
            watch(
                get(
                    "/v1/watch/hosts/{host}",
                    "watchHosts",
                    "The addresses of a host, whenever they change",
                ),
                "all of its addresses as a list of Host records",
            ),
            watch(
                get(
                    "/v1/watch/services/{service}",
                    "watchServices",
                    "The targets of a service, whenever they change",
                ),
                "all addresses of all of its targets as a list of Service records",
            ),
            get("/v1/openapi.json", "openApi", "This document").response(
                200,
                "OpenAPI 3.1.",
                |_| json!({"type": "object"}),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;
    use transom_testkit::assert_checked_in;

    use super::super::route::route;
    use super::*;

    #[test]
    fn document_is_checked_in_and_describes_routes() {
        let table = table();
        assert_checked_in("docs/discovery.openapi.json", &routes::text(&table.document()));
        let document = table.document();
        for path in document["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(path, _)| path)
        {
            let path = path.replace(['{', '}'], "");
            let found = route(&Method::GET, &path, None, &HeaderMap::new(), true);
            assert!(found.is_ok(), "{path}: {found:?}");
        }
    }
}
