//! A path in a ZooKeeper ensemble, as `zk://[user:password@]host:port,host:port/path`.

use std::borrow::Cow;
use std::fmt;

/// The servers of an ensemble, and a path there. Shown without the password.
#[derive(Clone, Eq, PartialEq)]
pub struct ZooKeeperPath {
    /// `host:port`, separated by commas.
    pub servers: String,
    /// Absolute, without a trailing slash.
    pub path: String,
    /// `user:password`, taken as written: masters do not percent-decode it either.
    pub digest: Option<String>,
}

impl ZooKeeperPath {
    /// The prefix of such an address.
    pub const SCHEME: &str = "zk://";

    /// Parses an address. An error says what is wrong, without the address.
    ///
    /// # Errors
    /// If it has another form, or its path is the root.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text
            .strip_prefix(Self::SCHEME)
            .ok_or("this is not a ZooKeeper address")?;
        let slash = rest.find('/').ok_or("the path is missing")?;
        let (authority, path) = rest.split_at(slash);
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err("the path is the root of ZooKeeper");
        }
        if path.contains([',', '?', '#']) || path.contains("//") || path.split('/').any(is_relative) {
            return Err("the path is invalid");
        }
        // The last at sign: a password may contain others.
        let (digest, servers) = match authority.rsplit_once('@') {
            Some((digest, servers)) => (Some(digest), servers),
            None => (None, authority),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err("the credentials are not of the form user:password");
        }
        let servers: Vec<_> = servers.split(',').map(str::trim).collect();
        if !servers.iter().all(|server| is_server(server)) {
            // The error omits the port's text: it may be half a password.
            return Err("a server is not host:port");
        }
        Ok(Self {
            servers: servers.join(","),
            path: path.to_owned(),
            digest: digest.map(str::to_owned),
        })
    }
}

fn is_relative(segment: &str) -> bool {
    segment == "." || segment == ".."
}

fn is_digest(digest: &str) -> bool {
    digest
        .split_once(':')
        .is_some_and(|(user, password)| !user.is_empty() && !password.is_empty())
}

fn is_server(server: &str) -> bool {
    server.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = !host.is_empty() && !host.contains([':', '[', ']', ' ']);
        let bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
        (plain || bracketed) && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

impl fmt::Display for ZooKeeperPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::SCHEME)?;
        if let Some((user, _)) = self.digest.as_ref().and_then(|digest| digest.split_once(':')) {
            write!(f, "{user}:***@")?;
        }
        write!(f, "{}{}", self.servers, self.path)
    }
}

impl fmt::Debug for ZooKeeperPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An address for display, with `***` in place of a password
/// (`zk://user:***@host:2181/path`).
pub fn masked(address: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = address.split_once("://") else {
        return Cow::Borrowed(address);
    };
    // Up to the last at sign: an invalid address must not show a secret either.
    let Some((credentials, servers)) = rest.rsplit_once('@') else {
        return Cow::Borrowed(address);
    };
    let user = credentials.split_once(':').map_or("", |(user, _)| user);
    Cow::Owned(format!("{scheme}://{user}:***@{servers}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_into_servers_path_and_credentials() {
        let cases = [
            ("zk://h:2181/mesos", "h:2181", "/mesos", None),
            ("zk://h1:2181,h2:2182/a/b/", "h1:2181,h2:2182", "/a/b", None),
            ("zk://h1:1, h2:2/m", "h1:1,h2:2", "/m", None),
            ("zk://[::1]:2181/m", "[::1]:2181", "/m", None),
            ("zk://ops:s3cret@h:1/m", "h:1", "/m", Some("ops:s3cret")),
            ("zk://ops:a@b:c@h:1,i:2/m", "h:1,i:2", "/m", Some("ops:a@b:c")),
        ];
        for (text, servers, path, digest) in cases {
            let found = ZooKeeperPath::parse(text).unwrap();
            assert_eq!(
                (&*found.servers, &*found.path, found.digest.as_deref()),
                (servers, path, digest),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_addresses_are_rejected_with_reason() {
        for (text, why) in [
            ("zk://h:2181", "the path is missing"),
            ("zk://h:2181/", "the root"),
            ("zk:///m", "a server is not host:port"),
            ("zk://h/m", "a server is not host:port"),
            ("zk://h:0/m", "is not host:port"),
            ("zk://h:1,/m", "a server is not host:port"),
            ("zk://h:1/m,zk://i:1/m", "the path is invalid"),
            ("zk://h:1/a//b", "the path is invalid"),
            ("zk://h:1/../b", "the path is invalid"),
            ("zk://s3cret@h:1/m", "the credentials"),
            ("zk://ops:@h:1/m", "the credentials"),
            ("zk://ops:s3/cret@h:1/m", "is not host:port"),
        ] {
            let error = ZooKeeperPath::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_masked() {
        for (text, expected) in [
            ("zk://ops:s3cret@h:1/m", "zk://ops:***@h:1/m"),
            ("zk://ops:a@b@h:1/m", "zk://ops:***@h:1/m"),
            ("zk://s3cret@h:1/m", "zk://:***@h:1/m"),
            ("zk://h:1/m", "zk://h:1/m"),
            ("h:5050", "h:5050"),
        ] {
            assert_eq!(masked(text), expected);
        }
        let parsed = ZooKeeperPath::parse("zk://ops:s3cret@h:1/m").unwrap();
        assert_eq!(
            format!("{parsed} {parsed:?}"),
            "zk://ops:***@h:1/m zk://ops:***@h:1/m"
        );
    }
}
