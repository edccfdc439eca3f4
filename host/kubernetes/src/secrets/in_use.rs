//! The settings with which a cluster's data were created. They stay in use, whatever the configuration
//! says later: with another token the servers cannot read the data in the datastore, and another volume
//! is an empty one.

use serde::{Deserialize, Serialize};
use transom_common::Secret;

use super::reveal_optional;
use crate::config::Config;

/// The stored settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// The configured token; `None`: the random one.
    #[serde(default, serialize_with = "reveal_optional")]
    pub(crate) token: Option<Secret>,
    volume: String,
    server_volume: String,
}

impl InUse {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            token: config.orchestrator.token.clone(),
            volume: config.datastore.volume.clone(),
            server_volume: config.orchestrator.server_volume.clone(),
        }
    }

    /// The configuration with the settings in use.
    pub(crate) fn apply_to(&self, config: &Config) -> Config {
        let mut config = config.clone();
        config.orchestrator.token.clone_from(&self.token);
        config.datastore.volume.clone_from(&self.volume);
        config.orchestrator.server_volume.clone_from(&self.server_volume);
        config
    }

    /// Why settings of the configuration are ignored. `random`: the random token.
    pub(crate) fn ignored(&self, config: &Config, random: &Secret) -> Vec<String> {
        let mut ignored = Vec::new();
        let token = self.token.as_ref().unwrap_or(random);
        if config.orchestrator.token.as_ref().is_some_and(|it| it != token) {
            ignored.push(format!(
                "`orch_token` (ORCH_TOKEN) is not the token in use and is ignored: the data in the datastore are \
                 encrypted with the latter. Remove the setting, or set it to the token that `transom fw token {}` \
                 prints",
                config.name
            ));
        }
        let (datastore, server) = (&config.datastore.volume, &config.orchestrator.server_volume);
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
                    config.name
                ));
            }
        }
        ignored
    }
}
