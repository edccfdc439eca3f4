//! `/v1/plugins/explain`: what plugins decide, and why.
//!
//! An explanation calls components, so the port limits how many are made concurrently, of which each
//! user has its [`Shares`].

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use transom_framework::{Explain, ExplainDecisions};
use transom_plugin_host::printable;
use transom_web::{ApiError, Owner, Share, Shares};

use super::plugins::{EscapedJson, duration};
use crate::service::{Explained, Services};

/// The maximum number of concurrent explanations; further requests are rejected.
const MAX_CONCURRENT: usize = 4;
/// The services' explainers by the names of the services, and the budget of concurrent explanations.
#[derive(Clone)]
struct Explainers {
    services: Arc<[(&'static str, Arc<dyn Explain>)]>,
    /// All kinds of services, also those that do not run.
    kinds: Arc<[Explained]>,
    budget: Shares,
}

pub(super) fn routes(services: &Services, kinds: Arc<[Explained]>) -> Router {
    let explainers = services
        .iter()
        .filter_map(|service| Some((service.name(), service.explainer()?)));
    Router::new()
        .route("/v1/plugins/explain/matcher", get(matcher))
        .route("/v1/plugins/explain/filter", get(filter))
        .route("/v1/plugins/explain/probe", post(probe))
        .with_state(Explainers {
            services: explainers.collect(),
            kinds,
            budget: Shares::new("admin", "explanations", MAX_CONCURRENT),
        })
}

impl Explainers {
    /// Returns the share of the budget that the caller holds during an explanation.
    fn take_share(&self, owner: Owner) -> Result<Share, ApiError> {
        self.budget.take(owner, 1).ok_or_else(|| {
            ApiError::unavailable(
                "too many explanations are in progress, in total or of this user; try again later",
            )
        })
    }

    /// The explainer of events and checks.
    fn decisions(&self, explained: &str) -> Result<&dyn ExplainDecisions, ApiError> {
        let mut services = self.services.iter();
        let found = services.find_map(|(_, explainer)| explainer.decisions());
        let kind = self.kinds.iter().find(|kind| kind.has_decisions);
        found.ok_or_else(|| switched_off(kind.map_or("", |kind| kind.service), explained))
    }

    fn find(&self, service: &str) -> Option<&dyn Explain> {
        let mut services = self.services.iter();
        let (_, explainer) = services.find(|(name, _)| *name == service)?;
        Some(&**explainer)
    }

    /// The task that the only parameter of a request selects, and its kind of service.
    fn task(&self, query: &[(String, String)]) -> Result<(&Explained, String), ApiError> {
        let kind = |name: &str| self.kinds.iter().find(|kind| kind.parameter == name);
        let unknown = query.iter().find(|(name, _)| kind(name).is_none());
        if let ([(name, id)], None) = (query, unknown)
            && let Some(kind) = kind(name)
        {
            return Ok((kind, id.clone()));
        }
        let fault = unknown.map_or_else(
            || "expected exactly one parameter".to_owned(),
            |(name, _)| format!("unknown field `{}`, expected one parameter", printable(name)),
        );
        let kinds = self.kinds.iter();
        let examples: Vec<String> = kinds
            .map(|kind| format!("?{}={}", kind.parameter, kind.example))
            .collect();
        Err(ApiError::bad_request(format!(
            "{fault}, for example {}",
            examples.join(" or ")
        )))
    }

    /// The instance of a service that has a task, and the task's id there: `server/0` of the only
    /// instance, `NAME/server/0` of `[kubernetes.NAME]`.
    fn instance<'a>(&self, kind: &Explained, id: &'a str) -> Result<(&dyn Explain, &'a str), ApiError> {
        let service = kind.service;
        if let Some(explainer) = self.find(service) {
            return Ok((explainer, id));
        }
        let names = self.services.iter();
        let names = names.filter_map(|(name, _)| name.strip_prefix(service)?.strip_prefix('.'));
        let names: Vec<&str> = names.collect();
        let Some(first) = names.first() else {
            return Err(switched_off(service, kind.tasks));
        };
        if let Some((name, id)) = id.split_once('/')
            && let Some(explainer) = self.find(&format!("{service}.{name}"))
        {
            return Ok((explainer, id));
        }
        Err(ApiError::bad_request(format!(
            "{:?} does not name an instance of the {service} service; expected its name before the id, for example \
             {first}/{}, with one of the names {}",
            printable(id),
            kind.example,
            names.join(", ")
        )))
    }
}

/// The error for a service that this daemon does not run.
fn switched_off(service: &str, explained: &str) -> ApiError {
    ApiError::not_found(format!(
        "the {service} service is disabled in this daemon (section [{service}] of its configuration), and \
         only its {explained} can be explained"
    ))
}

fn invalid_query(error: &QueryRejection, example: &str) -> ApiError {
    let error = error.body_text();
    ApiError::bad_request(format!("expected for example {example}: {}", printable(&error)))
}

async fn matcher(
    State(explainers): State<Explainers>,
    owner: Owner,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| invalid_query(&error, "?app=/shop/web"))?;
    let (kind, given) = explainers.task(&query)?;
    let _share = explainers.take_share(owner)?;
    let (explainer, id) = explainers.instance(kind, &given)?;
    let mut explanation = explainer.explain(id).await?;
    if id != given {
        // Tasks of several instances have the same ids.
        explanation.id = given;
    }
    Ok(EscapedJson(explanation).into_response())
}

/// The query parameters that select the events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    /// The query as a subscriber gives it, percent-encoded.
    query: String,
    /// The age of the oldest event.
    #[serde(default = "default_since")]
    since: String,
}

fn default_since() -> String {
    "1h".to_owned()
}

async fn filter(
    State(explainers): State<Explainers>,
    owner: Owner,
    query: Result<Query<Events>, QueryRejection>,
) -> Result<Response, ApiError> {
    let example = "?query=event_type%3Dstatus_update_event&since=1h";
    let Query(Events { query, since }) = query.map_err(|error| invalid_query(&error, example))?;
    let since = duration(&since)?;
    let (explainer, _share) = (explainers.decisions("events")?, explainers.take_share(owner)?);
    Ok(EscapedJson(explainer.events(&query, since).await?).into_response())
}

/// The probe to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    task: String,
    /// The index in the list of the task's probes. Default: the first probe that this daemon runs.
    check: Option<usize>,
}

async fn probe(
    State(explainers): State<Explainers>,
    owner: Owner,
    body: Bytes,
) -> Result<Response, ApiError> {
    // Far more than the id of a task has.
    const MAX_BYTES: usize = 16 << 10;
    if body.len() > MAX_BYTES {
        let text = format!("The body has {} bytes; expected at most {MAX_BYTES}", body.len());
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let Attempt { task, check } = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!(
            "invalid body, expected for example {{\"task\": \"web.instance-….1\", \"check\": 0}}: {}",
            printable(&error.to_string())
        ))
    })?;
    let mut services = explainers.services.iter();
    if let Some(reason) = services.find_map(|(_, explainer)| explainer.probe_rejection(&task)) {
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, reason));
    }
    let (explainer, _share) = (explainers.decisions("checks")?, explainers.take_share(owner)?);
    Ok(EscapedJson(explainer.probe(&task, check).await?).into_response())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use transom_framework::PlacementExplanation;
    use transom_plugin_host::explain::MatcherExplanation;

    use super::*;

    /// A daemon that runs `services`, none of which explains events and checks.
    fn daemon_with(services: &[&'static str]) -> State<Explainers> {
        let explainers = services
            .iter()
            .map(|name| (*name, Arc::new(Named(name)) as Arc<dyn Explain>));
        let kind = |service, parameter, has_decisions| Explained {
            service,
            parameter,
            example: "server/0",
            tasks: "tasks",
            has_decisions,
        };
        State(Explainers {
            services: explainers.collect(),
            kinds: Arc::new([
                kind("apps", "app", true),
                kind("workflow", "job", false),
                kind("kubernetes", "member", false),
            ]),
            budget: Shares::new("admin", "explanations", MAX_CONCURRENT),
        })
    }

    fn empty_daemon() -> State<Explainers> {
        daemon_with(&[])
    }

    /// A stand-in for a service: its explanations contain its name, and a task of that name has no
    /// check.
    #[derive(Debug)]
    struct Named(&'static str);

    #[async_trait::async_trait]
    impl Explain for Named {
        async fn explain(&self, id: &str) -> Result<PlacementExplanation, ApiError> {
            Ok(PlacementExplanation {
                id: id.to_owned(),
                subscribed: true,
                matchers: MatcherExplanation {
                    matchers: vec![self.0.to_owned()],
                    ..MatcherExplanation::default()
                },
            })
        }

        fn probe_rejection(&self, task: &str) -> Option<String> {
            (task == self.0).then(|| format!("{task} has no check"))
        }
    }

    /// The response of a daemon that runs none of the services: status and text.
    async fn request_empty_daemon(path: &str, body: &str) -> (StatusCode, String) {
        request(empty_daemon, path, body).await
    }

    async fn request(daemon: impl Fn() -> State<Explainers>, path: &str, body: &str) -> (StatusCode, String) {
        let uri = format!("http://admin/{path}").parse().unwrap();
        let result = match path.split('?').next() {
            Some("matcher") => matcher(daemon(), Owner::Full, Query::try_from_uri(&uri)).await,
            Some("filter") => filter(daemon(), Owner::Full, Query::try_from_uri(&uri)).await,
            _ => probe(daemon(), Owner::Full, Bytes::from(body.to_owned())).await,
        };
        let response = result.into_response();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test]
    async fn read_only_user_leaves_explanations_for_the_full_one() {
        let State(explainers) = daemon_with(&["workflow"]);
        let status = async |owner| {
            let uri = "http://admin/matcher?job=x".parse().unwrap();
            let query = Query::try_from_uri(&uri);
            let result = matcher(State(explainers.clone()), owner, query).await;
            result.into_response().status().as_u16()
        };
        let mut held = Vec::new();
        while let Some(share) = explainers.budget.take(Owner::Reader, 1) {
            held.push(share);
        }
        assert_eq!(held.len(), MAX_CONCURRENT / 2);
        assert_eq!(status(Owner::Reader).await, 503);
        assert_eq!(status(Owner::Full).await, 200);
        held.pop();
        assert_eq!(status(Owner::Reader).await, 200);
    }

    #[tokio::test]
    async fn wrong_requests_are_answered_with_an_example() {
        for (path, body, part) in [
            ("matcher", "", "exactly one parameter, for example ?app="),
            ("matcher?app=/x&job=y", "", "exactly one parameter"),
            ("matcher?app=/x&app=/y", "", "exactly one parameter"),
            ("matcher?app=/x&pod=/y", "", "unknown field `pod`"),
            ("filter", "", "?query=event_type%3D"),
            ("filter?query=&since=yesterday", "", "30m"),
            ("probe", "", "web.instance"),
            ("probe", r#"{"task": 1}"#, "invalid type"),
            ("probe", r#"{"task": "t", "check": -1}"#, "invalid value"),
        ] {
            let (status, text) = request_empty_daemon(path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {body}: {text}");
            assert!(text.contains(part), "{path} {body}: {text}");
        }
    }

    #[tokio::test]
    async fn service_that_is_switched_off_is_named() {
        for (path, body, section) in [
            ("matcher?app=/x", "", "[apps]"),
            ("matcher?job=x", "", "[workflow]"),
            ("matcher?member=server/0", "", "[kubernetes]"),
            ("filter?query=event_type%3Da", "", "[apps]"),
            ("probe", r#"{"task": "t"}"#, "[apps]"),
        ] {
            let (status, text) = request_empty_daemon(path, body).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {text}");
            assert!(text.contains(section), "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn task_is_explained_by_its_service_and_member_by_its_instance() {
        let single_instance = || daemon_with(&["workflow", "kubernetes"]);
        for (path, service, id) in [
            ("matcher?job=a/b", "workflow", "a/b"),
            ("matcher?member=server/0", "kubernetes", "server/0"),
        ] {
            let (status, text) = request(single_instance, path, "").await;
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(status, StatusCode::OK, "{path}: {text}");
            assert_eq!(
                (&document["matchers"][0], &document["id"]),
                (&service.into(), &id.into())
            );
        }
        let two_instances = || daemon_with(&["kubernetes.blue", "kubernetes.green"]);
        let (status, text) = request(two_instances, "matcher?member=green/server/0", "").await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&document["matchers"][0], &document["id"]),
            (&"kubernetes.green".into(), &"green/server/0".into())
        );
        for member in ["server/0", "red/server/0", ""] {
            let (status, text) = request(two_instances, &format!("matcher?member={member}"), "").await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{member}: {text}");
            assert!(
                text.contains("blue/server/0") && text.contains("blue, green"),
                "{member}: {text}"
            );
        }
    }

    #[tokio::test]
    async fn task_without_a_check_is_rejected_with_the_reason_of_its_service() {
        let daemon = || daemon_with(&["workflow", "kubernetes"]);
        let (status, text) = request(daemon, "probe", r#"{"task": "kubernetes"}"#).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
        assert!(text.contains("kubernetes has no check"), "{text}");
    }
}
