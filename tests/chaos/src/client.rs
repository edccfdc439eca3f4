//! A client of the apps API that records the outcome of its writes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::model::Outcome;
use crate::site::Site;
use crate::spec::{Op, Slot, Spec};

/// Longer than the daemon's own timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);

/// Sends a write to one of the daemons, whether it leads or not; returns the outcome and its
/// description.
pub(crate) async fn write(site: &Site, run: &str, slot: Slot, op: &Op, force: bool) -> (Outcome, String) {
    // Every app is always written through the same daemon.
    let daemon = usize::from(slot.0);
    let with = |method: Method, path: &str| {
        site.http
            .request(method, site.apps(daemon, &format!("{path}force={force}")))
    };
    if slot.is_pod() {
        return write_pod(slot, run, op, with).await;
    }
    let app = format!("/v2/apps{}?", slot.app());
    let request: RequestBuilder = match op {
        Op::Create(spec) => with(Method::POST, "/v2/apps?").json(&spec.definition(slot, run)),
        Op::Change(spec) => {
            with(Method::PUT, &format!("{app}partialUpdate=false&")).json(&spec.definition(slot, run))
        }
        Op::Scale(instances) => with(Method::PUT, &app).json(&json!({"instances": instances})),
        Op::Delete => with(Method::DELETE, &app),
    };
    send(request).await
}

/// Sends a write of a pod. No PUT creates a missing pod or changes only the number of instances.
async fn write_pod(
    slot: Slot,
    run: &str,
    op: &Op,
    with: impl Fn(Method, &str) -> RequestBuilder,
) -> (Outcome, String) {
    let pod = format!("/v2/pods{}?", slot.app());
    let create = |spec: &Spec| with(Method::POST, "/v2/pods?").json(&spec.definition(slot, run));
    match op {
        Op::Create(spec) => send(create(spec)).await,
        Op::Change(spec) => {
            let changed = send(with(Method::PUT, &pod).json(&spec.definition(slot, run))).await;
            if changed.0 == Outcome::Rejected && changed.1.starts_with("404") {
                return send(create(spec)).await;
            }
            changed
        }
        Op::Scale(_) => (
            Outcome::Rejected,
            "pods are scaled by their definition".to_owned(),
        ),
        Op::Delete => send(with(Method::DELETE, &pod)).await,
    }
}

async fn send(request: RequestBuilder) -> (Outcome, String) {
    match request.timeout(REQUEST_TIMEOUT).send().await {
        Ok(response) => outcome_of(response).await,
        // The request was not sent.
        Err(error) if error.is_connect() => (Outcome::Rejected, "no connection".to_owned()),
        Err(error) => (
            Outcome::Unanswered,
            format!("no answer: {:#}", anyhow::Error::from(error)),
        ),
    }
}

pub(crate) async fn outcome_of(response: Response) -> (Outcome, String) {
    let status = response.status();
    let outcome = if status.is_success() {
        return (Outcome::Acknowledged, status.as_u16().to_string());
    } else if status.is_client_error() {
        Outcome::Rejected
    } else {
        Outcome::Unanswered
    };
    let text = response.text().await.unwrap_or_default();
    (outcome, format!("{} {text}", status.as_u16()))
}

/// All definitions that a daemon returns. An entry is an error if its definition is invalid.
pub(crate) async fn definitions(
    site: &Site,
    run: &str,
    daemon: usize,
) -> anyhow::Result<BTreeMap<Slot, Result<Spec, String>>> {
    let apps = get(site, &site.apps(daemon, "/v2/apps")).await?;
    let apps = apps["apps"].as_array().context("no list of apps")?;
    let pods = get(site, &site.apps(daemon, "/v2/pods")).await?;
    let pods = pods.as_array().context("no list of pods")?;
    let each = apps.iter().chain(pods).map(|shown| {
        let slot = shown["id"]
            .as_str()
            .and_then(Slot::of)
            .with_context(|| format!("unknown app or pod: {shown}"))?;
        Ok((slot, Spec::read(slot, run, shown)))
    });
    each.collect()
}

/// The apps with health checks that have fewer healthy tasks than wanted, with the number of
/// healthy ones.
pub(crate) async fn unhealthy(
    site: &Site,
    wanted: &BTreeMap<Slot, Spec>,
) -> anyhow::Result<Vec<(Slot, u64)>> {
    let url = site.apps(site.leader().await?, "/v2/apps?embed=apps.counts");
    let shown = get(site, &url).await?;
    let apps = shown["apps"].as_array().context("no list of apps")?;
    let healthy = |slot: Slot| {
        let app = apps.iter().find(|app| app["id"] == slot.app());
        app.and_then(|app| app["tasksHealthy"].as_u64()).unwrap_or(0)
    };
    let checked = wanted.iter().filter(|(slot, _)| slot.health().is_some());
    let counted = checked.map(|(slot, spec)| (*slot, spec, healthy(*slot)));
    let missing = counted.filter(|(_, spec, count)| *count != u64::from(spec.instances));
    Ok(missing.map(|(slot, _, count)| (slot, count)).collect())
}

/// GET of a JSON document.
pub(crate) async fn get(site: &Site, url: &str) -> anyhow::Result<Value> {
    let response = site.http.get(url).timeout(REQUEST_TIMEOUT).send().await?;
    Ok(response.error_for_status()?.json().await?)
}
