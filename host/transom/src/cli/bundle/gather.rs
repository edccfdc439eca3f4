//! Gathers the files of the archive. `missing.txt` has a line for each unavailable file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use transom_cli::{Connection, exit::Misconfigured, overview::Overview, status};
use transom_config::{Overrides, Settings};

use super::archive::{Member, bounded};
use super::masks::{self, Secrets};
use crate::cli::doctor;
use crate::daemon::services::SERVICES;

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Plugins whose history and log are read.
const MAX_PLUGINS: usize = 50;

/// Documents of the daemon's admin port: path, file and description.
const ADMIN: &[(&[&str], &str, &str)] = &[
    (&["ready"], "ready.json", "readiness of the services"),
    (&["metrics"], "metrics.txt", "metrics"),
    (&["v1", "plugins"], "plugins.json", "plugins"),
];

/// A valid configuration.
struct Configured {
    settings: Settings,
    rows: String,
    secrets: Secrets,
}

#[derive(Default)]
struct Gathered {
    members: Vec<Member>,
    missing: Vec<String>,
}

/// All files, within the limits and without secrets.
pub(super) async fn collect(connection: &Connection) -> anyhow::Result<Vec<Member>> {
    let mut gathered = Gathered::default();
    let configured = if let Some(file) = connection.config() {
        configuration(file, &mut gathered)?
    } else {
        gathered
            .missing
            .push("configuration.json, doctor.json: no configuration was named (--config)".to_owned());
        None
    };
    gathered.environment();
    let overview = gathered.overview(connection).await;
    if overview.is_some() {
        gathered.admin(connection).await;
        gathered.plugins(connection).await;
    }
    for service in overview.iter().flat_map(|overview| &overview.services) {
        gathered.lists(connection, &service.name).await;
    }
    if let (Some(configured), Some(file)) = (&configured, connection.config()) {
        gathered.add(
            "configuration.json",
            "every setting with its source",
            configured.rows.clone(),
        );
        let findings = doctor::run_checks(&configured.settings, file, true).await;
        let text = serde_json::to_string_pretty(&json!({"findings": findings}))?;
        gathered.add("doctor.json", "findings of `transom doctor`", text);
    }
    if !gathered.missing.is_empty() {
        let text = gathered.missing.join("\n") + "\n";
        gathered.add("missing.txt", "unavailable files, with the reasons", text);
    }
    let secrets = configured.map_or_else(Secrets::default, |it| it.secrets);
    let members = gathered.members.into_iter();
    let masked = members.map(|member| Member {
        content: secrets.masked(&member.content),
        ..member
    });
    Ok(bounded(masked.collect()))
}

/// Reads the configuration. An invalid one is only reported in `missing.txt`.
///
/// # Errors
/// The file does not exist, so its name is probably a mistake.
fn configuration(file: &Path, gathered: &mut Gathered) -> anyhow::Result<Option<Configured>> {
    if !file.is_file() {
        let error = anyhow::anyhow!("no configuration at {}", file.display());
        return Err(error.context(Misconfigured));
    }
    let Ok((settings, figment)) = transom_config::load(Some(file), Overrides::default()) else {
        // The error is not included, because its text may quote a secret.
        let line = "configuration.json, doctor.json: the configuration is invalid; `transom config check` has the reason";
        gathered.missing.push(line.to_owned());
        return Ok(None);
    };
    let rows = transom_config::rows(&settings, &figment)?;
    Ok(Some(Configured {
        rows: serde_json::to_string_pretty(&rows).context("the settings as JSON")?,
        secrets: Secrets::new(transom_config::secrets(&settings, &figment)?),
        settings,
    }))
}

impl Gathered {
    fn add(&mut self, name: impl Into<String>, about: &'static str, content: impl Into<String>) {
        self.members.push(Member::new(name, about, content));
    }

    /// Adds a masked JSON document. A text that is not JSON is left out.
    fn add_document(&mut self, name: String, about: &'static str, text: &str) {
        match serde_json::from_str::<Value>(text) {
            Ok(mut document) => {
                masks::document(&mut document);
                self.add(name, about, format!("{document:#}\n"));
            }
            Err(error) => self
                .missing
                .push(format!("{name}: the response is not JSON: {error}")),
        }
    }

    /// Adds a description of the machine, and the limits of this process.
    fn environment(&mut self) {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let line = |file: &str, name: &str| {
            let text = read(file);
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.map(|rest| rest.trim_matches(['"', ' ', '\t', ':', '=']).to_owned())
        };
        let document = json!({
            "transom": env!("CARGO_PKG_VERSION"),
            "kernel": read("/proc/version").trim(),
            "system": line("/etc/os-release", "PRETTY_NAME"),
            "hostname": read("/proc/sys/kernel/hostname").trim(),
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "memory": line("/proc/meminfo", "MemTotal"),
            "limits": read("/proc/self/limits").lines().collect::<Vec<_>>(),
            "resolver": read("/etc/resolv.conf").lines().collect::<Vec<_>>(),
            "time": jiff::Timestamp::now(),
        });
        self.add(
            "environment.json",
            "version, machine, kernel, limits",
            format!("{document:#}\n"),
        );
    }

    async fn overview(&mut self, connection: &Connection) -> Option<Overview> {
        let body = match connection.get_text(&["v1", "overview"], status::TIMEOUT).await {
            Ok(body) => body,
            Err(error) => {
                self.missing
                    .push(format!("overview.json and all state of the daemon: {error:#}"));
                return None;
            }
        };
        let overview = status::read(&body);
        self.add_document("overview.json".to_owned(), "what `transom status` shows", &body);
        overview.ok()
    }

    async fn admin(&mut self, connection: &Connection) {
        for &(path, name, about) in ADMIN {
            // `/ready` of a daemon that is not ready has an error status and a body.
            match connection.get_any_status(path, TIMEOUT).await {
                Ok((_, body)) if Path::new(name).extension().is_some_and(|it| it == "txt") => {
                    self.add(name, about, body);
                }
                Ok((_, body)) => self.add_document(name.to_owned(), about, &body),
                Err(error) => self.missing.push(format!("{name}: {error:#}")),
            }
        }
    }

    async fn plugins(&mut self, connection: &Connection) {
        let list = connection
            .get_text(&["v1", "plugins"], TIMEOUT)
            .await
            .unwrap_or_default();
        let list: Value = serde_json::from_str(&list).unwrap_or_default();
        let plugins = list["plugins"].as_array().into_iter().flatten();
        for name in plugins
            .filter_map(|plugin| plugin["name"].as_str())
            .take(MAX_PLUGINS)
        {
            for (member, comment) in [
                ("history", "history of a plugin"),
                ("log", "newest lines of its log"),
            ] {
                let path = ["v1", "plugins", name, member];
                // A plugin that was never admitted has neither a history nor a log.
                if let Ok(body) = connection.get_text(&path, TIMEOUT).await {
                    self.add_document(format!("plugins/{name}/{member}.json"), comment, &body);
                }
            }
        }
    }

    /// Adds the lists of a service. They are requested from the admin port: the address of the
    /// service's own port may be one of another machine, which must not receive the credentials.
    async fn lists(&mut self, connection: &Connection, service: &str) {
        let kind = SERVICES.iter().find(|kind| kind.name() == service);
        for (path, about) in kind.map(|kind| kind.lists()).into_iter().flatten() {
            let name = format!("state/{service}-{}.json", path.replace('/', "-"));
            let segments: Vec<&str> = ["v1", "services", service]
                .into_iter()
                .chain(path.split('/'))
                .collect();
            match connection.get_text(&segments, TIMEOUT).await {
                Ok(body) => self.add_document(name, about, &body),
                Err(error) => self.missing.push(format!("{name}: {error:#}")),
            }
        }
    }
}
