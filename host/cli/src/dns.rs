//! `transom dns`: looks a name up through the daemon's discovery port.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::apps;
use crate::exit::Misconfigured;
use crate::http::{self, Client, Endpoint, Failure, PortName};
use crate::list::{Cell, Column, ListOptions};

const PORT: PortName = PortName {
    service: "discovery",
    setting: "discovery.http_port",
    options: "--url or TRANSOM_DISCOVERY_URL",
};
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Look a name up as DNS answers it: the addresses of a host, and the ports of its tasks.
///
/// The domain may be left out, and so may the framework if the name is unknown without it. An app's id,
/// such as /shop/web, stands for its name. A name that begins with `_` is that of a service (SRV).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom dns web.marathon.mesos\n  \
    transom dns /shop/web\n  \
    transom dns _web._tcp.marathon.mesos -o json")]
pub struct Dns {
    /// The name, or the id of an app.
    name: String,
    /// URL of the daemon's discovery port for HTTP (`discovery.http_port`).
    #[arg(
        long,
        env = "TRANSOM_DISCOVERY_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8123"
    )]
    url: String,
    #[command(flatten)]
    list: ListOptions,
}

const COLUMNS: &[Column] = &[
    Column::Name("name"),
    Column::Fixed("type"),
    Column::Fixed("address"),
    Column::Fixed("port"),
    Column::Wide("target"),
];

struct Api(Client);

impl Dns {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let endpoint = Endpoint {
            url: http::url("--url", &self.url, "http://127.0.0.1:8123").context(Misconfigured)?,
            credentials: None,
            certificates: None,
        };
        let api = Api(Client::new(endpoint, TIMEOUT)?);
        let config = api.get(&["v1", "config"], false).await?.unwrap_or_default();
        let domain = config["Domain"]
            .as_str()
            .unwrap_or("mesos")
            .trim_end_matches('.')
            .to_owned();
        let Some((name, hosts, services)) = self.look_up(&api, &domain).await? else {
            bail!("{}", self.unknown(&api, &domain).await);
        };
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let text = |value: &Value| value.as_str().unwrap_or("-").trim_end_matches('.').to_owned();
        for host in &hosts {
            let ip = text(&host["ip"]);
            let kind = if ip.contains(':') { "AAAA" } else { "A" };
            rows.push(vec![
                text(&host["host"]).into(),
                kind.into(),
                ip.into(),
                "-".into(),
                "-".into(),
            ]);
        }
        for service in &services {
            rows.push(vec![
                text(&service["service"]).into(),
                "SRV".into(),
                text(&service["ip"]).into(),
                text(&service["port"]).into(),
                text(&service["host"]).into(),
            ]);
        }
        // The names are the question, so `-o name` prints what answers it.
        for row in &mut rows {
            row.push(row[2].clone());
        }
        let document = json!({"name": name, "hosts": hosts, "services": services});
        self.list.print(&document, COLUMNS, COLUMNS.len(), rows)
    }

    /// The first known name of those that may be meant, with its hosts and services.
    async fn look_up(
        &self,
        api: &Api,
        domain: &str,
    ) -> anyhow::Result<Option<(String, Vec<Value>, Vec<Value>)>> {
        for name in names(&self.name, domain, &[]) {
            if let Some(found) = api.look_up(&name).await? {
                return Ok(Some(found));
            }
        }
        let frameworks = api.frameworks().await;
        for name in names(&self.name, domain, &frameworks) {
            if let Some(found) = api.look_up(&name).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn unknown(&self, api: &Api, domain: &str) -> String {
        let known = api.names().await;
        let wanted = names(&self.name, domain, &[]).pop().unwrap_or_default();
        // Names of services resemble those of hosts, but are not what is meant.
        let is_alike = |name: &&str| name.starts_with('_') == wanted.starts_with('_');
        let alike = known.iter().map(String::as_str).filter(is_alike);
        let nearest = apps::nearest(&wanted, alike);
        if nearest.is_empty() {
            format!("no record has the name {wanted}; {} names are known", known.len())
        } else {
            format!(
                "no record has the name {wanted}; did you mean {}?",
                nearest.join(" or ")
            )
        }
    }
}

/// The names that may be meant: as it is, in the domain, and as a task of each framework.
fn names(name: &str, domain: &str, frameworks: &[String]) -> Vec<String> {
    // mesos-dns has the parts of an app's id in reverse.
    let name = match name.strip_prefix('/') {
        Some(id) => id.trim_end_matches('/').rsplit('/').collect::<Vec<_>>().join("-"),
        None => name.trim_end_matches('.').to_owned(),
    };
    let is_in_domain = name == domain || name.ends_with(&format!(".{domain}"));
    if is_in_domain {
        return if frameworks.is_empty() {
            vec![name]
        } else {
            Vec::new()
        };
    }
    if frameworks.is_empty() {
        return vec![format!("{name}.{domain}")];
    }
    frameworks
        .iter()
        .map(|framework| format!("{name}.{framework}.{domain}"))
        .collect()
}

impl Api {
    /// The document at a path; `None` for 404.
    async fn get(&self, path: &[&str], strict: bool) -> anyhow::Result<Option<Value>> {
        let mut request = self.0.request(Method::GET, path.iter().copied());
        if strict {
            request = request.query(&[("strict", "true")]);
        }
        let response = self
            .0
            .send(request)
            .await
            .map_err(|failure| self.error(failure))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let text = http::success_text(response)
            .await
            .map_err(|failure| self.error(failure))?;
        let document = serde_json::from_str(&text);
        document.map(Some).with_context(|| {
            format!(
                "{} is not a discovery port: its response is not JSON",
                self.0.base_url()
            )
        })
    }

    fn error(&self, failure: Failure) -> anyhow::Error {
        PORT.no_answer(self.0.base_url(), failure)
    }

    /// The hosts and services of a name, if it has any.
    async fn look_up(&self, name: &str) -> anyhow::Result<Option<(String, Vec<Value>, Vec<Value>)>> {
        let list = |document: Option<Value>| match document {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        let (hosts, service) = if name.starts_with('_') {
            (Vec::new(), Some(format!("{name}.")))
        } else {
            let hosts = list(self.get(&["v1", "hosts", name], true).await?);
            let service = name
                .split_once('.')
                .map(|(task, rest)| format!("_{task}._tcp.{rest}."));
            (hosts, service)
        };
        let services = match service {
            Some(service) => list(self.get(&["v1", "services", &service], true).await?),
            None => Vec::new(),
        };
        let is_known = !hosts.is_empty() || !services.is_empty();
        Ok(is_known.then(|| (name.to_owned(), hosts, services)))
    }

    /// The labels of the frameworks, without the domain.
    async fn frameworks(&self) -> Vec<String> {
        let document = self.enumeration().await;
        let frameworks = document["frameworks"].as_array().into_iter().flatten();
        frameworks
            .filter_map(|framework| Some(framework["name"].as_str()?.to_lowercase()))
            .collect()
    }

    /// All names of tasks.
    async fn names(&self) -> Vec<String> {
        let document = self.enumeration().await;
        let frameworks = document["frameworks"].as_array().into_iter().flatten();
        let tasks = frameworks.flat_map(|framework| framework["tasks"].as_array().into_iter().flatten());
        let records = tasks.flat_map(|task| task["records"].as_array().into_iter().flatten());
        let mut names: Vec<String> = records
            .filter_map(|record| Some(record["name"].as_str()?.trim_end_matches('.').to_owned()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// All records, which are only needed for names that are not complete.
    async fn enumeration(&self) -> Value {
        let document = self.get(&["v1", "enumerate"], false).await;
        document.ok().flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_names_and_ids_of_apps_are_completed() {
        let frameworks = ["marathon".to_owned(), "other".to_owned()];
        for (name, frameworks, expected) in [
            ("web.marathon.mesos.", &[][..], &["web.marathon.mesos"][..]),
            ("web.marathon", &[], &["web.marathon.mesos"]),
            ("/shop/web", &[], &["web-shop.mesos"]),
            ("/shop/web", &frameworks[..1], &["web-shop.marathon.mesos"]),
            ("web", &frameworks, &["web.marathon.mesos", "web.other.mesos"]),
            ("web.mesos", &frameworks, &[]),
            ("_web._tcp.marathon.mesos", &[], &["_web._tcp.marathon.mesos"]),
        ] {
            assert_eq!(names(name, "mesos", frameworks), expected, "{name}");
        }
    }
}
