//! Compares the OpenAPI document with the routes and their responses.

use http::Method;
use serde_json::{Value, json};

use super::site::{Site, authorization, autoscale, running, with_credentials};

/// The differences between a document and the schema of a response.
fn problems(described: &Value, schema: &Value, document: &Value) -> Vec<String> {
    let mut root = schema.clone();
    root["components"] = json!({"schemas": described["components"]["schemas"]});
    // Responses have no members that the schemas do not name.
    for schema in root["components"]["schemas"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        schema["unevaluatedProperties"] = json!(false);
    }
    let options = jsonschema::options().with_draft(jsonschema::Draft::Draft202012);
    let validator = options.build(&root).unwrap();
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[tokio::test]
async fn document_describes_exactly_the_served_calls() {
    let site = Site::with(&with_credentials());
    let mut view = running();
    view.waiting = vec![crate::view::Waiting {
        kind: crate::Kind::Agent,
        reason: "agent 1 waits.".to_owned(),
    }];
    view.autoscale = Some(autoscale());
    site.views.publish(view);
    let right = authorization("user");
    let headers = [("authorization", right.as_str())];
    let ask = async |method: &Method, path: &str| site.ask_with(method.clone(), path, &headers).await;
    let described = ask(&Method::GET, "/api/fw/v0/openapi.json").await.json();
    let paths = described["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 2 * 19 + 10);
    let (mut ids, mut compared) = (std::collections::BTreeSet::new(), 0);
    for (path, item) in paths {
        let asked = path
            .replace("{kind}", "agent")
            .replace("{scope}", "agent")
            .replace("{resource}", "cpus")
            .replace("{count}", "1")
            .replace("{amount}", "1");
        for method in [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let operation = item.get(method.as_str().to_lowercase());
            let answer = ask(&method, &asked).await;
            let possible = answer.status != 405;
            assert_eq!(operation.is_some(), possible, "{method} {path}: {answer:?}");
            let Some(operation) = operation else { continue };
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "two operations are called {id}");
            let response = &operation["responses"][answer.status.as_str()];
            let reference = response["$ref"].as_str().unwrap_or_default();
            let shared = described.pointer(reference.trim_start_matches('#'));
            let response = shared.filter(|_| !reference.is_empty()).unwrap_or(response);
            assert_ne!(*response, Value::Null, "{method} {path}: {answer:?}");
            let content = &response["content"];
            if answer.text.is_empty() {
                assert_eq!(*content, Value::Null, "{method} {path}");
                continue;
            }
            let content_type = answer.header("content-type").unwrap();
            let media = content_type.split(';').next().unwrap();
            let schema = &content[media]["schema"];
            assert_ne!(*schema, Value::Null, "{method} {path}: {answer:?}");
            if schema["type"] != "string" {
                let found = problems(&described, schema, &answer.json());
                assert_eq!(found, [""; 0], "{method} {path}: {answer:?}");
                compared += 1;
            }
            let needs_credentials = operation.get("security").is_none();
            let without = site.ask(method.clone(), &asked).await;
            assert_eq!(without.status == 401, needs_credentials, "{method} {path}");
        }
    }
    assert_eq!(compared, 26);
}

#[tokio::test]
async fn documents_that_differ_from_their_schema_are_detected() {
    let site = Site::start();
    site.views.publish(running());
    let described = site.get("/api/fw/v0/openapi.json").await.json();
    let schema = json!({"$ref": "#/components/schemas/Explanation"});
    let right = site.get("/api/fw/v0/explain").await.json();
    assert_eq!(problems(&described, &schema, &right), [""; 0]);
    for (pointer, member) in [("", "more"), ("/tasks/agent/0", "more"), ("/tasks/agent/0", "id")] {
        let mut wrong = right.clone();
        wrong.pointer_mut(pointer).unwrap()[member] = json!(1);
        assert_ne!(
            problems(&described, &schema, &wrong),
            [""; 0],
            "{pointer} {member}"
        );
    }
}
