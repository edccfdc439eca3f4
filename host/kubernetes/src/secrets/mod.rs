//! The secrets of the tasks, and the stored record of those that belong to the datastore.
//!
//! The record is written once, at the first start of a framework. Its password is the configured one
//! or a random one. It stays the password in use, whatever the configuration says later, because the
//! SQL server keeps the password with which its data was created; [`DatastoreRecord::adopt`] follows a
//! change that was made there.

mod authority;
mod in_use;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use transom_common::{Secret, ambient};

use crate::config::Config;
use crate::settings::Engine;
use crate::{Error, Result};

pub(crate) use authority::{Authority, Signed};
pub(crate) use in_use::InUse;

/// The password of a SQL datastore that daemons without this record used by default, and that m3s uses.
pub(crate) const FORMER_PASSWORD: &str = "password";

/// The secrets that tasks receive.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// The token with which servers and agents join.
    pub(crate) token: Secret,
    /// The password of a SQL datastore.
    pub(crate) password: Secret,
    /// The certificates of the datastore; `None`: the framework does not start it itself, or it has no TLS
    /// or that of the operator's certificates.
    pub(crate) tls: Option<DatastoreTls>,
}

/// The certificates of a datastore.
#[derive(Clone, Debug)]
pub(crate) struct DatastoreTls {
    pub(crate) authority: Authority,
    /// The certificate of its clients: servers, one-off tasks and the daemon.
    pub(crate) client: Signed,
    /// From when the term's certificates are valid.
    pub(crate) since: Timestamp,
}

impl Secrets {
    pub(crate) fn new(
        token: Secret,
        datastore: &DatastoreRecord,
        config: &Config,
        now: Timestamp,
    ) -> Result<Self> {
        let security = protected(config).and_then(|engine| datastore.security(engine));
        let authority = match security {
            Some(Security::Tls(authority)) => Some(authority),
            _ => None,
        };
        let tls = authority.map(|authority| {
            Ok(DatastoreTls {
                authority: authority.clone(),
                client: authority.client(now)?,
                since: now,
            })
        });
        Ok(Self {
            token,
            password: datastore.password.clone(),
            tls: tls.transpose().map_err(Error::Certificates)?,
        })
    }

    /// The scheme of the kvstore's URLs.
    pub(crate) fn kvstore_scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) fn credentials(&self, config: &Config) -> Credentials {
        let engine = config.settings.engine();
        let sql = engine == Engine::Sql;
        Credentials {
            engine: engine.as_str(),
            username: sql.then(|| config.settings.ds_mysql_username.clone()),
            password: sql.then(|| self.password.clone()),
            authority: self.tls.as_ref().map(|tls| tls.authority.certificate.clone()),
            certificate: self.tls.as_ref().map(|tls| tls.client.certificate.clone()),
            key: self.tls.as_ref().map(|tls| tls.client.key.clone()),
        }
    }
}

/// What a client of the datastore needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub(crate) struct Credentials {
    #[schemars(extend("enum" = ["sql", "kvstore"]))]
    engine: &'static str,
    username: Option<String>,
    #[serde(serialize_with = "reveal_optional")]
    #[schemars(with = "Option<String>")]
    password: Option<Secret>,
    /// In PEM: the certificate of the authority, and that of a client with its key.
    authority: Option<String>,
    certificate: Option<String>,
    #[serde(serialize_with = "reveal_optional")]
    #[schemars(with = "Option<String>")]
    key: Option<Secret>,
}

/// The stored secrets of the datastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatastoreRecord {
    /// The password of a SQL datastore.
    #[serde(serialize_with = "reveal")]
    pub(crate) password: Secret,
    /// `None`: no kvstore was started yet.
    #[serde(default)]
    kvstore: Option<Security>,
    /// `None`: no SQL server that the framework protects was started yet. Records without this field are
    /// from daemons that started SQL servers without TLS.
    #[serde(default = "plaintext")]
    sql: Option<Security>,
    /// `None`: the record is from a daemon that did not keep them, or the datastore was moved.
    #[serde(default)]
    pub(crate) in_use: Option<InUse>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde asks for the type of the field")]
fn plaintext() -> Option<Security> {
    Some(Security::Plaintext)
}

/// How a datastore is protected. All members of a kvstore are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Security {
    Plaintext,
    Tls(Authority),
}

/// The engine of a datastore whose protection is the framework's; `None`: that of the operator's command,
/// certificates or server.
fn protected(config: &Config) -> Option<Engine> {
    let section = &config.settings;
    let own = match section.engine() {
        Engine::Kvstore => !section.runs_ds_command(),
        Engine::Sql => section.containers && !section.ds_mysql_ssl && section.ds_endpoint.is_none(),
    };
    own.then_some(section.engine())
}

impl DatastoreRecord {
    /// The record with what the present configuration needs. `existing`: the framework was started by a
    /// daemon that had no such records, or imported, so a SQL datastore has the former default password,
    /// and the datastore has no TLS.
    pub(crate) fn complete(stored: Option<Self>, config: &Config, existing: bool) -> Result<Self> {
        let existing = existing && stored.is_none();
        let mut record = stored.unwrap_or_else(|| Self::first(config, existing));
        let Some(engine) = protected(config) else {
            return Ok(record);
        };
        let security = match engine {
            Engine::Kvstore => &mut record.kvstore,
            Engine::Sql => &mut record.sql,
        };
        if security.is_none() {
            *security = Some(if existing || !config.settings.ds_tls() {
                Security::Plaintext
            } else {
                Security::Tls(Authority::generate().map_err(Error::Certificates)?)
            });
        }
        Ok(record)
    }

    fn first(config: &Config, existing: bool) -> Self {
        let password = config.settings.ds_mysql_password.clone();
        let default = || {
            if existing && config.settings.engine() == Engine::Sql {
                FORMER_PASSWORD.into()
            } else {
                random().into()
            }
        };
        Self {
            password: password.unwrap_or_else(default),
            kvstore: None,
            sql: None,
            in_use: None,
        }
    }

    fn security(&self, engine: Engine) -> Option<&Security> {
        match engine {
            Engine::Kvstore => self.kvstore.as_ref(),
            Engine::Sql => self.sql.as_ref(),
        }
    }

    /// Whether the configuration has another password than the one in use.
    pub(crate) fn differs_from(&self, config: &Config) -> bool {
        let configured = config.settings.ds_mysql_password.as_ref();
        config.settings.engine() == Engine::Sql && configured.is_some_and(|it| *it != self.password)
    }

    /// The record with the configured user and password; `None`: both are in use.
    pub(crate) fn adopt(&self, config: &Config) -> Option<Self> {
        let section = &config.settings;
        let username = self
            .in_use
            .as_ref()
            .map(|known| known.with_username(&section.ds_mysql_username));
        let adopted = Self {
            password: section
                .ds_mysql_password
                .clone()
                .unwrap_or_else(|| self.password.clone()),
            in_use: username,
            ..self.clone()
        };
        (section.engine() == Engine::Sql && adopted != *self).then_some(adopted)
    }

    /// The record with these settings in use.
    pub(crate) fn using(&self, in_use: Option<InUse>) -> Self {
        Self {
            in_use,
            ..self.clone()
        }
    }

    /// Logs what an operator should change.
    pub(crate) fn warn(&self, config: &Config) {
        let (framework, section) = (config.name(), &config.settings);
        let engine = protected(config);
        let security = engine.and_then(|engine| self.security(engine));
        match security.zip(engine) {
            Some((Security::Tls(_), Engine::Kvstore)) if !section.ds_tls() => tracing::warn!(
                framework,
                "`ds_etcd_tls` (DS_ETCD_TLS) is ignored: the kvstore was created with TLS and keeps it"
            ),
            Some((Security::Tls(_), Engine::Sql)) if !section.ds_tls() => tracing::warn!(
                framework,
                "`ds_mysql_tls` (DS_MYSQL_TLS) is ignored: the SQL datastore was created with TLS and keeps it"
            ),
            Some((Security::Plaintext, Engine::Sql)) if config.kinds.datastore.count > 0 => tracing::warn!(
                framework,
                "the connections of servers to the SQL datastore are not encrypted: whoever can read the network \
                 between agents can read the whole cluster's data. docs/framework.md, \"Datastore credentials and \
                 TLS\", describes how to move to a datastore with TLS"
            ),
            Some((Security::Plaintext, Engine::Kvstore)) => tracing::warn!(
                framework,
                "the kvstore has neither TLS nor authentication: whoever reaches its host ports can read and change \
                 the whole cluster. docs/framework.md, \"Datastore credentials and TLS\", describes how to move to a \
                 kvstore with TLS"
            ),
            _ => {}
        }
        if section.engine() != Engine::Sql || config.kinds.datastore.count == 0 {
            return;
        }
        if self.differs_from(config) {
            tracing::error!(
                framework,
                "`ds_mysql_password` (DS_MYSQL_PASSWORD) is not the password in use and is ignored: the SQL server \
                 keeps the password with which its data was created. Change it there, then run `transom fw \
                 credentials {framework} --adopt`; or remove the setting"
            );
        }
        if self.password.reveal() == FORMER_PASSWORD {
            tracing::warn!(
                framework,
                "the password of the SQL datastore is the well-known default `{FORMER_PASSWORD}`: whoever reaches the \
                 datastore's host port can read and change the whole cluster. Change it as docs/framework.md, \
                 \"Datastore credentials and TLS\", describes"
            );
        }
    }
}

/// A text of 64 hexadecimal digits that cannot be guessed.
pub(crate) fn random() -> String {
    let part = || ambient::uuid().simple();
    format!("{}{}", part(), part())
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
pub(crate) fn reveal_optional<S: Serializer>(
    secret: &Option<Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(Secret::reveal).serialize(serializer)
}

fn reveal<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

#[cfg(test)]
mod tests;
