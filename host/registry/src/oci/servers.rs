//! Which servers may be contacted to fetch a component. Any public server may be. Loopback,
//! link-local and metadata addresses, the daemon's own ports, its store and its masters may be
//! contacted only if the configuration names exactly that server.
//!
//! The configuration is the manifest's source and `[plugins.oci]` (`insecure_registries`, the
//! credentials and their servers). Servers that a registry names, in a redirect or a challenge, do
//! not count.

use std::net::{IpAddr, SocketAddr};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use url::Host;

use transom_common::HostPort;

use super::{auth::authority, fetch_error::FetchError, source::Source};
use crate::{
    network::{Destination, LookupError, Reserved, Resolver, SystemResolver, names_no_peer},
    settings::Registries,
};

pub(super) struct Destinations<'a> {
    pub(super) reserved: &'a Reserved,
    pub(super) registries: &'a Registries,
}

impl Destinations<'_> {
    /// Returns the addresses of the server to which a connection is allowed. Empty if a proxy has
    /// to resolve the name.
    pub(super) async fn check(&self, source: &Source, url: &Url) -> Result<Vec<SocketAddr>, FetchError> {
        self.check_with(
            source,
            url,
            &SystemResolver::default(),
            is_proxied(&Matcher::from_system(), url),
        )
        .await
    }

    async fn check_with(
        &self,
        source: &Source,
        url: &Url,
        names: &dyn Resolver,
        proxied: bool,
    ) -> Result<Vec<SocketAddr>, FetchError> {
        let unreachable = |message: String| FetchError::Unreachable {
            host: authority(url),
            message,
        };
        let port = url.port_or_known_default().unwrap_or(443);
        let (host, found) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.to_string(), vec![IpAddr::V4(ip)]),
            Some(Host::Ipv6(ip)) => (ip.to_string(), vec![IpAddr::V6(ip)]),
            Some(Host::Domain(name)) => match names.addresses(name).await {
                Ok(found) => (name.to_owned(), found),
                Err(LookupError::Unresolved) if proxied => return Ok(Vec::new()),
                Err(error) => return Err(unreachable(error.to_string())),
            },
            None => return Err(unreachable("the address has no server name".to_owned())),
        };
        let configured = self.configured_servers(source);
        let endpoint = HostPort { host, port };
        let mut allowed = Vec::new();
        let mut rejected = None;
        for ip in found {
            let address = SocketAddr::new(ip.to_canonical(), port);
            if names_no_peer(ip) {
                rejected = Some((
                    address,
                    "an unspecified, multicast or broadcast address".to_owned(),
                ));
                continue;
            }
            match self.reserved.guard(ip, port, names).await {
                Some(guard) if !configured.iter().any(|it| it.names(&endpoint, ip, &guard)) => {
                    let hint = "to allow it, name exactly that address and port in the source or in plugins.oci \
                                (insecure_registries, credentials)";
                    rejected = Some((address, format!("{guard}; {hint}")));
                }
                _ => allowed.push(address),
            }
        }
        match rejected {
            Some((address, what)) if allowed.is_empty() => Err(FetchError::Guarded {
                registry: source.registry().to_owned(),
                host: authority(url),
                address,
                what,
            }),
            _ if allowed.is_empty() => Err(unreachable("the name does not resolve".to_owned())),
            _ => Ok(allowed),
        }
    }

    /// The servers that the operator's configuration names, with explicit ports.
    fn configured_servers(&self, source: &Source) -> Vec<Destination> {
        let logins = self.registries.logins.iter();
        let servers = [source.registry()]
            .into_iter()
            .chain(self.registries.plain_http.iter().map(String::as_str))
            .chain(logins.flat_map(|it| {
                [Some(it.registry.as_str()), it.token_server.as_deref()]
                    .into_iter()
                    .flatten()
            }));
        servers
            .filter_map(|server| {
                let port = if self.registries.is_plain(server) { 80 } else { 443 };
                Destination::parse(server).or_else(|| Destination::parse(&format!("{server}:{port}")))
            })
            .collect()
    }
}

/// Whether a request to this URL goes to a proxy. The HTTP client decides with the same matcher.
fn is_proxied(proxies: &Matcher, url: &Url) -> bool {
    url.as_str()
        .parse()
        .is_ok_and(|uri| proxies.intercept(&uri).is_some())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::settings::Login;

    /// Host names and their addresses.
    struct Table(&'static [(&'static str, &'static [&'static str])]);

    #[async_trait]
    impl Resolver for Table {
        async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
            let found = self.0.iter().find(|(name, _)| *name == host);
            let (_, addresses) = found.ok_or(LookupError::Unresolved)?;
            Ok(addresses.iter().map(|ip| ip.parse().unwrap()).collect())
        }
    }

    const NAMES: Table = Table(&[
        ("registry.test", &["198.51.100.1"]),
        ("rebound.test", &["127.0.0.1"]),
        ("mixed.test", &["127.0.0.1", "198.51.100.2"]),
        ("linked.test", &["169.254.169.254"]),
        ("own.test", &["10.0.0.1"]),
        ("localhost", &["127.0.0.1", "::1"]),
    ]);

    fn registries() -> Registries {
        Registries {
            plain_http: vec!["127.0.0.1:5001".to_owned(), "[::1]:5002".to_owned()],
            logins: vec![Login {
                registry: "registry.test".to_owned(),
                user: "u".to_owned(),
                password: "p".to_owned(),
                token_server: Some("127.0.0.1:5003".to_owned()),
            }],
            ..Registries::default()
        }
    }

    async fn addresses(source: &str, url: &str) -> Result<Vec<String>, FetchError> {
        let reserved = Reserved::default();
        reserved.listener("the admin port of this daemon", "10.0.0.1:8081".parse().unwrap());
        let registries = registries();
        let destinations = Destinations {
            reserved: &reserved,
            registries: &registries,
        };
        let source = Source::parse(source).unwrap();
        let url = Url::parse(url).unwrap();
        let found = destinations.check_with(&source, &url, &NAMES, false).await?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn guarded_servers_are_contacted_only_if_the_configuration_names_them() {
        let other_source = "oci://registry.test/a:1";
        for (source, url, expected) in [
            (
                other_source,
                "https://registry.test/v2/",
                Some("198.51.100.1:443"),
            ),
            (other_source, "https://198.51.100.9/v2/", Some("198.51.100.9:443")),
            // Servers of redirects and token challenges.
            (other_source, "https://127.0.0.1/", None),
            (other_source, "http://127.0.0.1:8081/", None),
            (other_source, "https://[::1]/", None),
            (other_source, "https://[::ffff:127.0.0.1]/", None),
            (other_source, "https://localhost/", None),
            (other_source, "https://0.0.0.0/", None),
            (other_source, "https://rebound.test/", None),
            (other_source, "https://linked.test/", None),
            (other_source, "https://169.254.169.254/", None),
            (other_source, "https://mixed.test/", Some("198.51.100.2:443")),
            (other_source, "https://own.test/", Some("10.0.0.1:443")),
            (other_source, "https://own.test:8081/", None),
            (other_source, "https://10.0.0.1:8081/", None),
            // Servers in `[plugins.oci]`.
            (other_source, "http://127.0.0.1:5001/", Some("127.0.0.1:5001")),
            (other_source, "http://127.0.0.1:5002/", None),
            (other_source, "http://[::1]:5002/", Some("[::1]:5002")),
            (other_source, "https://127.0.0.1:5003/", Some("127.0.0.1:5003")),
            // The server in the source, and no other port of it.
            (
                "oci://127.0.0.1:5000/a:1",
                "https://127.0.0.1:5000/v2/",
                Some("127.0.0.1:5000"),
            ),
            ("oci://127.0.0.1:5000/a:1", "https://127.0.0.1:8081/", None),
            ("oci://127.0.0.1:5000/a:1", "https://127.0.0.2:5000/", None),
            (
                "oci://localhost:5000/a:1",
                "https://localhost:5000/v2/",
                Some("127.0.0.1:5000"),
            ),
            ("oci://localhost:5000/a:1", "https://localhost:5009/", None),
            (
                "oci://10.0.0.1:8081/a:1",
                "https://10.0.0.1:8081/v2/",
                Some("10.0.0.1:8081"),
            ),
            // The addresses of a name may change.
            ("oci://rebound.test/a:1", "https://rebound.test/v2/", None),
            ("oci://own.test:8081/a:1", "https://own.test:8081/v2/", None),
        ] {
            let found = addresses(source, url).await;
            match (expected, &found) {
                (Some(expected), Ok(found)) => assert_eq!(found[0], expected, "{source} {url}"),
                (None, Err(FetchError::Guarded { .. })) => {}
                _ => panic!("{source} {url}: {found:?}"),
            }
        }
    }

    #[tokio::test]
    async fn rejection_names_registry_server_address_and_guard() {
        let found = addresses("oci://registry.test/a:1", "https://own.test:8081/").await;
        let text = found.unwrap_err().to_string();
        for part in [
            "registry.test",
            "own.test:8081",
            "10.0.0.1:8081",
            "the admin port",
            "insecure_registries",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_proxy_applies_to_its_scheme_and_not_to_excluded_hosts() {
        let proxy = "http://proxy.test:3128";
        let http = Matcher::builder().http(proxy).build();
        let all = Matcher::builder().all(proxy).no("internal.test").build();
        let none = Matcher::builder().build();
        for (proxies, url, expected) in [
            (&http, "http://registry.test/v2/", true),
            (&http, "https://registry.test/v2/", false),
            (&all, "https://registry.test/v2/", true),
            (&all, "https://internal.test/v2/", false),
            (&all, "https://a.internal.test:5000/v2/", false),
            (&none, "https://registry.test/v2/", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(is_proxied(proxies, &url), expected, "{url} {proxies:?}");
        }
    }

    #[tokio::test]
    async fn unresolved_name_is_accepted_only_with_a_proxy() {
        let (reserved, registries) = (Reserved::default(), Registries::default());
        let destinations = Destinations {
            reserved: &reserved,
            registries: &registries,
        };
        let source = Source::parse("oci://unknown.test/a:1").unwrap();
        let url = Url::parse("https://unknown.test/v2/").unwrap();
        let found = destinations.check_with(&source, &url, &NAMES, true).await;
        assert_eq!(found, Ok(Vec::new()));
        let found = destinations.check_with(&source, &url, &NAMES, false).await;
        assert!(matches!(found, Err(FetchError::Unreachable { .. })), "{found:?}");
    }
}
