//! The secrets of the tasks, and the stored record of those that belong to the datastore.
//!
//! The record is written once, at the first start of a framework. Its password is the configured one
//! or a random one. It stays the password in use, whatever the configuration says later, because the
//! SQL server keeps the password with which its data was created; [`DatastoreRecord::adopt`] follows a
//! change that was made there.

use serde::{Deserialize, Serialize, Serializer};
use transom_common::Secret;

use crate::backup::EngineName;
use crate::config::{Config, Engine};

/// The password of a SQL datastore that daemons without this record used by default, and that m3s uses.
pub(crate) const FORMER_PASSWORD: &str = "password";

/// The secrets that tasks receive.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// The token with which servers and agents join.
    pub(crate) token: Secret,
    /// The password of a SQL datastore.
    pub(crate) password: Secret,
}

impl Secrets {
    pub(crate) fn new(token: Secret, datastore: &DatastoreRecord) -> Self {
        Self {
            token,
            password: datastore.password.clone(),
        }
    }

    pub(crate) fn credentials(&self, config: &Config) -> Credentials {
        let engine = config.datastore.engine;
        let sql = engine == Engine::Sql;
        Credentials {
            engine: EngineName::from(engine).as_str(),
            username: sql.then(|| config.datastore.username.clone()),
            password: sql.then(|| self.password.clone()),
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
}

/// The stored secrets of the datastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DatastoreRecord {
    /// The password of a SQL datastore.
    #[serde(serialize_with = "reveal")]
    pub(crate) password: Secret,
}

impl DatastoreRecord {
    /// The record of a framework without one. `existing`: the framework was started by a daemon that
    /// had no such records, or imported, so its datastore has the former default password.
    pub(crate) fn first(config: &Config, existing: bool) -> Self {
        let password = config.datastore.password.clone();
        let default = || match existing && config.datastore.engine == Engine::Sql {
            true => FORMER_PASSWORD.into(),
            false => random().into(),
        };
        Self {
            password: password.unwrap_or_else(default),
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
        self.differs_from(config).then_some(Self { password: password? })
    }

    /// Logs what an operator should change.
    pub(crate) fn warn(&self, config: &Config) {
        let (framework, datastore) = (&config.name, &config.datastore);
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

fn reveal_optional<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(Secret::reveal).serialize(serializer)
}

fn reveal<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

#[cfg(test)]
mod tests;
