//! The cost and the limits of each list and map of a job, as the schema describes them.

use serde_json::{Map, Value, json};
use transom_testkit::assert_linear;
use transom_web::ApiError;

use super::*;
use crate::model::field_reader::max_length;
use crate::model::field_reader::tests::LIFTED;

/// The maximum bytes of an answer.
const MAX_ANSWER: u64 = 64 << 10;

/// A list or map of a job.
struct List {
    name: String,
    is_map: bool,
    max: usize,
}

/// All lists and maps of the schema of jobs.
fn lists() -> Vec<List> {
    let schema = crate::model::schema();
    let properties = schema["properties"].as_object().unwrap();
    let mut lists = Vec::new();
    for (name, schema) in properties {
        let alternatives = schema["oneOf"].as_array().into_iter().flatten();
        for schema in alternatives.chain([schema]) {
            let is_map = schema.get("additionalProperties").is_some();
            if !is_map && schema["type"] != "array" {
                continue;
            }
            let keyword = if is_map { "maxProperties" } else { "maxItems" };
            let max = schema[keyword].as_u64();
            lists.push(List {
                name: name.clone(),
                is_map,
                max: max.unwrap_or_else(|| panic!("{name} has no {keyword}")) as usize,
            });
        }
    }
    assert!(lists.len() >= 6, "{}", lists.len());
    lists
}

impl List {
    fn body(&self, element: &Value, count: usize) -> Map<String, Value> {
        let list: Value = if self.is_map {
            (0..count).map(|n| (format!("k{n}"), element.clone())).collect()
        } else {
            vec![element.clone(); count].into()
        };
        let mut body = json!({"command": ["true"], "image": "i"});
        body[&self.name] = list;
        body.as_object().unwrap().clone()
    }
}

fn problems(body: &Map<String, Value>) -> Option<Problems> {
    read(body, &Settings::default()).unwrap().err()
}

fn answer_bytes(problems: &Problems) -> u64 {
    use axum::body::HttpBody;
    use axum::response::IntoResponse;
    let response = ApiError::invalid(problems).into_response();
    response.body().size_hint().exact().unwrap()
}

/// Elements: wrong types, repeated ones, and those that a rule rejects.
fn elements() -> [Value; 5] {
    [
        json!([]),
        json!({}),
        json!(1),
        json!("a"),
        json!("\u{0}".repeat(100)),
    ]
}

#[test]
fn cost_of_each_list_is_linear_and_its_answer_is_bounded() {
    let lists = lists();
    LIFTED.set(true);
    for list in lists {
        for element in elements() {
            let bodies = [1_000, 4_000].map(|count| list.body(&element, count));
            let [small, large] = bodies.each_ref().map(|body| || drop(problems(body)));
            assert_linear(&format!("{} of {element}", list.name), small, large);
            if let Some(problems) = problems(&bodies[1]) {
                let bytes = answer_bytes(&problems);
                assert!(bytes <= MAX_ANSWER, "{}: {bytes}", list.name);
            }
        }
    }
}

#[test]
fn each_list_has_the_described_maximum_length() {
    for list in lists() {
        assert_eq!(list.max, max_length(&list.name), "{}", list.name);
        for element in elements() {
            let too_long = format!("has {} elements; expected at most {}", list.max + 1, list.max);
            let path = format!("/{}", list.name);
            let found = problems(&list.body(&element, list.max + 1)).unwrap();
            assert!(found.contains(&path, &too_long), "{found:?}");
            let found = problems(&list.body(&element, list.max)).unwrap_or_default();
            assert!(!found.contains(&path, "elements; expected"), "{found:?}");
        }
    }
}
