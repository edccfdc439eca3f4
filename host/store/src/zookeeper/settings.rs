//! How to reach the ensemble.

use std::time::Duration;

use crate::Tls;

/// How to reach the ensemble.
#[derive(Clone)]
pub(crate) struct Settings {
    /// `host:port`, separated by commas.
    pub(crate) servers: String,
    /// The path of the store, absolute.
    pub(crate) root: String,
    /// `user:password`.
    pub(crate) digest: Option<String>,
    /// Whether anyone may read and change the store.
    pub(crate) world_access: bool,
    pub(crate) tls: Option<Tls>,
    pub(crate) connect_timeout: Duration,
}

impl Settings {
    /// Host and port of each server.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (String, u16)> {
        let servers = self
            .servers
            .split(',')
            .filter_map(|server| server.rsplit_once(':'));
        servers
            .filter_map(|(host, port)| Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?)))
    }
}
