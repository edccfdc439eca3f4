//! The owner of each record in a store, and whether the record can be decoded.

use std::collections::BTreeSet;

use serde_json::Value;
use transom_framework::Framework;
use transom_scheduler::FRAMEWORK_ID_KEY;
use transom_store::Entry;
use transom_store::transfer::Snapshot;
use transom_store::typed::{READS_VERSION, TERM_KEY, newer_version};

use super::location::Location;

/// The folder of a framework's records about its daemons, by their addresses.
const DAEMONS: &str = "daemons/";

/// Decodes the record of a key under the prefix of a framework. `None`: it is no record of that owner.
type CheckRecord = fn(&str, &Value) -> Option<serde_json::Result<()>>;

/// The services with a framework; the order does not matter, because their keys differ.
const SERVICES: [(&str, CheckRecord); 3] = [
    ("apps", transom_apps::migration::check_record),
    ("workflow", transom_workflow::check_record),
    ("kubernetes", transom_kubernetes::check_record),
];

/// A record.
#[derive(Debug, PartialEq)]
pub(super) enum Owner<'a> {
    /// It belongs to all daemons of the store.
    Site,
    /// It belongs to a framework.
    Framework {
        name: &'a str,
        /// The key under the prefix of the framework.
        key: &'a str,
        /// The service; `None` for records that several services have.
        service: Option<&'static str>,
    },
    /// No service of this version has such a key.
    Unknown,
}

/// The owner of a key. The name of a framework may contain slashes.
pub(super) fn owner(key: &str) -> Owner<'_> {
    if transom_framework::check_record(key, &Value::Null).is_some() {
        return Owner::Site;
    }
    for (slash, _) in key.match_indices('/') {
        let (name, rest) = (&key[..slash], &key[slash + 1..]);
        if !name.is_empty() && (rest == FRAMEWORK_ID_KEY || decode(rest, &Value::Null).is_some()) {
            let has_record = |check: &CheckRecord| rest != TERM_KEY && check(rest, &Value::Null).is_some();
            let service = SERVICES.iter().find(|(_, check)| has_record(check));
            return Owner::Framework {
                name,
                key: rest,
                service: service.map(|(service, _)| *service),
            };
        }
    }
    Owner::Unknown
}

/// Decodes a record under the prefix of a framework. `None`: no service has such a key.
fn decode(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    if let Some(of_daemon) = key.strip_prefix(DAEMONS) {
        return transom_plugin_host::check_record(of_daemon.split_once('/')?.1, record);
    }
    let scheduled = transom_scheduler::normalized(key, record).map(|read| read.map(drop));
    scheduled.or_else(|| SERVICES.iter().find_map(|(_, check)| check(key, record)))
}

/// Why a daemon cannot use a record.
pub(super) fn problem(entry: &Entry, owner: &Owner<'_>) -> Option<String> {
    if let Some(version) = newer_version(&entry.value) {
        return Some(format!(
            "a newer transom wrote it: version {version}, and this one reads versions up to {READS_VERSION}"
        ));
    }
    if let Owner::Framework {
        key: FRAMEWORK_ID_KEY,
        ..
    } = owner
    {
        let is_text = std::str::from_utf8(&entry.value).is_ok_and(|id| !id.trim().is_empty());
        return (!is_text).then(|| "it is not the id of a framework".to_owned());
    }
    let record: Value = match owner {
        Owner::Unknown => return None,
        _ => match serde_json::from_slice(&entry.value) {
            Ok(record) => record,
            Err(error) => return Some(error.to_string()),
        },
    };
    let decoded = match owner {
        Owner::Framework { key, .. } => decode(key, &record),
        _ => transom_framework::check_record(&entry.key, &record),
    };
    decoded?.err().map(|error| error.to_string())
}

/// The leases of all frameworks with records in `snapshot` or in the configuration files.
pub(super) fn leases(snapshot: &Snapshot, locations: &[&Location]) -> BTreeSet<String> {
    let stored = snapshot
        .entries()
        .iter()
        .filter_map(|entry| match owner(&entry.key) {
            Owner::Framework { name, .. } => Some(name),
            Owner::Site | Owner::Unknown => None,
        });
    let configured = locations.iter().flat_map(|location| &location.frameworks);
    let names: BTreeSet<&str> = stored.chain(configured.map(String::as_str)).collect();
    names.into_iter().map(Framework::lease).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_owners() {
        let framework = |name, key, service| Owner::Framework { name, key, service };
        for (key, expected) in [
            ("transom/daemon-key", Owner::Site),
            ("transom/other", Owner::Unknown),
            ("tasks/t", Owner::Unknown),
            ("a/framework-id", framework("a", "framework-id", None)),
            ("a/term", framework("a", "term", None)),
            ("a/tasks/apps/t", framework("a", "tasks/apps/t", None)),
            ("apps/apps/web", framework("apps", "apps/web", Some("apps"))),
            ("m/prod/groups/a", framework("m/prod", "groups/a", Some("apps"))),
            ("a/format", framework("a", "format", Some("apps"))),
            ("Airflow/jobs/j", framework("Airflow", "jobs/j", Some("workflow"))),
            ("fw/wanted", framework("fw", "wanted", Some("kubernetes"))),
            (
                "a/daemons/h:1/plugins/events/00000000000000000001",
                framework("a", "daemons/h:1/plugins/events/00000000000000000001", None),
            ),
            ("a/daemons/h:1/other", Owner::Unknown),
        ] {
            assert_eq!(owner(key), expected, "{key}");
        }
    }

    #[test]
    fn problems_of_records_are_described() {
        for (key, value, expected) in [
            ("a/framework-id", "id", None),
            ("a/framework-id", "", Some("not the id")),
            ("a/term", "7", None),
            ("a/term", "\"x\"", Some("invalid type")),
            ("a/term", "{", Some("EOF")),
            ("a/tasks/t", "{}", Some("missing field")),
            (
                "a/tasks/t",
                "{\"record_version\":2}",
                Some("a newer transom wrote it"),
            ),
            ("a/format", "{\"format\":99}", Some("format")),
            ("a/other", "\u{1}", None),
        ] {
            let entry = Entry {
                key: key.to_owned(),
                value: value.into(),
                version: 1,
            };
            let found = problem(&entry, &owner(key));
            let is_expected = match (&found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{key} {value}: {found:?}");
        }
    }
}
