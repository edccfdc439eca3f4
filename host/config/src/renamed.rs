//! Settings whose name or value was changed. The old name or value is an error that contains the new
//! one.

/// Old key and new key, without the indices of lists.
const KEYS: &[(&str, &str)] = &[
    ("cluster.until_zookeeper", "cluster.fallback_masters"),
    ("plugins.oci.plain_http", "plugins.oci.insecure_registries"),
    ("plugins.oci.logins", "plugins.oci.credentials"),
    (
        "plugins.oci.credentials.token_server",
        "plugins.oci.credentials.auth_server",
    ),
    ("apps.checks.network", "apps.checks.network_from"),
    ("apps.checks.exec", "apps.checks.exec_from"),
    ("discovery.forward_questions", "discovery.forward_max_inflight"),
    ("discovery.forward_sockets", "discovery.forward_max_sockets"),
    ("discovery.forward_order", "discovery.forward_policy"),
    ("discovery.staging", "discovery.include_staging"),
    ("discovery.recursion_networks", "discovery.allow_recursion"),
    ("discovery.transfer_networks", "discovery.allow_transfer"),
    ("discovery.secondaries", "discovery.also_notify"),
    ("discovery.rate_limit", "discovery.responses_per_second"),
    ("workflow.keep_ended", "workflow.completed_retention_seconds"),
];

/// Key, old value and new value.
const VALUES: &[(&str, &str, &str)] = &[
    ("apps.checks.network_from", "host", "daemon"),
    ("apps.checks.network_from", "cluster", "agent"),
    ("apps.checks.exec_from", "host", "daemon"),
    ("apps.checks.exec_from", "cluster", "agent"),
    ("discovery.forward_policy", "ordered", "sequential"),
];

/// Old key and new key of mesos-dns's file. These are Transom's own additions to it.
const MESOS_DNS_KEYS: &[(&str, &str)] = &[
    ("ForwardQuestions", "ForwardMaxInflight"),
    ("ForwardSockets", "ForwardMaxSockets"),
    ("ForwardOrder", "ForwardPolicy"),
    ("Staging", "IncludeStaging"),
    ("RecursionNetworks", "AllowRecursion"),
    ("TransferNetworks", "AllowTransfer"),
    ("Secondaries", "AlsoNotify"),
    ("RateLimit", "ResponsesPerSecond"),
];

/// The present name of the key `section.key`.
pub(super) fn key(old: &str) -> Option<&'static str> {
    let names = old.split('.').filter(|part| part.parse::<usize>().is_err());
    let old = names.collect::<Vec<_>>().join(".");
    let entry = KEYS.iter().find(|(name, _)| *name == old);
    entry.map(|(_, new)| *new)
}

/// The present name of the value `old` of the key `section.key`.
pub fn value(key: &str, old: &str) -> Option<&'static str> {
    let entry = VALUES
        .iter()
        .find(|(name, value, _)| *name == key && *value == old);
    entry.map(|(_, _, new)| *new)
}

/// The present name of a key of mesos-dns's file, in any case.
pub(super) fn mesos_dns_key(old: &str) -> Option<&'static str> {
    let entry = MESOS_DNS_KEYS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(old));
    entry.map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use figment::error::Kind;
    use serde_json::json;

    use super::super::faults::error_text;
    use super::super::{Overrides, load, read_mesos_dns};
    use super::*;

    fn error(text: &str) -> String {
        let mut file = tempfile::Builder::new()
            .suffix(".toml")
            .tempfile()
            .expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        load(Some(file.path()), Overrides::default())
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn unknown_key_error_names_new_key_for_every_renamed_key() {
        for &(old, new) in KEYS {
            let (section, name) = old.rsplit_once('.').expect("a key of a section");
            let unknown = figment::Error::from(Kind::UnknownField(name.to_owned(), &[]));
            let unknown = section.split('.').fold(unknown, figment::Error::with_path);
            let text = error_text(&unknown);
            assert!(
                text.contains(&format!("`{old}`")) && text.ends_with(&format!("is now `{new}`")),
                "{text}"
            );
        }
    }

    #[test]
    fn load_rejects_old_keys_with_new_name() {
        for (text, expected) in [
            (
                "[cluster]\nuntil_zookeeper = []\n",
                "is now `cluster.fallback_masters`",
            ),
            (
                "[discovery]\nrate_limit = 1\n",
                "is now `discovery.responses_per_second`",
            ),
            (
                "[[plugins.oci.logins]]\nregistry = \"r\"\n",
                "is now `plugins.oci.credentials`",
            ),
            (
                "[[plugins.oci.credentials]]\nregistry = \"r\"\nuser = \"u\"\ntoken_server = \"t\"\n",
                "is now `plugins.oci.credentials.auth_server`",
            ),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn load_rejects_old_values_with_new_value() {
        for &(key, old, new) in VALUES {
            let (section, name) = key.rsplit_once('.').expect("a key of a section");
            if section == "discovery" {
                // Checked when the section becomes the configuration of discovery.
                assert_eq!(value(key, old), Some(new));
                continue;
            }
            let error = error(&format!("[{section}]\n{name} = \"{old}\"\n"));
            assert!(error.contains(&format!("`{old}` is now `{new}`")), "{error}");
        }
    }

    #[test]
    fn mesos_dns_file_with_old_key_is_rejected_with_new_name() {
        for &(old, new) in MESOS_DNS_KEYS {
            let file = json!({"masters": ["10.0.0.1:5050"], old: null});
            let error = read_mesos_dns(file.to_string().as_bytes())
                .expect_err(old)
                .to_string();
            assert!(error.contains(&format!("{old}: is now {new}")), "{error}");
        }
    }
}
