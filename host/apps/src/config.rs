//! The settings of the service, and what they refer to.

use std::sync::Arc;
use std::time::Duration;

use transom_registry::network::Destination;
use transom_web::{BoundPort, Folder, PortConfig};

use crate::{Error, Result, Settings};

/// The settings of the service, and what they refer to.
#[derive(Clone, Debug)]
pub struct Config {
    /// The section.
    pub settings: Arc<Settings>,
    /// The HTTP port.
    pub port: PortConfig,
    /// A built user interface, served under `/ui/`.
    pub ui: Option<Folder>,
    /// Whether other daemons can take over, because they share the store; `/v2/info` shows it.
    pub shared_store: bool,
    /// The allowed destinations of callbacks; if there are none, callback subscribers are disabled.
    pub callback_destinations: Vec<Destination>,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

impl Config {
    /// Without a user interface, on a store of this daemon's own.
    ///
    /// # Errors
    /// The entry of `callbacks.allow` that is no destination.
    pub fn new(settings: Settings) -> std::result::Result<Self, String> {
        Ok(Self {
            port: settings.port(),
            ui: None,
            shared_store: false,
            callback_destinations: crate::settings::destinations(&settings.callbacks.allow)?,
            store_timeout: transom_store::typed::TIMEOUT,
            settings: Arc::new(settings),
        })
    }

    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Web`] when the port cannot be bound or would be open to everybody.
    pub async fn bind(&self) -> Result<BoundPort> {
        self.port.clone().bind().await.map_err(Error::Web)
    }
}

#[cfg(test)]
impl From<Settings> for Config {
    fn from(settings: Settings) -> Self {
        Self::new(settings).unwrap()
    }
}

#[cfg(test)]
impl Default for Config {
    fn default() -> Self {
        // The prefix of the stores in fixtures.
        let framework_name = "apps".to_owned();
        let settings = Settings {
            framework_name,
            ..Settings::default()
        };
        settings.into()
    }
}
