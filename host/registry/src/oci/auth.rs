//! Authentication to a registry: which credentials it requests and which ones it receives. Pure
//! rules.

use http_auth::ChallengeParser;
use reqwest::Url;

use transom_common::text::one_line;

use super::fetch_error::FetchError;
use crate::settings::Registries;

/// The authentication scheme of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token from the named server.
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

impl Challenge {
    /// Parses `WWW-Authenticate`; a token is preferred.
    pub(super) fn parse(header: &str) -> Option<Challenge> {
        let mut found = None;
        for challenge in ChallengeParser::new(header) {
            let challenge = challenge.ok()?;
            let parameter = |name: &str| {
                let found = challenge
                    .params
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            if challenge.scheme.eq_ignore_ascii_case("bearer") {
                return Some(Challenge::Bearer {
                    realm: parameter("realm")?,
                    service: parameter("service"),
                });
            }
            if challenge.scheme.eq_ignore_ascii_case("basic") {
                found = Some(Challenge::Basic);
            }
        }
        found
    }
}

/// `host`, or `host:port` if the port is not the scheme's default, as in sources and settings.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Whether a request may be sent to this URL: over TLS to any server, without TLS only to a
/// configured one.
pub(super) fn is_contact_allowed(url: &Url, registries: &Registries) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => registries.is_plain(&authority(url)),
        _ => false,
    }
}

/// The URL of a token server, and whether it may receive the password for `registry`.
///
/// A registry is free to name any server. The password goes to the registry itself or to the one
/// server that the operator configured. Another token server is contacted only if the registry has
/// no password.
pub(super) fn token_server(realm: &str, registry: &str, registries: &Registries) -> Result<Url, FetchError> {
    let rejected = |expected| FetchError::Realm {
        host: registry.to_owned(),
        realm: one_line(realm),
        expected,
    };
    let url = Url::parse(realm).map_err(|_| rejected("expected a valid URL"))?;
    if !is_contact_allowed(&url, registries) {
        return Err(rejected(
            "it has no TLS and is not in plugins.oci.insecure_registries",
        ));
    }
    let Some(login) = registries.login(registry) else {
        return Ok(url);
    };
    let realm_authority = authority(&url);
    let is_configured = login.token_server.as_deref() == Some(realm_authority.as_str());
    if is_configured || same_authority(&realm_authority, registry) {
        Ok(url)
    } else {
        Err(rejected(
            "it is not allowed to receive the password; set auth_server of the credentials if it is trusted",
        ))
    }
}

/// Compares two authorities; the default port is optional.
fn same_authority(one: &str, other: &str) -> bool {
    let plain = |it: &str| it.strip_suffix(":443").unwrap_or(it).to_owned();
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Login;

    #[test]
    fn authentication_challenges_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
            })
        };
        for (header, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/t\",service=\"r\",scope=\"x,y\"",
                bearer("https://a/t", Some("r")),
            ),
            (
                "Basic realm=\"x\", Bearer realm=\"https://a/t\"",
                bearer("https://a/t", None),
            ),
            ("Bearer service=\"r\"", None),
            ("Negotiate", None),
            ("\"", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }

    #[test]
    fn password_is_sent_only_to_the_registry_or_its_configured_token_server() {
        let login = |registry: &str, token_server: Option<&str>| Login {
            registry: registry.to_owned(),
            user: "u".to_owned(),
            password: "p".to_owned(),
            token_server: token_server.map(str::to_owned),
        };
        let registries = Registries {
            plain_http: vec!["127.0.0.1:5000".to_owned()],
            logins: vec![
                login("own.example", None),
                login("other.example", Some("auth.example")),
                login("127.0.0.1:5000", None),
            ],
            ..Registries::default()
        };
        for (registry, realm, may) in [
            ("own.example", "https://own.example/token", true),
            ("own.example", "https://own.example:443/token", true),
            ("own.example", "http://own.example/token", false),
            ("own.example", "https://auth.example/token", false),
            ("own.example", "https://own.example:8443/token", false),
            ("own.example", "https://own.example@evil.example/token", false),
            ("own.example", "/token", false),
            ("other.example", "https://auth.example/token", true),
            ("other.example", "http://auth.example/token", false),
            ("none.example", "https://auth.example/token", true),
            ("none.example", "http://auth.example/token", false),
            ("127.0.0.1:5000", "http://127.0.0.1:5000/token", true),
            ("127.0.0.1:5000", "http://127.0.0.1:5001/token", false),
        ] {
            let found = token_server(realm, registry, &registries);
            assert_eq!(found.is_ok(), may, "{registry} {realm}: {found:?}");
        }
    }
}
