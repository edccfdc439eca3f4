//! What an operator says of registries.

use std::{fmt, time::Duration};

use serde::Serialize;

/// How components are fetched from registries.
#[derive(Clone, Debug)]
pub struct Registries {
    /// How often a tag is resolved again, and how soon what cannot be had is asked for again at the latest.
    pub refresh: Duration,
    /// For connecting, and for an answer that is silent.
    pub silence: Duration,
    /// For one fetch as a whole.
    pub timeout: Duration,
    /// Registries, and servers that they send to, that are spoken to without TLS: `host` or `host:port`, as a source names them. No
    /// other is, loopback included.
    pub plain_http: Vec<String>,
    /// Certificate authorities beside the system's, PEM.
    pub authorities: Vec<u8>,
    /// Who to be for which registry.
    pub logins: Vec<Login>,
}

impl Default for Registries {
    fn default() -> Self {
        Registries {
            refresh: Duration::from_mins(5),
            silence: Duration::from_secs(10),
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
    /// `host` or `host:port`, as a source names it.
    pub registry: String,
    /// The user.
    pub user: String,
    /// The password or token.
    #[serde(skip)]
    pub password: String,
    /// The host, or `host:port`, that the registry has its tokens made by, where that is not itself: the password is sent to no other.
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
    pub(crate) fn is_plain(&self, host: &str) -> bool {
        self.plain_http.iter().any(|it| it == host)
    }

    pub(crate) fn login(&self, registry: &str) -> Option<&Login> {
        // Docker's own registry has one name in references and another to connect to.
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
