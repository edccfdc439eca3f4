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

/// Sends a write to one of the daemons, leader or not; returns the outcome, and its description.
pub(crate) async fn write(site: &Site, run: &str, slot: Slot, op: &Op, force: bool) -> (Outcome, String) {
    // Every app has its own clients.
    let daemon = usize::from(slot.0);
    let with = |method: Method, path: &str| {
        site.http
            .request(method, site.apps(daemon, &format!("{path}force={force}")))
    };
    let app = format!("/v2/apps{}?", slot.app());
    let request: RequestBuilder = match op {
        Op::Create(spec) => with(Method::POST, "/v2/apps?").json(&spec.definition(slot, run)),
        Op::Change(spec) => {
            with(Method::PUT, &format!("{app}partialUpdate=false&")).json(&spec.definition(slot, run))
        }
        Op::Scale(instances) => with(Method::PUT, &app).json(&json!({"instances": instances})),
        Op::Delete => with(Method::DELETE, &app),
    };
    match request.timeout(REQUEST_TIMEOUT).send().await {
        Ok(response) => answered(response).await,
        // Never sent.
        Err(error) if error.is_connect() => (Outcome::Refused, "no connection".to_owned()),
        Err(error) => (
            Outcome::Unanswered,
            format!("no answer: {:#}", anyhow::Error::from(error)),
        ),
    }
}

async fn answered(response: Response) -> (Outcome, String) {
    let status = response.status();
    let outcome = if status.is_success() {
        return (Outcome::Acknowledged, status.as_u16().to_string());
    } else if status.is_client_error() {
        Outcome::Refused
    } else {
        Outcome::Unanswered
    };
    let text = response.text().await.unwrap_or_default();
    (outcome, format!("{} {text}", status.as_u16()))
}

/// All definitions that a daemon returns. An invalid definition is an error of its own.
pub(crate) async fn definitions(
    site: &Site,
    run: &str,
    daemon: usize,
) -> anyhow::Result<BTreeMap<Slot, Result<Spec, String>>> {
    let document = get(site, &site.apps(daemon, "/v2/apps")).await?;
    let shown = document["apps"].as_array().context("no list of apps")?;
    let each = shown.iter().map(|app| {
        let slot = app["id"]
            .as_str()
            .and_then(Slot::of)
            .with_context(|| format!("an app nobody posted: {app}"))?;
        Ok((slot, Spec::read(slot, run, app)))
    });
    each.collect()
}

/// GET of a JSON document.
pub(crate) async fn get(site: &Site, url: &str) -> anyhow::Result<Value> {
    let response = site.http.get(url).timeout(REQUEST_TIMEOUT).send().await?;
    Ok(response.error_for_status()?.json().await?)
}
