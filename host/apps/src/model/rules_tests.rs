//! Replays the definition fixtures through parsing, defaults and rules.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use serde_json::{Value, json};

use super::super::{App, AppUpdate, DefinitionSettings, Effect, Invalid, read};
use crate::ids::SpecId;
use crate::settings::{Checks, Feature};
use crate::time::Moment;
use transom_web::Problems;

/// The default settings of a service.
fn plain() -> DefinitionSettings {
    DefinitionSettings {
        role: "*".to_owned(),
        enforces_role: false,
        other_roles: Vec::new(),
        features: [].into(),
        default_network_name: None,
    }
}

/// The settings in a case of a fixture.
pub(in crate::model) fn configured(case: &Value) -> DefinitionSettings {
    let config = &case["config"];
    let text = |key: &str| config[key].as_str().map(str::to_owned);
    let features = config["enable_features"].as_array().into_iter().flatten();
    let feature = |name: &Value| match name.as_str().unwrap() {
        "secrets" => Feature::Secrets,
        other => panic!("{other}"),
    };
    DefinitionSettings {
        role: text("mesos_role").unwrap_or_else(|| "*".to_owned()),
        enforces_role: false,
        other_roles: Vec::new(),
        features: features.map(feature).collect(),
        default_network_name: text("default_network_name"),
    }
}

fn define(body: &Value) -> Result<App, Invalid> {
    define_with(body, &plain())
}

fn define_with(body: &Value, settings: &DefinitionSettings) -> Result<App, Invalid> {
    let mut update: AppUpdate = read(body)?;
    let id = update.id.clone();
    let app = update.apply(
        id.unwrap_or(SpecId::parse("/unnamed").unwrap()),
        None,
        settings,
        Moment::now(),
    );
    update.broken.extend(super::check(&app, settings));
    if update.broken.is_empty() {
        Ok(app)
    } else {
        Err(Invalid::Rules(update.broken))
    }
}

fn problems(body: &Value) -> Problems {
    problems_with(body, &plain())
}

fn problems_with(body: &Value, settings: &DefinitionSettings) -> Problems {
    match define_with(body, settings) {
        Ok(_) => Problems::default(),
        Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => problems,
    }
}

/// The cases of a fixture.
pub(in crate::model) fn cases(text: &str) -> Vec<Value> {
    let suite: Value = serde_json::from_str(text).unwrap();
    suite["cases"].as_array().unwrap().clone()
}

/// Cases of upstream's internal validators, with the result of the HTTP API, which differs, also in
/// upstream.
const OBJECT_LEVEL: &[(&str, Option<&str>)] = &[
    ("id-validator-dot-segment", Some("error.pattern")),
    ("id-validator-dotdot-segment", None),
    ("id-validator-relative", None),
    ("id-validator-relative-up", None),
];

#[test]
fn validation_matches_the_app_validation_fixtures() {
    let mut replayed = 0;
    for case in cases(include_str!("../../tests/fixtures/app-validation.json")) {
        let id = case["id"]
            .as_str()
            .unwrap()
            .strip_prefix("app-validation/")
            .unwrap();
        let found = problems_with(&case["request"]["body"], &configured(&case));
        if let Some((_, text)) = OBJECT_LEVEL.iter().find(|(name, _)| *name == id) {
            assert_eq!(found.is_empty(), text.is_none(), "{id}: {found:?}");
            assert!(
                text.is_none_or(|text| found.contains("/id", text)),
                "{id}: {found:?}"
            );
        } else {
            replay(id, &case, &found);
            replayed += 1;
        }
    }
    assert!(replayed >= 70, "only {replayed} cases were replayed");
}

#[test]
fn validation_matches_the_app_definition_rules_fixtures() {
    for case in cases(include_str!("../../tests/fixtures/app-definition-rules.json")) {
        replay(
            case["id"].as_str().unwrap(),
            &case,
            &problems(&case["request"]["body"]),
        );
    }
}

/// Compares the problems of a definition with those that a case expects.
pub(in crate::model) fn replay(id: &str, case: &Value, found: &Problems) {
    let accepted = case["expect"]["outcome"] == "accept";
    assert_eq!(found.is_empty(), accepted, "{id}: {found:?}");
    for detail in case["expect"]["details"].as_array().into_iter().flatten() {
        let (path, text) = (
            detail["path"].as_str().unwrap(),
            detail["error_contains"].as_str().unwrap(),
        );
        assert!(found.contains(path, text), "{id}: {path} {text} not in {found:?}");
    }
}

/// Cases in which the specification and its decisions differ from upstream: `None` if the
/// definition is accepted, otherwise the path of the problem.
const CHECKS_DECIDED: &[(&str, Option<&str>)] = &[
    ("tcp-no-port-no-index-two-ports", None),
    ("tcp-no-port-no-index-one-port", None),
    ("http-index-out-of-range", Some("/check/http/portIndex")),
    ("docker-rejected", None),
    ("two-kinds-DEFECT", Some("/check")),
    ("no-kind-DEFECT", Some("/check")),
    ("timeout-gt-interval-DEFECT", Some("/check/timeoutSeconds")),
    ("exec-argv-DEFECT", None),
    ("http-both-port-and-index-DEFECT", Some("/check/http/port")),
    ("scheme-https-DEFECT", Some("/check/http/scheme")),
];

#[test]
fn validation_and_stored_checks_match_the_checks_fixtures() {
    for case in cases(include_str!("../../tests/fixtures/checks.json")) {
        if case["kind"] != "check" {
            continue;
        }
        let id = case["id"].as_str().unwrap().strip_prefix("checks/").unwrap();
        let body = &case["request"]["body"];
        if let Some((_, path)) = CHECKS_DECIDED.iter().find(|(name, _)| *name == id) {
            let found = problems(body);
            assert!(
                path.map_or(found.is_empty(), |path| found.contains(path, "")),
                "{id}: {found:?}"
            );
            continue;
        }
        if case["expect"]["http_status"] == 201 {
            let app = define(body).unwrap_or_else(|invalid| panic!("{id}: {invalid:?}"));
            let shown = serde_json::to_value(&app).unwrap();
            assert_eq!(shown["check"], case["expect"]["stored_check"], "{id}");
            let stored: App = serde_json::from_value(shown).unwrap();
            assert_eq!(stored, app, "{id}: the stored form is parsed to the same app");
        } else {
            let found = problems(body);
            for detail in case["expect"]["details"].as_array().unwrap() {
                assert!(
                    found.contains(
                        detail["path"].as_str().unwrap(),
                        detail["error_contains"].as_str().unwrap()
                    ),
                    "{id}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn check_without_a_port_uses_the_first_port_and_shows_it() {
    let app = define(&json!({"id": "/a", "cmd": "sleep 1", "check": {"tcp": {}}})).unwrap();
    assert_eq!(
        serde_json::to_value(&app).unwrap()["check"]["tcp"],
        json!({"portIndex": 0})
    );
    let none = problems(&json!({"id": "/a", "cmd": "sleep 1", "portDefinitions": [], "check": {"http": {}}}));
    assert!(none.contains("/check/http", "no ports"), "{none:?}");
}

#[test]
fn constraint_length_is_validated_and_its_operator_upper_cased() {
    let one = problems(&json!({"id": "/a", "cmd": "sleep 1", "constraints": [["hostname"]]}));
    assert!(
        one.contains(
            "/constraints(0)",
            "Each constraint must have either 2 or 3 fields"
        ),
        "{one:?}"
    );
    let app =
        define(&json!({"id": "/a", "cmd": "sleep 1", "constraints": [["rack", "group_by", "2"]]})).unwrap();
    assert_eq!(app.constraints[0].0, ["rack", "GROUP_BY", "2"]);
}

#[test]
fn omitted_fields_have_the_defaults_of_upstream() {
    let app = define(&json!({"id": "web", "cmd": "sleep 1"})).unwrap();
    let mut shown = serde_json::to_value(&app).unwrap();
    shown.as_object_mut().unwrap().remove("version");
    assert_eq!(
        shown,
        json!({
            "id": "/web", "cmd": "sleep 1", "instances": 1, "cpus": 1, "mem": 128, "disk": 0, "gpus": 0, "executor": "",
            "networks": [{"mode": "host"}], "portDefinitions": [{"port": 0, "name": "default", "protocol": "tcp"}],
            "requirePorts": false, "backoffSeconds": 1, "backoffFactor": 1.15, "maxLaunchDelaySeconds": 300,
            "upgradeStrategy": {"maximumOverCapacity": 1, "minimumHealthCapacity": 1}, "labels": {},
            "unreachableStrategy": {"inactiveAfterSeconds": 0, "expungeAfterSeconds": 0},
            "killSelection": "YOUNGEST_FIRST", "role": "*",
        })
    );
}

#[test]
fn deprecated_fields_are_translated() {
    let app = define(
        &json!({"id": "/a", "cmd": "sleep 1", "ports": [8080], "uris": ["http://x/a.tgz", "http://x/b"]}),
    )
    .unwrap();
    assert_eq!(app.port_definitions()[0].port, 8080);
    assert_eq!(
        app.fetch
            .iter()
            .map(|artifact| artifact.extract)
            .collect::<Vec<_>>(),
        [true, false]
    );
    let app = define(&json!({"id": "/a", "cmd": "sleep 1", "uris": ["http://x/b"], "fetch": []})).unwrap();
    assert_eq!(app.fetch.len(), 1);
    let both =
        problems(&json!({"id": "/a", "cmd": "sleep 1", "ports": [1], "portDefinitions": [{"port": 2}]}));
    assert!(
        both.contains("/", "cannot specify both ports and port definitions"),
        "{both:?}"
    );
}

#[test]
fn all_fields_of_a_wrong_type_are_reported_together() {
    let body = json!({"id": 123, "cpus": "1", "instances": 1.5, "labels": {"a": 1}, "env": [], "killSelection": "RANDOM"});
    let Err(Invalid::Shape(found)) = define(&body) else {
        panic!("accepted")
    };
    for (path, text) in [
        ("/id", "error.expected.jsstring"),
        ("/cpus", "error.expected.jsnumber"),
        ("/instances", "error.expected.jsnumber"),
        ("/labels/a", "error.expected.jsstring"),
        ("/env", "error.expected.jsobject"),
        ("/killSelection", "error.unknown.enum.literal"),
    ] {
        assert!(found.contains(path, text), "{path} {text}: {found:?}");
    }
}

#[test]
fn partial_update_changes_only_the_fields_it_has() {
    let app =
        define(&json!({"id": "/a", "cmd": "sleep 1", "labels": {"x": "y"}, "check": {"tcp": {}}})).unwrap();
    let mut update = read(&json!({"instances": 3, "cmd": null})).unwrap();
    let next = update.apply(app.id.clone(), Some(&app), &plain(), app.version.plus_millis(1));
    assert_eq!(
        (next.instances, next.cmd.as_deref(), &next.labels, &next.check),
        (3, Some("sleep 1"), &app.labels, &app.check)
    );
    assert_eq!(app.effect_of(&next, Checks::default()), Effect::Scale);
    let mut update = read(&json!({"labels": {}})).unwrap();
    let relabelled = update.apply(app.id.clone(), Some(&app), &plain(), app.version.plus_millis(1));
    assert_eq!(app.effect_of(&relabelled, Checks::default()), Effect::InPlace);
}

#[test]
fn empty_variable_names_and_disabled_features_are_rejected_with_their_path() {
    let invalid = |more: Value| {
        let mut body = json!({"id": "/a", "cmd": "sleep 1"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!(problems(&body))
    };
    assert_eq!(
        invalid(json!({"env": {"": "v", "A": "b"}}))[0]["path"],
        "/env/keys(0)"
    );
    assert_eq!(invalid(json!({"gpus": 1}))[0]["path"], "/gpus");
    assert_eq!(invalid(json!({"gpus": 0})), json!([]));
}

/// Cases of health and readiness checks are replayed in `health_check` and `readiness`.
#[test]
fn defaults_match_the_normalization_fixtures() {
    const CHECK_LISTS: &[&str] = &["healthChecks", "readinessChecks"];
    let mut replayed = 0;
    for case in cases(include_str!("../../tests/fixtures/normalization.json")) {
        let input = case["input"].as_object().unwrap();
        if CHECK_LISTS.iter().any(|field| input.contains_key(*field)) {
            continue;
        }
        let mut body = json!({"id": "/test", "cmd": "sleep 1000"});
        body.as_object_mut().unwrap().extend(input.clone());
        let shown = serde_json::to_value(define(&body).unwrap()).unwrap();
        for (field, expected) in case["expect"].as_object().unwrap() {
            assert_eq!(shown[field].as_array().unwrap().len(), 1, "{field}");
            for (key, value) in expected[0].as_object().unwrap() {
                assert_eq!(&shown[field][0][key], value, "{field} {key}");
            }
        }
        replayed += 1;
    }
    assert_eq!(replayed, 1);
}

/// The app with a persistent volume from which upstream's cases start.
fn resident() -> Value {
    json!({
        "id": "/test", "cmd": "sleep 1000", "cpus": 1, "mem": 128, "disk": 0, "gpus": 0,
        "unreachableStrategy": "disabled", "portDefinitions": [{"port": 0, "name": "default"}],
        "upgradeStrategy": {"minimumHealthCapacity": 0, "maximumOverCapacity": 0}, "role": "dev",
        "container": {
            "type": "MESOS",
            "volumes": [{"containerPath": "foo", "mode": "RW", "persistent": {"type": "root", "size": 1}}],
        },
    })
}

fn resident_with(more: &Value) -> App {
    let mut body = resident();
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let settings = DefinitionSettings {
        role: "dev".to_owned(),
        ..crate::testing::settings()
    };
    let mut update = read(&body).unwrap();
    update.apply(SpecId::parse("/test").unwrap(), None, &settings, Moment::now())
}

#[test]
fn changes_of_resident_apps_match_the_fixtures() {
    let mut replayed = 0;
    for case in cases(include_str!("../../tests/fixtures/resident-update.json")) {
        if case["input"]["what"] != "app" {
            continue;
        }
        let change = case["input"]["change"].as_str().unwrap();
        let more = match change {
            "portDefinitions -> [{port 1}]" => json!({"portDefinitions": [{"port": 1}]}),
            "upgradeStrategy -> {1,1}" => {
                json!({"upgradeStrategy": {"minimumHealthCapacity": 1, "maximumOverCapacity": 1}})
            }
            number => {
                let (field, value) = number.split_once(" -> ").unwrap();
                json!({field: value.parse::<u32>().unwrap()})
            }
        };
        let (old, new) = (resident_with(&json!({})), resident_with(&more));
        let settings = DefinitionSettings {
            role: "dev".to_owned(),
            ..crate::testing::settings()
        };
        let mut found = super::check(&new, &settings);
        found.extend(super::check_update(&old, &new, true));
        replay(case["id"].as_str().unwrap(), &case, &found);
        replayed += 1;
    }
    assert_eq!(replayed, 5);
}

#[test]
fn resident_apps_may_only_change_what_is_not_reserved() {
    let old = resident_with(&json!({}));
    for (more, force, path) in [
        (json!({"cmd": "sleep 2", "instances": 3}), false, None),
        (json!({"requirePorts": true}), true, Some("/")),
        (json!({"role": "other"}), false, Some("/role")),
        (json!({"role": "other"}), true, None),
        (
            json!({"container": {"type": "MESOS"}}),
            true,
            Some("/container/volumes"),
        ),
    ] {
        let found = super::check_update(&old, &resident_with(&more), force);
        assert!(
            path.map_or(found.is_empty(), |path| found.contains(path, "")),
            "{more}: {found:?}"
        );
    }
    let plain = define(&json!({"cmd": "sleep 1"})).unwrap();
    let other = define(&json!({"cmd": "sleep 1", "cpus": 2})).unwrap();
    assert!(super::check_update(&plain, &other, false).is_empty());
}

#[test]
fn example_apps_are_valid_definitions() {
    for (text, kind) in [
        (include_str!("../../../../examples/apps/http.json"), Some("http")),
        (include_str!("../../../../examples/apps/tcp.json"), Some("tcp")),
        (include_str!("../../../../examples/apps/exec.json"), Some("exec")),
        (include_str!("../../../../examples/apps/pinned.json"), None),
        (
            include_str!("../../../../examples/apps/containers/limits.json"),
            None,
        ),
        (
            include_str!("../../../../examples/apps/bridge.json"),
            Some("http"),
        ),
        (
            include_str!("../../../../examples/apps/network.json"),
            Some("http"),
        ),
        (
            include_str!("../../../../examples/apps/containers/docker.json"),
            Some("http"),
        ),
        (
            include_str!("../../../../examples/apps/containers/mesos.json"),
            None,
        ),
    ] {
        let settings = crate::testing::settings();
        let app = define_with(&serde_json::from_str(text).unwrap(), &settings)
            .unwrap_or_else(|invalid| panic!("{text}: {invalid:?}"));
        let check = serde_json::to_value(&app).unwrap().get("check").cloned();
        assert_eq!(
            check.is_some_and(|check| check.get(kind.unwrap_or_default()).is_some()),
            kind.is_some(),
            "{text}"
        );
    }
}
