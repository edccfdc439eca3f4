#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Json;
use crate::{ApiError, Problems};

#[derive(Debug, Deserialize)]
#[allow(dead_code)] // The deserializer sets the fields; the tests only read errors.
struct App {
    id: String,
    #[serde(default)]
    cpus: f64,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    container: Container,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct Container {
    port_mappings: Vec<Mapping>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct Mapping {
    host_port: u16,
}

async fn body(error: ApiError) -> Value {
    use axum::response::IntoResponse;
    let response = error.into_response();
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_slice(&axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap()).unwrap()
}

#[tokio::test]
async fn wrong_types_are_answered_with_422_and_the_path() {
    let cases = [
        (r#"{"id": "/a", "cpus": "1"}"#, "/cpus"),
        (r#"{"id": 5}"#, "/id"),
        (r#"{"id": "/a", "env": {"N": 1}}"#, "/env/N"),
        (
            r#"{"id": "/a", "container": {"portMappings": [{"hostPort": 1}, {"hostPort": -1}]}}"#,
            "/container/portMappings(1)/hostPort",
        ),
        (
            r#"{"id": "/a", "container": {"portMappings": [7]}}"#,
            "/container/portMappings(0)",
        ),
        (r#"{"cpus": 1}"#, "/"),
        ("17", "/"),
    ];
    for (text, path) in cases {
        for parsed in [
            Json::<App>::parse(text.as_bytes()),
            Json::<App>::from_value(serde_json::from_str(text).unwrap()),
        ] {
            let error = parsed.unwrap_err();
            assert_eq!(error.status(), 422, "{text}");
            let body = body(error).await;
            assert_eq!(body["message"], "Invalid JSON", "{text}");
            assert_eq!(body["details"][0]["path"], path, "{text}");
            assert!(body["details"][0]["errors"][0].is_string(), "{text}");
        }
    }
    let error = Json::<Vec<u8>>::parse(b"[1, 2, 300]").unwrap_err();
    assert_eq!(body(error).await["details"][0]["path"], "/(2)");
}

#[tokio::test]
async fn invalid_json_is_answered_with_400_and_the_position() {
    for text in [
        "{",
        "{\"id\": 5",
        "{\"id\": \"/a\"} x",
        "nope",
        "[1,]",
        "{\"id\": \"\\x\"}",
    ] {
        let error = Json::<App>::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.status(), 400, "{text}");
        let body = body(error).await;
        assert_eq!(body["message"], "Invalid JSON", "{text}");
        assert!(
            body["details"].as_str().unwrap().contains("line 1 column"),
            "{text}: {body}"
        );
    }
}

#[tokio::test]
async fn empty_body_is_answered_with_400() {
    for text in ["", " \n\t"] {
        let error = Json::<App>::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.status(), 400);
        let body = body(error).await;
        assert_eq!(
            body,
            json!({"message": "Please specify data in JSON format", "details": "the body is empty"})
        );
    }
}

#[test]
fn valid_json_is_parsed_and_unknown_fields_ignored() {
    assert_eq!(
        Json::<App>::parse(br#" {"id": "/a", "unknown": [1, {}]} "#)
            .unwrap()
            .id,
        "/a"
    );
}

#[tokio::test]
async fn errors_carry_details_fields_and_headers() {
    use axum::response::IntoResponse;
    let error = ApiError::new(http::StatusCode::CONFLICT, "locked")
        .field("deployments", json!([{"id": "d"}]))
        .header(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    assert_eq!(error.clone().into_response().headers()["retry-after"], "1");
    assert_eq!(
        body(error).await,
        json!({"message": "locked", "deployments": [{"id": "d"}]})
    );
    let mut problems = Problems::one("/check", "a");
    problems.add("/check", "b");
    let invalid = ApiError::invalid(&problems);
    assert_eq!(invalid.status(), 422);
    let expected =
        json!({"message": "Object is not valid", "details": [{"path": "/check", "errors": ["a", "b"]}]});
    assert_eq!(body(invalid).await, expected);
}
