//! The settings with which a cluster's data were created. They stay in use, whatever the configuration
//! says later: with another token the servers cannot read the data in the datastore, another volume,
//! driver or kind of datastore is an empty one, and the SQL server has no other user.

use serde::{Deserialize, Serialize};
use transom_common::Secret;

use super::reveal_optional;
use crate::config::Config;
use crate::settings::Engine;

/// The stored settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// The configured token; `None`: the random one.
    #[serde(default, serialize_with = "reveal_optional")]
    pub(crate) token: Option<Secret>,
    volume: String,
    server_volume: String,
    /// `None`: the record is from a daemon that did not keep it, as with the following ones.
    #[serde(default)]
    volume_driver: Option<String>,
    /// The user of a SQL datastore.
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    datastore: Option<DatastoreInUse>,
}

/// The settings that belong to the kind of the datastore. They follow the configuration while it has the
/// same kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DatastoreInUse {
    engine: Engine,
    count: u32,
    image: String,
    port: u16,
    tls: bool,
}

impl DatastoreInUse {
    fn of(config: &Config) -> Self {
        let section = &config.settings;
        Self {
            engine: section.engine(),
            count: config.kinds.datastore.count,
            image: section.ds_image().to_owned(),
            port: section.ds_port,
            tls: section.ds_tls(),
        }
    }
}

impl InUse {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            token: config.settings.orch_token.clone(),
            volume: config.settings.volume_ds.clone(),
            server_volume: config.settings.volume_orch_server.clone(),
            volume_driver: Some(config.settings.volume_driver.clone()),
            username: Some(config.settings.ds_mysql_username.clone()),
            datastore: Some(DatastoreInUse::of(config)),
        }
    }

    /// The record with what former daemons did not keep, and with the settings that may change.
    pub(crate) fn completed(self, config: &Config) -> Self {
        let datastore = match self.other_datastore(config) {
            Some(_) => self.datastore,
            None => Some(DatastoreInUse::of(config)),
        };
        let (driver, username) = (&config.settings.volume_driver, &config.settings.ds_mysql_username);
        Self {
            volume_driver: self.volume_driver.or_else(|| Some(driver.clone())),
            username: self.username.or_else(|| Some(username.clone())),
            datastore,
            ..self
        }
    }

    /// The datastore in use, if the configuration has one of another kind in the framework.
    fn other_datastore(&self, config: &Config) -> Option<&DatastoreInUse> {
        let own = self.datastore.as_ref().filter(|known| known.count > 0);
        own.filter(|known| known.engine != config.settings.engine() && config.kinds.datastore.count > 0)
    }

    /// The configuration with the settings in use.
    pub(crate) fn apply_to(&self, config: &Config) -> Config {
        let mut config = config.clone();
        config.settings.orch_token.clone_from(&self.token);
        config.settings.volume_ds.clone_from(&self.volume);
        config.settings.volume_orch_server.clone_from(&self.server_volume);
        if let Some(driver) = &self.volume_driver {
            config.settings.volume_driver.clone_from(driver);
        }
        if let Some(username) = &self.username {
            config.settings.ds_mysql_username.clone_from(username);
        }
        if let Some(known) = self.other_datastore(&config).cloned() {
            config.kinds.datastore.count = known.count;
            let section = &mut config.settings;
            section.ds_etcd = known.engine == Engine::Kvstore;
            section.ds_port = known.port;
            match known.engine {
                Engine::Kvstore => (section.image_kvstore, section.ds_etcd_tls) = (known.image, known.tls),
                Engine::Sql => (section.image_sql, section.ds_mysql_tls) = (known.image, known.tls),
            }
        }
        config
    }

    /// Why settings of the configuration are ignored. `random`: the random token.
    pub(crate) fn ignored(&self, config: &Config, random: &Secret) -> Vec<String> {
        let mut ignored = Vec::new();
        let token = self.token.as_ref().unwrap_or(random);
        if config.settings.orch_token.as_ref().is_some_and(|it| it != token) {
            ignored.push(format!(
                "`orch_token` (ORCH_TOKEN) is not the token in use and is ignored: the data in the datastore are \
                 encrypted with the latter. Remove the setting, or set it to the token that `transom fw token {}` \
                 prints",
                config.name()
            ));
        }
        let (datastore, server) = (&config.settings.volume_ds, &config.settings.volume_orch_server);
        for (name, configured, used) in [
            ("`volume_ds` (VOLUME_DS)", datastore, &self.volume),
            (
                "`volume_orch_server` (VOLUME_ORCH_SERVER)",
                server,
                &self.server_volume,
            ),
        ] {
            if configured.trim_end_matches('/') != used.trim_end_matches('/') {
                ignored.push(format!(
                    "{name} is not the volume in use and is ignored: the data are in {used}, and {configured} would \
                     be empty. Set it back; to use another volume, make a backup, request `transom fw move {} \
                     --without-data`, restart the daemon and restore the backup",
                    config.name()
                ));
            }
        }
        self.explain_datastore(config, &mut ignored);
        ignored
    }

    fn explain_datastore(&self, config: &Config, ignored: &mut Vec<String>) {
        let name = config.name();
        if let Some(known) = self.other_datastore(config) {
            ignored.push(format!(
                "`ds_etcd` and `ds_mysql` (DS_ETCD, DS_MYSQL) are ignored, and the image, port and count of the \
                 datastore with them: the data are in a datastore of the kind {}, and one of the kind {} would be \
                 empty. Set them back; another kind needs another framework (`framework_name`), or, if the data may \
                 be lost, `transom fw move {name} --without-data` and a restart of the daemon",
                known.engine.as_str(),
                config.settings.engine().as_str(),
            ));
        }
        let driver = &config.settings.volume_driver;
        if let Some(used) = self.volume_driver.as_ref().filter(|used| *used != driver) {
            ignored.push(format!(
                "`volume_driver` (VOLUME_DRIVER) is not the driver in use and is ignored: the data are in volumes of \
                 the driver {used}, and those of {driver} would be empty. Set it back; to use another driver, make a \
                 backup, request `transom fw move {name} --without-data`, restart the daemon and restore the backup"
            ));
        }
        let sql = self
            .other_datastore(config)
            .map_or(config.settings.engine(), |known| known.engine);
        let username = &config.settings.ds_mysql_username;
        let other = self.username.as_ref().filter(|used| *used != username);
        if let (Engine::Sql, Some(used)) = (sql, other) {
            ignored.push(format!(
                "`ds_mysql_username` (DS_MYSQL_USERNAME) is not the user in use and is ignored: the SQL server has the \
                 user {used}, with which its data was created. Set it back; or create the user {username} there, with \
                 all rights on the database and the password `ds_mysql_password`, then run `transom fw credentials \
                 {name} --adopt`"
            ));
        }
    }

    /// The record with the configured user of the SQL server.
    pub(crate) fn with_username(&self, username: &str) -> Self {
        Self {
            username: Some(username.to_owned()),
            ..self.clone()
        }
    }
}
