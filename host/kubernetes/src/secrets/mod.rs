//! The secrets of the tasks, and the stored record of those that belong to the datastore.
//!
//! The record is written once, at the first start of a framework. Its password is the configured one
//! or a random one. It stays the password in use, whatever the configuration says later, because the
//! SQL server keeps the password with which its data was created; [`DatastoreRecord::adopt`] follows a
//! change that was made there.

mod authority;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use transom_common::Secret;

use crate::backup::EngineName;
use crate::config::{Config, Engine};
use crate::{Error, Result};

pub(crate) use authority::{Authority, Signed};

/// The password of a SQL datastore that daemons without this record used by default, and that m3s uses.
pub(crate) const FORMER_PASSWORD: &str = "password";

/// The secrets that tasks receive.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// The token with which servers and agents join.
    pub(crate) token: Secret,
    /// The password of a SQL datastore.
    pub(crate) password: Secret,
    /// The certificates of a kvstore; `None`: it has no TLS, or there is no kvstore that the framework
    /// starts itself.
    pub(crate) kvstore: Option<KvstoreTls>,
}

/// The certificates of a kvstore.
#[derive(Clone, Debug)]
pub(crate) struct KvstoreTls {
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
        let authority = match &datastore.kvstore {
            Some(KvstoreSecurity::Tls(authority)) if starts_kvstore(config) => Some(authority),
            _ => None,
        };
        let kvstore = authority.map(|authority| {
            Ok(KvstoreTls {
                authority: authority.clone(),
                client: authority.client(now)?,
                since: now,
            })
        });
        Ok(Self {
            token,
            password: datastore.password.clone(),
            kvstore: kvstore.transpose().map_err(Error::Certificates)?,
        })
    }

    /// The scheme of the kvstore's URLs.
    pub(crate) fn kvstore_scheme(&self) -> &'static str {
        if self.kvstore.is_some() { "https" } else { "http" }
    }

    pub(crate) fn credentials(&self, config: &Config) -> Credentials {
        let engine = config.datastore.engine;
        let sql = engine == Engine::Sql;
        Credentials {
            engine: EngineName::from(engine).as_str(),
            username: sql.then(|| config.datastore.username.clone()),
            password: sql.then(|| self.password.clone()),
            authority: self.kvstore.as_ref().map(|tls| tls.authority.certificate.clone()),
            certificate: self.kvstore.as_ref().map(|tls| tls.client.certificate.clone()),
            key: self.kvstore.as_ref().map(|tls| tls.client.key.clone()),
        }
    }
}

/// What a client of the datastore needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Credentials {
    engine: &'static str,
    username: Option<String>,
    #[serde(serialize_with = "reveal_optional")]
    password: Option<Secret>,
    /// In PEM: the certificate of the authority, and that of a client with its key.
    authority: Option<String>,
    certificate: Option<String>,
    #[serde(serialize_with = "reveal_optional")]
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
    kvstore: Option<KvstoreSecurity>,
}

/// How the members of a kvstore are protected. All members of a cluster are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KvstoreSecurity {
    Plaintext,
    Tls(Authority),
}

/// Whether the datastore is a kvstore whose command is the framework's.
fn starts_kvstore(config: &Config) -> bool {
    config.datastore.engine == Engine::Kvstore && !config.datastore.is_command(&config.containers)
}

impl DatastoreRecord {
    /// The record with what the present configuration needs. `existing`: the framework was started by a
    /// daemon that had no such records, or imported, so a SQL datastore has the former default password,
    /// and a kvstore has no TLS.
    pub(crate) fn complete(stored: Option<Self>, config: &Config, existing: bool) -> Result<Self> {
        let existing = existing && stored.is_none();
        let mut record = stored.unwrap_or_else(|| Self::first(config, existing));
        if record.kvstore.is_none() && starts_kvstore(config) {
            record.kvstore = Some(if existing || !config.datastore.tls {
                KvstoreSecurity::Plaintext
            } else {
                KvstoreSecurity::Tls(Authority::generate().map_err(Error::Certificates)?)
            });
        }
        Ok(record)
    }

    fn first(config: &Config, existing: bool) -> Self {
        let password = config.datastore.password.clone();
        let default = || {
            if existing && config.datastore.engine == Engine::Sql {
                FORMER_PASSWORD.into()
            } else {
                random().into()
            }
        };
        Self {
            password: password.unwrap_or_else(default),
            kvstore: None,
        }
    }

    /// Whether the configuration has another password than the one in use.
    pub(crate) fn differs_from(&self, config: &Config) -> bool {
        let configured = config.datastore.password.as_ref();
        config.datastore.engine == Engine::Sql && configured.is_some_and(|it| *it != self.password)
    }

    /// The record with the configured password; `None`: it is the one in use, or none is configured.
    pub(crate) fn adopt(&self, config: &Config) -> Option<Self> {
        let password = config.datastore.password.clone();
        self.differs_from(config).then_some(Self {
            password: password?,
            kvstore: self.kvstore.clone(),
        })
    }

    /// Logs what an operator should change.
    pub(crate) fn warn(&self, config: &Config) {
        let (framework, datastore) = (&config.name, &config.datastore);
        match &self.kvstore {
            _ if !starts_kvstore(config) => {}
            Some(KvstoreSecurity::Tls(_)) if !datastore.tls => tracing::warn!(
                framework,
                "`ds_etcd_tls` (DS_ETCD_TLS) is ignored: the kvstore was created with TLS and keeps it"
            ),
            Some(KvstoreSecurity::Plaintext) => tracing::warn!(
                framework,
                "the kvstore has neither TLS nor authentication: whoever reaches its host ports can read and change \
                 the whole cluster. docs/framework.md, \"Datastore credentials and TLS\", describes how to move to a \
                 kvstore with TLS"
            ),
            _ => {}
        }
        if datastore.engine != Engine::Sql || config.kinds.datastore.count == 0 {
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
    let part = || uuid::Uuid::new_v4().simple();
    format!("{}{}", part(), part())
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn reveal_optional<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(Secret::reveal).serialize(serializer)
}

fn reveal<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

#[cfg(test)]
mod tests;
