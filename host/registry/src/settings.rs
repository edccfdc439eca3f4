//! Settings for registries.

use std::{fmt, time::Duration};

use serde::Serialize;

/// How components are fetched from registries.
#[derive(Clone, Debug)]
pub struct Registries {
    /// Interval at which tags are resolved again, and maximum delay of a retry.
    pub refresh: Duration,
    /// Timeout of connecting, and of the time between two reads.
    pub idle_timeout: Duration,
    /// Timeout of a whole fetch.
    pub timeout: Duration,
    /// Registries and redirect targets that may be contacted without TLS: `host` or `host:port`, as
    /// in a source. All others need TLS, loopback included.
    pub plain_http: Vec<String>,
    /// Additional certificate authorities, PEM.
    pub authorities: Vec<u8>,
    /// Credentials by registry.
    pub logins: Vec<Login>,
}

impl Default for Registries {
    fn default() -> Self {
        Registries {
            refresh: Duration::from_mins(5),
            idle_timeout: Duration::from_secs(10),
            timeout: Duration::from_mins(2),
            plain_http: Vec::new(),
            authorities: Vec::new(),
            logins: Vec::new(),
        }
    }
}

/// User and password for one registry. Never shown.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Login {
    /// `host` or `host:port`, as in a source.
    pub registry: String,
    /// The user.
    pub user: String,
    /// The password or token.
    #[serde(skip)]
    pub password: String,
    /// The token server (`host` or `host:port`) if it is not the registry: no other server gets the
    /// password.
    pub token_server: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

impl Registries {
    /// Whether this host may be contacted without TLS.
    pub fn is_plain(&self, host: &str) -> bool {
        self.plain_http.iter().any(|it| it == host)
    }

    /// The credentials for a registry.
    pub fn login(&self, registry: &str) -> Option<&Login> {
        // Docker Hub has different host names in references and for connections.
        let also = (registry == "index.docker.io").then_some("docker.io");
        self.logins
            .iter()
            .find(|it| it.registry == registry || Some(it.registry.as_str()) == also)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let login = Login {
            registry: "r.example".to_owned(),
            user: "me".to_owned(),
            password: "hunter2".to_owned(),
            token_server: None,
        };
        let registries = Registries {
            logins: vec![login.clone()],
            ..Registries::default()
        };
        assert!(!format!("{registries:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&login).unwrap().contains("hunter2"));
        assert!(registries.login("r.example:443").is_none());
        assert!(!registries.is_plain("127.0.0.1:5000"), "loopback included");
    }
}
