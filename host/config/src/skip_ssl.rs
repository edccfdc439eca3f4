//! The default of `SKIP_SSL` (specification, part B): certificates of the masters are not verified if
//! TLS is enabled only by the specification's variables.
//!
//! If a key of `[cluster]` configures TLS, in the file, as `TRANSOM_CLUSTER_...` or on the command
//! line, certificates are verified unless `skip_ssl` or `SKIP_SSL` is set.

use figment::value::{Dict, Map};
use figment::{Figment, Metadata, Profile, Provider};

/// The keys that configure TLS to the master.
const TLS_KEYS: &[&str] = &[
    "cluster.ssl",
    "cluster.skip_ssl",
    "cluster.ca_file",
    "cluster.certificate_file",
    "cluster.key_file",
];

/// A source of settings that sets `cluster.skip_ssl` if the default applies.
pub(super) struct DefaultOfSkipSsl {
    applies: bool,
}

impl DefaultOfSkipSsl {
    /// `specified`: the specification's variables; `other_sources`: all other sources.
    pub(super) fn of(specified: &Figment, other_sources: [&Figment; 2]) -> Self {
        let ssl = specified.extract_inner::<bool>("cluster.ssl").unwrap_or(false);
        let is_set = |key: &&str| other_sources.iter().any(|source| source.contains(key));
        Self {
            applies: ssl && !TLS_KEYS.iter().any(is_set),
        }
    }
}

impl Provider for DefaultOfSkipSsl {
    fn metadata(&self) -> Metadata {
        Metadata::named("the default of SKIP_SSL")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut settings = Dict::new();
        if self.applies {
            let mut cluster = Dict::new();
            cluster.insert("skip_ssl".to_owned(), true.into());
            settings.insert("cluster".to_owned(), cluster.into());
        }
        Ok(Profile::Default.collect(settings))
    }
}

#[cfg(test)]
mod tests {
    use figment::providers::Serialized;

    use super::super::aliases::SpecifiedVariables;
    use super::super::file::Toml;
    use super::super::settings::Cluster;
    use super::*;

    #[test]
    fn certificates_are_not_verified_if_only_the_environment_enables_tls() {
        for (file, variables, own, expected) in [
            // No source enables TLS.
            ("", &[][..], None, (false, false)),
            ("", &[("CLUSTER_SSL", "false")], None, (false, false)),
            ("", &[("SKIP_SSL", "true")], None, (false, true)),
            // Only the environment enables TLS.
            ("", &[("CLUSTER_SSL", "true")], None, (true, true)),
            ("", &[("MESOS_SSL", "true")], None, (true, true)),
            (
                "",
                &[("CLUSTER_SSL", "true"), ("SKIP_SSL", "true")],
                None,
                (true, true),
            ),
            (
                "",
                &[("CLUSTER_SSL", "true"), ("SKIP_SSL", "false")],
                None,
                (true, false),
            ),
            (
                "[cluster]\nmaster = \"m:5050\"",
                &[("CLUSTER_SSL", "true")],
                None,
                (true, true),
            ),
            // The file enables it too.
            ("[cluster]\nssl = true", &[], None, (true, false)),
            (
                "[cluster]\nssl = true",
                &[("CLUSTER_SSL", "true")],
                None,
                (true, false),
            ),
            (
                "[cluster]\nca_file = \"ca.pem\"",
                &[("CLUSTER_SSL", "true")],
                None,
                (true, false),
            ),
            (
                "[cluster]\nskip_ssl = false",
                &[("CLUSTER_SSL", "true")],
                None,
                (true, false),
            ),
            (
                "[cluster]\nskip_ssl = true",
                &[("CLUSTER_SSL", "true")],
                None,
                (true, true),
            ),
            (
                "[cluster]\nssl = true",
                &[("SKIP_SSL", "true")],
                None,
                (true, true),
            ),
            // `TRANSOM_CLUSTER_...` and the command line have the same effect as the file.
            ("", &[], Some(("cluster.ssl", true)), (true, false)),
            (
                "",
                &[("CLUSTER_SSL", "true")],
                Some(("cluster.ssl", true)),
                (true, false),
            ),
            (
                "",
                &[("CLUSTER_SSL", "true")],
                Some(("cluster.skip_ssl", false)),
                (true, false),
            ),
            (
                "",
                &[("CLUSTER_SSL", "true")],
                Some(("admin.port", true)),
                (true, true),
            ),
        ] {
            let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
            let specified = SpecifiedVariables::read(|name| find(name).map(|(_, text)| (*text).to_owned()));
            let specified = Figment::from(specified);
            let file_settings = Figment::from(Toml::Text(file));
            let own_settings = own.map_or_else(Figment::new, |(key, value)| {
                Figment::from(Serialized::default(key, value))
            });
            let default = DefaultOfSkipSsl::of(&specified, [&file_settings, &own_settings]);
            let effective = file_settings.merge(default).merge(specified).merge(own_settings);
            let cluster = effective.extract_inner::<Cluster>("cluster").unwrap_or_default();
            assert_eq!(
                (cluster.ssl, cluster.skip_ssl),
                expected,
                "{file:?} {variables:?} {own:?}"
            );
        }
    }
}
