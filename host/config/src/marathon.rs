//! The flags of Marathon 1.11: the key that corresponds to each, or the reason why there is none.
//!
//! `[apps]` accepts the name of a flag as an alias of its key, with the flag's own unit; the key takes
//! precedence if both are given. `transom config import` converts flags by the same table.

use figment::value::{Dict, Num, Value};

/// The setting that corresponds to a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// A key of `[apps]` with the name of the flag.
    SameKey(FlagForm),
    /// Another key, `section.key`.
    Key(&'static str, FlagForm),
    /// `user:password`, which is split into two keys.
    Credentials,
    /// None, and an operator has to decide; contains the advice.
    Attention(&'static str),
    /// None; contains the reason.
    Unsupported(&'static str),
}

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagForm {
    /// A text, as it is.
    Text,
    /// A number without unit.
    Integer,
    /// Milliseconds; the key's unit is seconds.
    Milliseconds,
    /// Strings separated by commas; the key's value is a list.
    List,
}

use Counterpart::{Attention, Credentials, Key, SameKey, Unsupported};
use FlagForm::{Integer, List, Milliseconds, Text};

use crate::note::print_note;

const ALWAYS: &str = "there is no such switch";
const FIXED: &str = "the value is fixed";
const KEYSTORE: &str = "a Java keystore cannot be read: convert it to PEM files and set `apps.tls_certificate` and \
                        `apps.tls_key`";
const JVM_PLUGINS: &str =
    "plugins for the JVM do not run here: decisions are made by WebAssembly components, see [plugins]";
const METRICS: &str = "metrics are read from /metrics of the admin port, in OpenMetrics";
const TLS: &str =
    "there is one port: with `apps.tls_certificate` and `apps.tls_key`, `apps.port` accepts TLS only";
const TOKENS: &str = "launches are limited by the offers alone";
const ZOOKEEPER: &str = "the state is in [store], not in ZooKeeper";

/// All flags, by name.
pub(crate) const FLAGS: &[(&str, Counterpart)] = &[
    ("access_control_allow_origin", Key("apps.allowed_origins", List)),
    (
        "assets_path",
        Attention("set `apps.ui_dir` to the folder of a built user interface, the one with index.html"),
    ),
    (
        "backup_location",
        Unsupported("the store is backed up with its own means"),
    ),
    ("checkpoint", Unsupported("tasks are always checkpointed")),
    ("decline_offer_duration", Unsupported(FIXED)),
    (
        "default_accepted_resource_roles",
        Attention("set `acceptedResourceRoles` in the definitions of apps"),
    ),
    ("default_network_name", SameKey(Text)),
    ("deprecated_features", Unsupported("the API is that of 1.11")),
    ("disable_checkpoint", Unsupported("tasks are always checkpointed")),
    (
        "disable_ha",
        Unsupported("daemons that share a store elect a leader; with the embedded store there is one daemon"),
    ),
    ("disable_http", Attention(TLS)),
    (
        "disable_http_compression",
        Unsupported("responses are not compressed for clients that do not accept gzip"),
    ),
    (
        "disable_maintenance_mode",
        Attention("set `apps.maintenance = \"ignore\"`"),
    ),
    ("disable_metrics", Unsupported(METRICS)),
    ("disable_store_cache", Unsupported(ALWAYS)),
    ("disable_zk_compression", Unsupported(ZOOKEEPER)),
    ("draining_seconds", SameKey(Integer)),
    ("enable_features", SameKey(List)),
    ("env_vars_prefix", SameKey(Text)),
    (
        "event_stream_max_outstanding_messages",
        Unsupported("a subscriber is disconnected when more than 8,192 events or 16 MiB wait for it"),
    ),
    (
        "event_subscriber",
        Attention("callbacks need no switch: set `apps.callbacks.allow` to the hosts of the URLs"),
    ),
    (
        "executor",
        Unsupported("tasks run in the command executor unless their definition names another"),
    ),
    ("failover_timeout", SameKey(Integer)),
    ("framework_name", SameKey(Text)),
    ("gpu_scheduling_behavior", SameKey(Text)),
    (
        "ha",
        Unsupported("daemons that share a store elect a leader; with the embedded store there is one daemon"),
    ),
    ("hostname", SameKey(Text)),
    ("http_address", Key("apps.listener", Text)),
    (
        "http_compression",
        Unsupported("responses are compressed for clients that accept gzip"),
    ),
    ("http_credentials", Credentials),
    (
        "http_endpoints",
        Attention(
            "add each URL with POST /v2/eventSubscriptions, and set `apps.callbacks.allow` to the hosts of the URLs",
        ),
    ),
    (
        "http_max_concurrent_requests",
        Key("apps.max_concurrent_requests", Integer),
    ),
    ("http_port", Key("apps.port", Integer)),
    ("http_realm", Unsupported(FIXED)),
    ("https_address", Attention(TLS)),
    ("https_port", Attention(TLS)),
    (
        "internal_store_backend",
        Attention("choose a store in [store]: the embedded one, or a Redis"),
    ),
    ("kill_chunk_size", Unsupported("kills are not sent in chunks")),
    ("kill_retry_timeout", Unsupported(FIXED)),
    ("launch_token", Unsupported(TOKENS)),
    ("launch_token_refresh_interval", Unsupported(TOKENS)),
    ("launch_tokens", Unsupported(TOKENS)),
    ("leader_proxy_connection_timeout", Unsupported(FIXED)),
    (
        "leader_proxy_max_open_connections",
        Unsupported("standbys open as many connections as they need"),
    ),
    ("leader_proxy_read_timeout", Unsupported(FIXED)),
    (
        "leader_proxy_ssl_ignore_hostname",
        Unsupported("daemons trust certificates of the issuer in `apps.tls_certificate`"),
    ),
    ("local_port_max", SameKey(Integer)),
    ("local_port_min", SameKey(Integer)),
    (
        "logging_level",
        Attention("set `level` in [log]: error, warn, info, debug or trace"),
    ),
    (
        "logstash",
        Unsupported("the log goes to standard error; with `format = \"json\"` in [log] as JSON"),
    ),
    (
        "maintenance_mode",
        Unsupported("it is on: the default of `apps.maintenance` is \"evacuate\""),
    ),
    ("marathon_store_timeout", Unsupported(FIXED)),
    ("master", Key("cluster.master", Text)),
    ("max_apps", SameKey(Integer)),
    (
        "max_concurrent_marathon_health_checks",
        Attention("set `apps.health.concurrency`"),
    ),
    ("max_instances_per_offer", Unsupported(TOKENS)),
    (
        "max_queued_root_group_updates",
        Unsupported("requests to the leader wait in a queue of a fixed size"),
    ),
    ("max_running_deployments", SameKey(Integer)),
    ("max_tasks_per_offer", Unsupported(TOKENS)),
    (
        "mesos_authentication",
        Unsupported("credentials in [cluster] are used if they are set"),
    ),
    ("mesos_authentication_principal", Key("cluster.principal", Text)),
    ("mesos_authentication_secret", Key("cluster.password", Text)),
    (
        "mesos_authentication_secret_file",
        Attention(
            "copy the principal to `cluster.username` and the content of the file to `cluster.password`",
        ),
    ),
    (
        "mesos_bridge_name",
        Unsupported("bridge networks of Mesos containers are always the agents' network `mesos-bridge`"),
    ),
    (
        "mesos_heartbeat_failure_threshold",
        Unsupported("the master announces the interval of its heartbeats"),
    ),
    (
        "mesos_heartbeat_interval",
        Unsupported("the master announces the interval of its heartbeats"),
    ),
    (
        "mesos_leader_ui_url",
        Unsupported("/v2/info has the address of the leading master"),
    ),
    ("mesos_role", Key("apps.role", Text)),
    ("mesos_user", Key("apps.user", Text)),
    ("metrics_datadog", Unsupported(METRICS)),
    ("metrics_prometheus", Unsupported(METRICS)),
    ("metrics_statsd", Unsupported(METRICS)),
    ("min_revive_offers_interval", Unsupported(FIXED)),
    (
        "new_group_enforce_role",
        Attention("set `enforceRole` in the definitions of top-level groups"),
    ),
    (
        "offer_matching_timeout",
        Unsupported("a round of matching is bounded in time"),
    ),
    ("on_elected_prepare_timeout", Unsupported(FIXED)),
    ("plugin_conf", Attention(JVM_PLUGINS)),
    ("plugin_dir", Attention(JVM_PLUGINS)),
    (
        "reconciliation_initial_delay",
        Unsupported("tasks are reconciled with each subscription"),
    ),
    ("reconciliation_interval", Unsupported(FIXED)),
    (
        "scale_apps_initial_delay",
        Unsupported("apps are scaled when something changes"),
    ),
    (
        "scale_apps_interval",
        Unsupported("apps are scaled when something changes"),
    ),
    ("ssl_keystore_password", Attention(KEYSTORE)),
    ("ssl_keystore_path", Attention(KEYSTORE)),
    ("store_cache", Unsupported(ALWAYS)),
    (
        "task_launch_confirm_timeout",
        Unsupported("`apps.task_launch_timeout_seconds` is counted from the launch"),
    ),
    (
        "task_launch_timeout",
        Key("apps.task_launch_timeout_seconds", Milliseconds),
    ),
    (
        "task_lost_expunge_initial_delay",
        Unsupported("lost tasks are replaced according to `unreachableStrategy`"),
    ),
    (
        "task_lost_expunge_interval",
        Unsupported("lost tasks are replaced according to `unreachableStrategy`"),
    ),
    ("task_reservation_timeout", Unsupported(FIXED)),
    ("webui_url", Unsupported("it is the address of the apps port")),
    (
        "zk",
        Attention(
            "Marathon's state in ZooKeeper is not read; the state is in [store]: the embedded one, or a Redis if several \
             daemons share it",
        ),
    ),
    ("zk_max_versions", Key("apps.max_versions", Integer)),
    ("zk_timeout", Unsupported(ZOOKEEPER)),
];

/// The counterpart of the flag with this name. All flags that begin with `zk_` have one.
pub fn counterpart(flag: &str) -> Option<Counterpart> {
    let counterpart = FLAGS.iter().find(|(name, _)| *name == flag);
    let counterpart = counterpart.map(|(_, counterpart)| *counterpart);
    counterpart.or_else(|| flag.starts_with("zk_").then_some(Unsupported(ZOOKEEPER)))
}

/// The reason why `apps.FLAG` is not a setting, if it is a flag without a counterpart.
pub(super) fn reason(key: &str) -> Option<&'static str> {
    match counterpart(key.strip_prefix("apps.")?)? {
        Attention(text) | Unsupported(text) => Some(text),
        SameKey(_) | Key(..) | Credentials => None,
    }
}

/// Whether `key` is the flag with user and password, which remains only if it has another form.
pub(super) fn is_credentials(key: &str) -> bool {
    key.strip_prefix("apps.").and_then(counterpart) == Some(Credentials)
}

/// The flags that set the key `section.key`.
pub(super) fn flags_of(key: &str) -> impl Iterator<Item = &'static str> {
    let is_credentials = matches!(key, "apps.api_username" | "apps.api_password");
    FLAGS
        .iter()
        .filter_map(move |(flag, counterpart)| match counterpart {
            Key(name, _) if *name == key => Some(*flag),
            Credentials if is_credentials => Some(*flag),
            _ => None,
        })
}

/// Renames flags in `[apps]` to their keys, in all sections. A value that cannot be converted stays, and
/// is reported as an error of its key.
pub(super) fn rename_flags(settings: &mut Dict) {
    let Some(Value::Dict(_, apps)) = settings.get(APPS) else {
        return;
    };
    let present: Vec<&str> = FLAGS
        .iter()
        .map(|(flag, _)| *flag)
        .filter(|flag| apps.contains_key(*flag))
        .collect();
    for flag in present {
        let (Some(counterpart), Some(value)) = (counterpart(flag), remove_key(settings, APPS, flag)) else {
            continue;
        };
        match counterpart {
            Key(key, form) => insert_unless_set(settings, flag, key, convert_value(form, value)),
            Credentials => {
                let Some((username, password)) = value.as_str().and_then(|text| text.split_once(':')) else {
                    // It stays as an unknown key, which is reported with the expected form.
                    if let Some(apps) = section(settings, APPS) {
                        apps.insert(flag.to_owned(), value);
                    }
                    continue;
                };
                let (username, password) = (username.to_owned(), password.to_owned());
                insert_unless_set(settings, flag, "apps.api_username", username.into());
                insert_unless_set(settings, flag, "apps.api_password", password.into());
            }
            // The flag's name is itself a key, or an unknown key that is reported with the reason.
            SameKey(_) | Attention(_) | Unsupported(_) => {
                if let Some(apps) = section(settings, APPS) {
                    apps.insert(flag.to_owned(), value);
                }
            }
        }
    }
    default_username_to_principal(settings);
}

const APPS: &str = "apps";
const CLUSTER: &str = "cluster";

/// Sets the user of the secret to the principal, as in Marathon.
fn default_username_to_principal(settings: &mut Dict) {
    let Some(Value::Dict(_, cluster)) = settings.get_mut(CLUSTER) else {
        return;
    };
    if cluster.contains_key("password")
        && !cluster.contains_key("username")
        && let Some(principal) = cluster.get("principal").cloned()
    {
        cluster.insert("username".to_owned(), principal);
    }
}

/// The section with this name. `None`: the value is not a table, which is reported later.
fn section<'a>(settings: &'a mut Dict, name: &str) -> Option<&'a mut Dict> {
    let entry = settings.entry(name.to_owned());
    match entry.or_insert_with(|| Dict::new().into()) {
        Value::Dict(_, section) => Some(section),
        _ => None,
    }
}

fn remove_key(settings: &mut Dict, name: &str, key: &str) -> Option<Value> {
    match settings.get_mut(name) {
        Some(Value::Dict(_, section)) => section.remove(key),
        _ => None,
    }
}

/// Sets `section.key`, unless it is set already.
fn insert_unless_set(settings: &mut Dict, flag: &str, key: &str, value: Value) {
    let Some((section_name, key_name)) = key.split_once('.') else {
        return;
    };
    let Some(section) = section(settings, section_name) else {
        return;
    };
    if section.contains_key(key_name) {
        // Printed, because the log is not configured before the settings are read.
        print_note(format_args!(
            "transom: `{key}` and `apps.{flag}` are both set; `{key}` is used"
        ));
    } else {
        section.insert(key_name.to_owned(), value);
    }
}

/// Converts a flag's value to the form of the key. A value of the wrong type stays as it is, so that it
/// is reported as an error of the key.
fn convert_value(form: FlagForm, value: Value) -> Value {
    // Numbers from a file are signed, those from the environment are not.
    let number = value.to_num_lossy().and_then(Num::to_u128_lossy);
    let seconds = number.and_then(|number| u64::try_from(number.div_ceil(MILLISECONDS.into())).ok());
    match (form, seconds, value.as_str()) {
        (Milliseconds, Some(seconds), _) => seconds.into(),
        (List, _, Some(text)) => Value::from(comma_separated(text)),
        _ => value,
    }
}

/// Milliseconds of a second. Seconds are rounded up, so that a timeout is never shorter than
/// configured.
const MILLISECONDS: u32 = 1000;

fn comma_separated(text: &str) -> Vec<String> {
    let items = text.split(',').map(str::trim).filter(|text| !text.is_empty());
    items.map(str::to_owned).collect()
}

/// Converts a flag's text to the form of the key.
///
/// # Errors
/// The expected form.
pub fn parse_flag_value(form: FlagForm, text: &str) -> Result<toml::Value, &'static str> {
    let integer = |text: &str| text.parse::<i64>().map_err(|_| "a whole number");
    Ok(match form {
        Text => text.into(),
        Integer => integer(text)?.into(),
        Milliseconds => {
            let milliseconds: u32 = text.parse().map_err(|_| "a number of milliseconds")?;
            i64::from(milliseconds.div_ceil(MILLISECONDS)).into()
        }
        List => comma_separated(text).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{Overrides, Settings, load};
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let mut file = tempfile::Builder::new()
            .suffix(".toml")
            .tempfile()
            .expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        load(Some(file.path()), Overrides::default())
            .map(|(settings, _)| settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_sorted_and_name_known_keys() {
        assert!(FLAGS.is_sorted_by(|a, b| a.0 < b.0));
        let known_settings = toml::Table::try_from(Settings {
            apps: Some(super::super::Apps {
                trusted_networks: Some(Vec::new()),
                max_concurrent_requests: Some(1),
                max_apps: Some(1),
                api_username: Some("u".to_owned()),
                api_password: Some("p".into()),
                ..super::super::Apps::default()
            }),
            cluster: super::super::Cluster {
                principal: Some("p".to_owned()),
                password: Some("p".into()),
                ..super::super::Cluster::default()
            },
            ..Settings::default()
        })
        .expect("a table");
        for &(flag, counterpart) in FLAGS {
            let key = match counterpart {
                Key(key, _) => key.to_owned(),
                SameKey(_) => format!("apps.{flag}"),
                Credentials | Attention(_) | Unsupported(_) => continue,
            };
            let (section, name) = key.split_once('.').expect("a section");
            assert!(known_settings[section].get(name).is_some(), "--{flag}: {key}");
        }
    }

    /// The table in the documentation lists exactly the flags that are accepted as aliases of keys.
    #[test]
    fn accepted_flags_are_those_in_the_documentation() {
        let page = include_str!("../../../docs/apps/marathon.md");
        let (_, table) = page.split_once("| flag | key |\n|---|---|\n").expect("the table");
        let (table, _) = table.split_once("\n\n").expect("its end");
        let cells = |row: &'static str| -> (&str, &str) {
            let mut cells = row.split('|').map(str::trim).skip(1);
            (
                cells.next().expect("a flag").trim_matches('`'),
                cells.next().expect("a key"),
            )
        };
        let documented: Vec<_> = table.lines().map(cells).collect();
        let accepted = FLAGS.iter().filter_map(|(flag, counterpart)| match counterpart {
            Key(key, _) => Some((*flag, *key)),
            Credentials => Some((*flag, "apps.api_username")),
            SameKey(_) | Attention(_) | Unsupported(_) => None,
        });
        let accepted: Vec<_> = accepted.collect();
        assert_eq!(documented.len(), accepted.len());
        for ((flag, text), (expected, key)) in documented.into_iter().zip(accepted) {
            assert_eq!(flag, expected);
            assert!(text.starts_with(&format!("`{key}`")), "{flag}: {text}");
        }
    }

    #[test]
    fn flags_are_accepted_as_aliases_of_their_keys() {
        let settings = read(
            "[apps]\nhttp_port = 8081\nhttp_address = \"127.0.0.2\"\nmesos_role = \"dev\"\nmesos_user = \"svc\"\n\
             http_max_concurrent_requests = 9\nzk_max_versions = 7\ntask_launch_timeout = 1500\n\
             access_control_allow_origin = \"https://a.example, https://b.example:8443\"\n\
             http_credentials = \"user:pass:word\"\nmaster = \"zk://h1:2181/mesos\"\n\
             mesos_authentication_principal = \"me\"\nmesos_authentication_secret = \"s3cret\"\n\
             max_running_deployments = 3\nlocal_port_min = 11000\n",
        )
        .expect("valid");
        let apps = settings.apps.expect("on");
        assert_eq!(
            (apps.port, apps.listener.to_string().as_str()),
            (8081, "127.0.0.2")
        );
        assert_eq!((apps.role.as_str(), apps.user.as_str()), ("dev", "svc"));
        assert_eq!((apps.max_concurrent_requests, apps.max_versions), (Some(9), 7));
        assert_eq!(apps.task_launch_timeout_seconds, 2);
        let origins: Vec<String> = apps.allowed_origins.iter().map(ToString::to_string).collect();
        assert_eq!(origins, ["https://a.example", "https://b.example:8443"]);
        assert_eq!(apps.api_username.as_deref(), Some("user"));
        assert_eq!(apps.api_password.expect("set").reveal(), "pass:word");
        assert_eq!((apps.max_running_deployments, apps.local_port_min), (3, 11_000));
        let cluster = settings.cluster;
        assert_eq!(cluster.master, "zk://h1:2181/mesos");
        assert_eq!(
            (cluster.principal.as_deref(), cluster.username.as_deref()),
            (Some("me"), Some("me"))
        );
        assert_eq!(cluster.password.expect("set").reveal(), "s3cret");
    }

    #[test]
    fn milliseconds_become_seconds_from_any_source() {
        for (value, expected) in [
            (Value::from(1500_i64), Some(2)),
            (Value::from(1500_u64), Some(2)),
            (Value::from("2000"), Some(2)),
            (Value::from(0_u64), Some(0)),
            (Value::from(-1_i64), None),
            (Value::from("soon"), None),
        ] {
            let actual = convert_value(Milliseconds, value.clone());
            match expected {
                Some(seconds) => assert_eq!(actual.to_u128(), Some(seconds), "{value:?}"),
                None => assert_eq!(actual, value),
            }
        }
    }

    #[test]
    fn the_key_takes_precedence_over_the_flag() {
        let settings = read(
            "[cluster]\nmaster = \"m:5050\"\n[apps]\nport = 1\nhttp_port = 2\nmaster = \"other:5050\"\n\
             allowed_origins = []\naccess_control_allow_origin = \"https://a.example\"\n",
        )
        .expect("valid");
        assert_eq!(settings.cluster.master, "m:5050");
        let apps = settings.apps.expect("on");
        assert_eq!(apps.port, 1);
        assert!(apps.allowed_origins.is_empty());
    }

    #[test]
    fn unsupported_flags_are_errors_with_a_reason() {
        for (text, expected) in [
            ("zk = \"zk://h/marathon\"", "`apps.zk`"),
            ("zk = \"zk://h/marathon\"", "the state is in [store]"),
            ("zk_session_timeout = 1", "the state is in [store]"),
            ("ssl_keystore_path = \"k\"", "convert it to PEM"),
            ("plugin_dir = \"p\"", "WebAssembly components"),
            ("http_credentials = \"user\"", "\"USER:PASSWORD\""),
            ("http_port = \"x\"", "`apps.port` is"),
            // With "*", every web page could change apps.
            ("access_control_allow_origin = \"*\"", "\"*\" is not an origin"),
            ("access_control_allow_origin = \"*\"", "`apps.allowed_origins"),
        ] {
            let error = read(&format!("[apps]\n{text}\n")).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
            assert!(
                !error.contains("/marathon"),
                "the error quotes the value: {error}"
            );
        }
    }
}
