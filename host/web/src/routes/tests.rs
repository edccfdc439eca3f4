#![allow(clippy::unwrap_used, reason = "a test may panic")]

use axum::body::Body;
use axum::extract::{Path, Request};
use http::StatusCode;
use schemars::JsonSchema;
use serde_json::json;
use tower::ServiceExt;

use super::*;

const PARAMETERS: &[Parameter] = &[
    Parameter::path("kind", "The kind.", Values::OneOf(&["big", "small"])),
    Parameter::path("name", "The name.", Values::Text),
    Parameter::span("id", "The id."),
    Parameter::query("limit", "The limit.", Values::UpTo(1, 2)).keyed("things"),
];

const ERRORS: &[ErrorResponse] = &[
    ErrorResponse::new(404, "NotFound", "It does not exist."),
    ErrorResponse::new(421, "Misdirected", "The host is another one.").common(),
];

/// A thing.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only for its schema")]
struct Thing {
    name: String,
}

async fn rest(Path(path): Path<String>) -> String {
    path
}

fn table() -> Table {
    let changed = Route::new(
        Method::PUT,
        "/{kind}/{name}",
        "change",
        "Changes it",
        async || "changed",
    );
    Table {
        info: Info {
            title: "Things",
            version: "1",
            description: "Things.",
            error: |_| json!({"type": "object"}),
            errors: ERRORS,
            headers: &[],
        },
        parameters: PARAMETERS,
        routes: vec![
            Route::get("/{kind}/{name}", "get", "A thing", async || "got")
                .parameters(&["things"])
                .returns::<Thing>("The thing.")
                .errors(&[404])
                .requires(Requirement::Nothing),
            changed
                .error(404, "No such thing.")
                .requires(Requirement::Credentials),
            Route::get("/v2/{id}", "all", "All", rest)
                .without_error_bodies()
                .errors(&[404]),
            Route::get("/v2/{id}/tasks", "tasks", "Its tasks", rest),
        ],
    }
}

#[test]
fn find_compares_segments_and_lists_other_methods() {
    let table = table();
    let found = |method: Method, path: &str| match table.find(&method, path) {
        Found::Route(route) => format!("{route:?}"),
        Found::OtherMethods(methods) => format!("{methods:?}"),
        Found::Nothing => String::new(),
    };
    assert_eq!(found(Method::GET, "/big/a"), "GET /{kind}/{name}");
    assert_eq!(found(Method::PUT, "/small/a"), "PUT /{kind}/{name}");
    assert_eq!(found(Method::POST, "/small/a"), "[GET, PUT]");
    for path in ["/medium/a", "/big/", "/big", "/big/a/b", "/"] {
        assert_eq!(found(Method::GET, path), "", "{path}");
    }
    let requirement = |method: Method| table.requirement(&method, "/big/a");
    assert_eq!(requirement(Method::HEAD), Some(Requirement::Nothing));
    assert_eq!(requirement(Method::PUT), Some(Requirement::Credentials));
    assert_eq!(requirement(Method::POST), None);
}

#[tokio::test]
async fn router_serves_each_route_and_gives_spans_to_one_handler() {
    let router = table().router();
    for (method, path, expected) in [
        ("GET", "/big/a", "got"),
        ("PUT", "/big/a", "changed"),
        ("GET", "/v2/a", "a"),
        ("GET", "/v2/a/b/tasks", "a/b/tasks"),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{method} {path}");
        let body = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
        assert_eq!(body, expected, "{method} {path}");
    }
}

#[test]
fn document_describes_each_route() {
    let document = table().document();
    let item = &document["paths"]["/{kind}/{name}"];
    let parameter = |key: &str| json!({"$ref": format!("#/components/parameters/{key}")});
    assert_eq!(item["parameters"], json!([parameter("kind"), parameter("name")]));
    let thing = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}});
    let not_found = json!({"$ref": "#/components/responses/NotFound"});
    let common = json!({"$ref": "#/components/responses/Misdirected"});
    assert_eq!(
        item["get"],
        json!({
            "operationId": "get", "summary": "A thing", "parameters": [parameter("things")], "security": [],
            "responses": {
                "200": {"description": "The thing.", "content": thing}, "404": not_found, "421": common,
            },
        })
    );
    let own = json!({
        "description": "No such thing.", "content": {"application/json": {"schema": {"type": "object"}}},
    });
    assert_eq!(item["put"]["responses"]["404"], own);
    assert_eq!(item["put"]["security"], json!([{"basic": []}]));
    let without_body = &document["paths"]["/v2/{id}"]["get"]["responses"]["404"];
    assert_eq!(*without_body, json!({"description": "It does not exist."}));
    let components = &document["components"];
    assert_eq!(components["schemas"]["Thing"]["description"], "A thing.");
    assert_eq!(
        components["parameters"]["things"],
        json!({
            "name": "limit", "in": "query", "description": "The limit.",
            "schema": {"type": "integer", "default": 1, "maximum": 2},
        })
    );
}
