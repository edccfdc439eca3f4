//! Tables of the rules of pods, by theme, and the fixtures.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use serde_json::{Value, json};

use super::{Pod, read_pod, rules};
use crate::ids::SpecId;
use crate::model::rules::tests::{cases, configured, replay};
use crate::model::{DefinitionSettings, Invalid};
use crate::testing::settings;
use crate::time::Moment;
use transom_web::Problems;

mod definition;
mod resident;
mod rule;
mod shape;

fn define(body: &Value, settings: &DefinitionSettings) -> Result<Pod, Problems> {
    let mut input = read_pod(body).map_err(|invalid| match invalid {
        Invalid::Shape(problems) | Invalid::Rules(problems) => problems,
    })?;
    let mut broken = std::mem::take(&mut input.broken);
    let id = input.id.clone().unwrap_or_else(|| SpecId::parse("/p").unwrap());
    let pod = input.pod(id, settings, Moment::now());
    broken.extend(rules::check(&pod, settings));
    if broken.is_empty() { Ok(pod) } else { Err(broken) }
}

fn problems(body: &Value, settings: &DefinitionSettings) -> Problems {
    define(body, settings).err().unwrap_or_default()
}

/// Merges the members of `more` into an object.
fn merged(mut base: Value, more: &Value) -> Value {
    let more = more.as_object().unwrap().clone();
    base.as_object_mut().unwrap().extend(more);
    base
}

/// A pod of one container, with additions to the pod and to the container.
fn with(pod: &Value, container: &Value) -> Value {
    let first = merged(json!({"name": "ct1", "resources": {}}), container);
    merged(json!({"id": "/p", "containers": [first]}), pod)
}

#[track_caller]
fn rejected(pod: &Value, container: &Value, path: &str, text: &str) {
    let body = with(pod, container);
    let found = problems(&body, &settings());
    assert!(
        found.contains(path, text),
        "{body}: {path} {text} not in {found:?}"
    );
}

#[track_caller]
fn accepted(pod: &Value, container: &Value) -> Pod {
    let body = with(pod, container);
    define(&body, &settings()).unwrap_or_else(|found| panic!("{body}: {found:?}"))
}

#[test]
fn validation_matches_the_pod_validation_fixtures() {
    let mut replayed = 0;
    for case in cases(include_str!("../../../../tests/fixtures/pod-validation.json")) {
        let found = problems(&case["request"]["body"], &configured(&case));
        replay(case["id"].as_str().unwrap(), &case, &found);
        replayed += 1;
    }
    assert_eq!(replayed, 10);
}
