//! Reads a Marathon over its API.
//!
//! Its responses are not trusted: every request has a timeout, every body has a maximum size, redirects
//! are not followed, and an error names the URL and the expected response.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use reqwest::{StatusCode, Url, header, redirect};
use serde_json::Value;
use transom_apps::migration::Marathon;

/// Timeout of one request, with its body.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// The largest body in bytes: the list of all apps with their tasks.
const MAX_BODY: usize = 256 << 20;
/// The largest body of one definition or one list of versions.
const MAX_DEFINITION: usize = 8 << 20;
/// The maximum number of concurrent requests for past definitions.
const MAX_CONCURRENT: usize = 8;
/// The maximum number of bytes of an unexpected response that an error shows.
const MAX_QUOTED: usize = 200;

/// A client of Marathon's API.
pub(super) struct Api {
    http: reqwest::Client,
    base: Url,
    credentials: Option<(String, String)>,
}

/// The expected form of a response: its description, and a check.
type Expected = (&'static str, fn(&Value) -> bool);

const OBJECT: Expected = ("a JSON object", Value::is_object);
const LIST: Expected = ("a JSON list", Value::is_array);
const APPS: Expected = ("a JSON object with the list `apps`", |value| {
    value["apps"].is_array()
});
const VERSIONS: Expected = ("a JSON object with the list `versions`", |value| {
    value["versions"].is_array()
});

impl Api {
    /// A client of the Marathon at `url`.
    pub(super) fn new(url: &str, credentials: Option<(String, String)>) -> anyhow::Result<Self> {
        let base = Url::parse(url).with_context(|| format!("--from {url}"))?;
        ensure!(
            matches!(base.scheme(), "http" | "https") && base.has_host(),
            "--from {url}: expected an address such as http://marathon:8080"
        );
        ensure!(
            base.username().is_empty() && base.password().is_none(),
            "--from has credentials: use --username and TRANSOM_MARATHON_PASSWORD"
        );
        let builder = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .no_proxy()
            .redirect(redirect::Policy::none());
        let builder = if base.scheme() == "http" {
            builder.tls_certs_only([])
        } else {
            builder
        };
        Ok(Self {
            http: builder.build().context("the HTTP client")?,
            base,
            credentials,
        })
    }

    /// The document at `path`; `None` if there is none.
    async fn get(&self, path: &str, expected: Expected, limit: usize) -> anyhow::Result<Option<Value>> {
        let (expected_form, is_expected) = expected;
        let url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.http.get(&url).header(header::ACCEPT, "application/json");
        if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password));
        }
        let cannot_read = || format!("{url} cannot be read");
        let answer = request.send().await.map_err(reqwest::Error::without_url);
        let answer = answer.with_context(cannot_read)?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            bail!(
                "{url} answers {status}: give Marathon's credentials with --username and TRANSOM_MARATHON_PASSWORD"
            );
        }
        if status.is_redirection() {
            let location = answer.headers().get(header::LOCATION);
            let location = location
                .and_then(|to| to.to_str().ok())
                .unwrap_or("an unknown address");
            bail!(
                "{url} redirects to {location}, which is not followed: give the leader's own address with --from"
            );
        }
        let body = read_body(answer, limit).await.with_context(cannot_read)?;
        let beginning = || {
            let beginning = &body[..body.len().min(MAX_QUOTED)];
            String::from_utf8_lossy(beginning).into_owned()
        };
        ensure!(
            status.is_success(),
            "{url} answers {status}, expected {expected_form}: {:?}",
            beginning()
        );
        let value: Value = serde_json::from_slice(&body).with_context(|| {
            format!(
                "{url} does not answer with JSON, expected {expected_form}: {:?}",
                beginning()
            )
        })?;
        ensure!(
            is_expected(&value),
            "{url} answers with another document, expected {expected_form}: {:?}",
            beginning()
        );
        Ok(Some(value))
    }

    async fn required(&self, path: &str, expected: Expected) -> anyhow::Result<Value> {
        let value = self.get(path, expected, MAX_BODY).await?;
        value.with_context(|| format!("{}{} does not exist; is this a Marathon?", self.base, &path[1..]))
    }
}

/// The whole body, if it is not too large.
async fn read_body(answer: reqwest::Response, limit: usize) -> anyhow::Result<Vec<u8>> {
    let (mut body, mut stream) = (Vec::new(), answer.bytes_stream());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(reqwest::Error::without_url)?;
        ensure!(
            body.len() + chunk.len() <= limit,
            "the body is larger than {limit} bytes"
        );
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Reads everything that an import needs. For each app and pod that is the newest `max_versions`
/// definitions, and those that its tasks were launched with.
pub(super) async fn read(api: &Api, max_versions: usize) -> anyhow::Result<Marathon> {
    let list = |value: Option<Value>| match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let mut apps = api
        .required("/v2/apps?embed=apps.tasks&embed=apps.lastTaskFailure", APPS)
        .await?;
    let mut marathon = Marathon {
        info: api.required("/v2/info", OBJECT).await?,
        groups: api.required("/v2/groups?embed=group.groups", OBJECT).await?,
        apps: list(Some(apps["apps"].take())),
        // Older versions of Marathon have no pods.
        pods: list(api.get("/v2/pods", LIST, MAX_BODY).await?),
        pod_statuses: list(api.get("/v2/pods/::status", LIST, MAX_BODY).await?),
        deployments: list(Some(api.required("/v2/deployments", LIST).await?)),
        versions: BTreeMap::new(),
        findings: Vec::new(),
    };
    let used_versions = marathon.used_versions();
    let apps = checked_ids("apps", &marathon.apps)?
        .into_iter()
        .map(|id| (id, false));
    let pods = checked_ids("pods", &marathon.pods)?
        .into_iter()
        .map(|id| (id, true));
    let specs: Vec<(String, bool)> = apps.chain(pods).collect();
    let versions = specs.into_iter().map(|(id, is_pod)| {
        let used_versions = used_versions.get(&id).cloned().unwrap_or_default();
        async move {
            let past_versions = past_versions(api, &id, is_pod, &used_versions, max_versions).await?;
            anyhow::Ok((id, past_versions))
        }
    });
    marathon.versions = futures::stream::iter(versions)
        .buffer_unordered(MAX_CONCURRENT)
        .try_collect()
        .await?;
    Ok(marathon)
}

/// The ids of apps or pods. They are checked, because they become parts of paths.
fn checked_ids(list_name: &str, documents: &[Value]) -> anyhow::Result<Vec<String>> {
    let is_path = |id: &str| {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-./".contains(&byte);
        id.len() > 1
            && id.starts_with('/')
            && !id.contains("//")
            && !id.contains("..")
            && id.bytes().all(is_allowed)
    };
    let id = |document: &Value| {
        let id = document["id"].as_str().unwrap_or_default();
        ensure!(
            is_path(id),
            "/v2/{list_name} has the id {id:?}, expected a path such as /shop/web"
        );
        Ok(id.to_owned())
    };
    documents.iter().map(id).collect()
}

/// Reads the past definitions of an app or pod. One that Marathon deletes in the meantime is left out.
async fn past_versions(
    api: &Api,
    id: &str,
    is_pod: bool,
    used_versions: &[String],
    max_versions: usize,
) -> anyhow::Result<Vec<Value>> {
    let (folder, expected) = if is_pod {
        (format!("/v2/pods{id}::versions"), LIST)
    } else {
        (format!("/v2/apps{id}/versions"), VERSIONS)
    };
    let Some(answer) = api.get(&folder, expected, MAX_DEFINITION).await? else {
        return Ok(Vec::new());
    };
    let names = if is_pod { &answer } else { &answer["versions"] };
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_time = |name: &&str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-:.".contains(&byte))
    };
    // Timestamps in this form sort as text.
    let mut names: Vec<&str> = names
        .filter(is_time)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .rev()
        .collect();
    let newest = names.len().min(max_versions);
    let older = names.split_off(newest);
    names.extend(
        older
            .into_iter()
            .filter(|name| used_versions.iter().any(|used| used == name)),
    );
    let mut past_versions = Vec::new();
    for name in names {
        past_versions.extend(
            api.get(&format!("{folder}/{name}"), OBJECT, MAX_DEFINITION)
                .await?,
        );
    }
    Ok(past_versions)
}
