//! The configuration file of the published command line, as far as it concerns `fw`.
//!
//! * `[master]` has `address`, or `[master.zookeeper]` with `addresses` and `path`; `principal`,
//!   `secret` and `ssl_verify`.
//! * `[fw.NAME]` or `[m3s.NAME]` has `principal`, `secret` and `ssl_verify` of the framework with
//!   that name; `[fw]` or `[m3s]` those of every other framework.
//!
//! Other keys, such as `plugins`, belong to that command line and are not read. `ssl_verify` is false
//! by default in both programs, so that a file has the same meaning for both.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use toml::{Table, Value};
use transom_cluster::{Credentials, Tls};
use transom_common::Secret;

use crate::exit::Misconfigured;

/// The largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The variables that name the file; the first one that is set wins.
const VARIABLES: [&str; 2] = ["CLUSTER_CLI_CONFIG", "MESOS_CLI_CONFIG"];
/// The names of sections for frameworks; the first one takes precedence.
const SECTIONS: [&str; 2] = ["fw", "m3s"];

/// The parsed configuration file.
#[derive(Debug)]
pub(super) struct Config {
    file: PathBuf,
    content: Table,
}

/// How to connect to a framework's API.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) credentials: Option<(String, Secret)>,
    /// Whether certificates are verified.
    pub(super) verify: bool,
    /// The section that contains the credentials, or that should contain them.
    pub(super) section: String,
    /// The section with the older name, if its credentials are ignored.
    pub(super) unused: Option<String>,
}

impl Config {
    /// Reads the file that the environment names.
    pub(super) fn read() -> anyhow::Result<Self> {
        let file = file(|name| std::env::var_os(name).map(PathBuf::from)).context(Misconfigured)?;
        Self::read_file(file).context(Misconfigured)
    }

    /// Reads this file.
    pub(super) fn read_file(file: PathBuf) -> anyhow::Result<Self> {
        let text = read_bounded(&file)?;
        Self::parse(file, &text)
    }

    fn parse(file: PathBuf, text: &str) -> anyhow::Result<Self> {
        // The parser's own message quotes the line, which may contain a secret.
        let content = text.parse::<Table>().map_err(|error| {
            let line = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map_or(1, |before| before.matches('\n').count() + 1);
            anyhow!("{}, line {line}: {}", file.display(), error.message())
        })?;
        Ok(Self { file, content })
    }

    /// The path of the file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The connection to the leading master.
    pub(super) fn master(&self) -> anyhow::Result<transom_cluster::Config> {
        self.connection().context(Misconfigured)
    }

    fn connection(&self) -> anyhow::Result<transom_cluster::Config> {
        let file = self.file.display();
        let section = match self.content.get("master") {
            Some(Value::Table(section)) => section,
            Some(_) => bail!("{file}: `master` is not a table; expected [master] with `address`"),
            None => bail!(
                "{file} has no section [master]: add it with the key `address`, for example address = \"10.0.0.1:5050\""
            ),
        };
        let verify = self.read_bool(section, "master", "ssl_verify")?.unwrap_or(false);
        let (master, tls) = match (section.get("address"), section.get("zookeeper")) {
            (Some(_), Some(_)) => {
                bail!("{file}: [master] has `address` and `zookeeper`; expected one of them")
            }
            (Some(Value::String(address)), None) => {
                let (address, secure) = master_address(address)
                    .with_context(|| format!("{file}: `address` in [master] is {address:?}"))?;
                let tls = Tls {
                    verify,
                    ..Tls::default()
                };
                (address, secure.then_some(tls))
            }
            (Some(_), None) => bail!("{file}: `address` in [master] is not a string"),
            (None, Some(zookeeper)) => (self.zookeeper(zookeeper)?, None),
            (None, None) => {
                bail!("{file}: [master] has no key `address`, and there is no [master.zookeeper]")
            }
        };
        let credentials = self.credentials(section, "master")?;
        Ok(transom_cluster::Config {
            masters: vec![master],
            principal: credentials.as_ref().map(|(principal, _)| principal.clone()),
            credentials: credentials.map(|(username, password)| Credentials { username, password }),
            credential_keys: format!("`principal` and `secret` in [master] of {file}"),
            tls,
            ..transom_cluster::Config::default()
        })
    }

    /// The address of the masters in ZooKeeper.
    fn zookeeper(&self, section: &Value) -> anyhow::Result<String> {
        let file = self.file.display();
        let addresses = section.get("addresses").and_then(Value::as_array);
        let addresses: Option<Vec<&str>> =
            addresses.and_then(|list| list.iter().map(Value::as_str).collect());
        let path = section.get("path").and_then(Value::as_str);
        match (addresses, path) {
            (Some(addresses), Some(path)) if !addresses.is_empty() && path.starts_with('/') => {
                Ok(format!("zk://{}{path}", addresses.join(",")))
            }
            _ => bail!(
                "{file}: [master.zookeeper] needs `addresses`, a list of HOST:PORT, and `path`, such as \"/mesos\""
            ),
        }
    }

    /// Whether there is a section for the framework of this name.
    pub(super) fn has_section_for(&self, framework: &str) -> bool {
        SECTIONS
            .iter()
            .any(|section| self.own_section(section, framework).is_some())
    }

    fn own_section(&self, section: &str, framework: &str) -> Option<&Table> {
        self.content.get(section)?.get(framework)?.as_table()
    }

    /// How to connect to the API of the framework of this name.
    pub(super) fn login(&self, framework: &str) -> anyhow::Result<Login> {
        self.find_login(framework).context(Misconfigured)
    }

    fn find_login(&self, framework: &str) -> anyhow::Result<Login> {
        let sections_of_framework = SECTIONS.iter().filter_map(|section| {
            let table = self.own_section(section, framework)?;
            Some((format!("{section}.{}", key(framework)), table))
        });
        let common_sections = SECTIONS.iter().filter_map(|section| {
            let table = self.content.get(*section)?.as_table()?;
            Some(((*section).to_owned(), table))
        });
        let mut login = Login {
            credentials: None,
            verify: false,
            section: format!("fw.{}", key(framework)),
            unused: None,
        };
        let mut verify = None;
        for (name, table) in sections_of_framework.chain(common_sections) {
            if login.credentials.is_none()
                && let Some(credentials) = self.credentials(table, &name)?
            {
                login.credentials = Some(credentials);
                login.section.clone_from(&name);
            } else if older_name(&login.section).as_ref() == Some(&name)
                && self.credentials(table, &name)?.is_some()
            {
                login.unused = Some(name.clone());
            }
            if verify.is_none() {
                verify = self.read_bool(table, &name, "ssl_verify")?;
            }
        }
        login.verify = verify.unwrap_or(false);
        Ok(login)
    }

    /// `principal` and `secret` of a section: both or neither.
    fn credentials(&self, table: &Table, section: &str) -> anyhow::Result<Option<(String, Secret)>> {
        let file = self.file.display();
        let text = |key: &str| match table.get(key) {
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            // A table in `[fw]` is the section of a framework that is named like this key.
            None | Some(Value::Table(_)) => Ok(None),
            Some(_) => Err(anyhow!("{file}: `{key}` in [{section}] is not a string")),
        };
        match (text("principal")?, text("secret")?) {
            (Some(principal), Some(secret)) => Ok(Some((principal.to_owned(), Secret::from(secret)))),
            (None, None) => Ok(None),
            (Some(_), None) => bail!("{file}: [{section}] has `principal` and no `secret`; both are needed"),
            (None, Some(_)) => bail!("{file}: [{section}] has `secret` and no `principal`; both are needed"),
        }
    }

    fn read_bool(&self, table: &Table, section: &str, key: &str) -> anyhow::Result<Option<bool>> {
        match table.get(key) {
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            None | Some(Value::Table(_)) => Ok(None),
            Some(_) => bail!(
                "{}: `{key}` in [{section}] is neither true nor false",
                self.file.display()
            ),
        }
    }
}

/// The path of the file, from these variables.
fn file(variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    VARIABLES
        .into_iter()
        .find_map(set)
        .or_else(|| set("HOME").map(|home| home.join(".mesos/config.toml")))
        .with_context(|| {
            format!(
                "no configuration file: {} and HOME are not set",
                VARIABLES.join(", ")
            )
        })
}

/// The text of the file, bounded.
fn read_bounded(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let opened = std::fs::File::open(file).with_context(|| {
        format!(
            "cannot read {name}, which names the cluster: create it with [master] and `address` (see `transom fw --help`), or \
             set {} to another file",
            VARIABLES[0]
        )
    })?;
    let mut text = String::new();
    let length = opened
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(
        length as u64 <= MAX_FILE,
        "{name} has more than {} KB: it is not a configuration file",
        MAX_FILE >> 10
    );
    Ok(text)
}

/// `HOST:PORT` of a master's address, and whether it uses TLS. The default port is that of the scheme,
/// as in the published command line.
fn master_address(text: &str) -> anyhow::Result<(String, bool)> {
    let expected = "expected HOST:PORT, http://HOST:PORT or https://HOST:PORT";
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = reqwest::Url::parse(&full).context(expected)?;
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => bail!(expected),
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        bail!(expected)
    };
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    anyhow::ensure!(is_bare && url.path() == "/", expected);
    Ok((format!("{host}:{port}"), secure))
}

/// The older name of a section.
fn older_name(section: &str) -> Option<String> {
    let rest = section.strip_prefix(SECTIONS[0])?;
    Some(format!("{}{rest}", SECTIONS[1]))
}

/// A name as a TOML key, quoted if necessary.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
