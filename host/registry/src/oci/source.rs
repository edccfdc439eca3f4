//! `oci://registry/repository:tag@sha256:…`: the reference of a component.

use std::fmt;

use oci_client::Reference;

/// A parsed `source` of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source(Reference);

impl Source {
    /// The expected form, for error messages.
    pub const EXPECTED: &str = "\"oci://registry/repository:tag\", with \"@sha256:\" and 64 hexadecimal digits behind or in place of the \
                                       tag; the registry with its full name";

    /// Parses `oci://registry/repository:tag@sha256:…`; the registry and a version are required.
    pub fn parse(text: &str) -> Option<Source> {
        let reference = text.strip_prefix("oci://")?;
        // The registry is required: other programs read `team/probe` as a path in their default
        // registry.
        let (registry, rest) = reference.split_once('/')?;
        if !(registry.contains(['.', ':']) || registry == "localhost") {
            return None;
        }
        // The version is required too: other programs read a missing one as `latest`.
        if !rest.contains([':', '@']) {
            return None;
        }
        let reference = Reference::try_from(reference).ok()?;
        let digest_is_plain = reference.digest().is_none_or(|it| {
            it.strip_prefix("sha256:")
                .is_some_and(|hex| hex.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')))
        });
        digest_is_plain.then_some(Source(reference))
    }

    /// The reference as the OCI client has it.
    pub fn reference(&self) -> &Reference {
        &self.0
    }

    /// `host` or `host:port` to connect to.
    pub fn registry(&self) -> &str {
        self.0.resolve_registry()
    }

    /// `team/probe`.
    pub fn repository(&self) -> &str {
        self.0.repository()
    }

    /// The reference to fetch: the digest if there is one, else the tag.
    pub fn version(&self) -> &str {
        self.digest().or(self.0.tag()).unwrap_or_default()
    }

    /// `sha256:…` of the image manifest, if the source names a digest.
    pub fn digest(&self) -> Option<&str> {
        self.0.digest()
    }

    /// The form in records: with the digest of the fetched image.
    pub fn at(&self, digest: &str) -> String {
        match self.digest() {
            Some(_) => self.to_string(),
            None => format!("{self}@{digest}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_need_registry_repository_and_version() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        for (text, registry, version) in [
            (
                "oci://registry.example/team/probe:1.2".to_owned(),
                "registry.example",
                "1.2",
            ),
            (
                "oci://127.0.0.1:5000/probe:latest".to_owned(),
                "127.0.0.1:5000",
                "latest",
            ),
            (
                format!("oci://localhost/probe@{digest}"),
                "localhost",
                digest.as_str(),
            ),
            (
                format!("oci://r.example:443/a/b:v1@{digest}"),
                "r.example:443",
                digest.as_str(),
            ),
            ("oci://docker.io/team/probe:1".to_owned(), "index.docker.io", "1"),
        ] {
            let source = Source::parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((source.registry(), source.version()), (registry, version));
            assert_eq!(source.to_string(), text);
            let named = source.at(&digest);
            assert_eq!(named.matches("sha256:").count(), 1, "{named}");
        }
        for text in [
            "",
            "registry.example/probe:1",
            "https://registry.example/probe:1",
            "oci://probe:1",
            "oci://team/probe:1",
            "oci://registry.example/probe",
            "oci://registry.example/",
            "oci://registry.example/Probe:1",
            "oci://registry.example/probe:",
            "oci://registry.example/probe@sha256:00",
            "oci://registry.example/../probe:1",
            "oci://user:password@registry.example/probe:1",
            &format!("oci://registry.example/probe@sha512:{}", "0f".repeat(64)),
            &format!("oci://registry.example/probe@{}", digest.to_uppercase()),
        ] {
            assert_eq!(Source::parse(text), None, "{text}");
        }
    }
}
