//! Reading settings: the file, then the environment (the specification's variables, then ours),
//! then `--port`; the later one wins.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::bail;
use figment::error::Kind;
use figment::providers::Env;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::aliases::{SpecifiedVariables, WithAliases};
use super::file::Toml;
use super::kubernetes::{Kubernetes, Variables as KubernetesVariables};
use super::settings::{Admin, Bindings, SECTIONS, Settings};
use super::{limits, marathon, renamed};

/// The bounds of a lease's duration.
const LEASE_SECONDS: RangeInclusive<u64> = 1..=600;

/// The bounds of the times in `plugins.oci`.
const OCI_SECONDS: RangeInclusive<u64> = 1..=86_400;

/// The bounds of `plugins.compile_timeout_seconds`.
const COMPILE_SECONDS: RangeInclusive<u64> = 1..=3600;

/// Keys given on the command line, as `section.key` to value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides(BTreeMap<String, Value>);

impl Overrides {
    pub(crate) fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }
}

impl Provider for Overrides {
    fn metadata(&self) -> Metadata {
        Metadata::named("the command line")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = Dict::new();
        for (key, value) in &self.0 {
            if let Value::Dict(_, nested) = figment::util::nest(key, value.clone()) {
                for (section, entry) in nested {
                    merge(&mut dict, section, entry);
                }
            }
        }
        Ok(Profile::Default.collect(dict))
    }
}

fn merge(into: &mut Dict, key: String, value: Value) {
    match (into.get_mut(&key), value) {
        (Some(Value::Dict(_, have)), Value::Dict(_, more)) => {
            for (key, value) in more {
                merge(have, key, value);
            }
        }
        (_, value) => {
            into.insert(key, value);
        }
    }
}

/// Reads `file` (none: the environment alone) and returns the settings with the source of each
/// value.
///
/// # Errors
/// A missing or invalid file, an unknown key (with the most similar known one), or a value of the
/// wrong type; each with its place.
pub(crate) fn load(file: Option<&Path>, overrides: Overrides) -> anyhow::Result<(Settings, Figment)> {
    let mut figment = Figment::new();
    if let Some(file) = file {
        if !file.is_file() {
            bail!(
                "no configuration at {}: name one with --config, or start with `transom dev`",
                file.display()
            );
        }
        figment = figment.merge(WithAliases(Toml::File(file)));
    }
    let mut figment = figment.merge(SpecifiedVariables::here());
    let environment = Figment::from(environment());
    // The variables of part B configure the service; they do not enable it.
    let is_enabled = figment.contains("kubernetes") || environment.contains("kubernetes");
    let faults = if is_enabled {
        match KubernetesVariables::here() {
            Ok(variables) => {
                figment = figment.merge(variables);
                Vec::new()
            }
            Err(faults) => faults,
        }
    } else {
        Vec::new()
    };
    let figment = figment.merge(WithAliases(self::environment())).merge(overrides);
    match figment.extract::<Settings>() {
        Ok(mut settings) => {
            for path in settings.paths() {
                *path = resolve_relative(file, path);
            }
            let problems = settings.kubernetes.iter().flat_map(Kubernetes::problems);
            let faults: Vec<String> = faults.into_iter().chain(problems).collect();
            if !faults.is_empty() {
                bail!("{}", faults.join("\n"));
            }
            check(&settings)?;
            Ok((settings, figment))
        }
        Err(error) if faults.is_empty() => bail!("{}", explain(&error)),
        Err(error) => bail!("{}\n{}", faults.join("\n"), explain(&error)),
    }
}

/// The section `[admin]` of a daemon's configuration alone, for clients of that daemon: they need
/// neither the other sections nor their secrets.
///
/// # Errors
/// As [`load`], for this section.
pub(crate) fn admin(file: &Path) -> anyhow::Result<Admin> {
    if !file.is_file() {
        bail!(
            "no configuration at {}: name the daemon's with --config",
            file.display()
        );
    }
    let figment = Figment::new().merge(Toml::File(file)).merge(environment());
    // Even if the file is invalid TOML; the full extraction reports that.
    if figment.find_value("admin").is_err() {
        return match figment.extract::<Dict>() {
            Ok(_) => Ok(Admin::default()),
            Err(error) => bail!("{}", explain(&error)),
        };
    }
    match figment.extract_inner::<Admin>("admin") {
        Ok(mut section) => {
            for path in section.paths() {
                *path = resolve_relative(Some(file), path);
            }
            Ok(section)
        }
        Err(error) => bail!("{}", explain(&error)),
    }
}

/// The settings that are missing for `serve`; nothing when it is complete.
pub(crate) fn missing(text: &str) -> Vec<String> {
    let figment = Figment::new().merge(WithAliases(Toml::Text(text)));
    let checked = figment
        .extract::<Settings>()
        .map_err(|error| explain(&error))
        .and_then(|settings| check(&settings).map_err(|error| error.to_string()));
    match checked {
        Ok(()) => Vec::new(),
        Err(gaps) => gaps.lines().map(str::to_owned).collect(),
    }
}

/// Rules about several keys.
fn check(settings: &Settings) -> anyhow::Result<()> {
    refuse_timeouts(settings)?;
    refuse_ports(settings)?;
    refuse_lease(settings)?;
    refuse_prefix(settings)?;
    refuse_network_name(settings)?;
    refuse_limits(settings)?;
    refuse_quic(settings)?;
    refuse_missing_keys(settings)
}

/// A port that this build cannot serve.
fn refuse_quic(settings: &Settings) -> anyhow::Result<()> {
    let quic_port = settings.discovery.as_ref().and_then(|section| section.quic_port);
    if quic_port.is_some() && !transom_discovery::config::check::HAS_QUIC {
        bail!(
            "`discovery.quic_port` is set, but this build has no DNS over QUIC: build it with `--features quic`"
        );
    }
    Ok(())
}

/// Credentials, certificates and exposure of the ports.
fn refuse_ports(settings: &Settings) -> anyhow::Result<()> {
    let problems = settings.port_problems();
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"));
}

/// A short lease is lost with the first delay; a long one delays the takeover.
fn refuse_lease(settings: &Settings) -> anyhow::Result<()> {
    let seconds = settings.store.lease_seconds;
    if !LEASE_SECONDS.contains(&seconds) {
        let (least, most) = (LEASE_SECONDS.start(), LEASE_SECONDS.end());
        bail!("`store.lease_seconds` is {seconds}: it must be between {least} and {most} seconds");
    }
    Ok(())
}

/// Reports all missing keys of `[workflow]` together, and names that two frameworks have.
fn refuse_missing_keys(settings: &Settings) -> anyhow::Result<()> {
    let mut gaps = Vec::new();
    if let Some(workflow) = &settings.workflow {
        gaps.extend(workflow.gaps());
        // Another matcher may have another constraint syntax.
        if settings.plugins.bindings.matcher == Bindings::default().matcher {
            gaps.extend(workflow.unmatchable_attributes());
        }
    }
    let frameworks = [
        ("apps", settings.apps.as_ref().map(|apps| &apps.framework_name)),
        (
            "workflow",
            settings
                .workflow
                .as_ref()
                .map(|workflow| &workflow.framework_name),
        ),
        (
            "kubernetes",
            settings
                .kubernetes
                .as_ref()
                .map(|kubernetes| &kubernetes.framework_name),
        ),
    ];
    for (at, (section, name)) in frameworks.iter().enumerate() {
        let other = frameworks[..at]
            .iter()
            .find(|(_, other)| name.is_some() && name == other);
        if let (Some((other, _)), Some(name)) = (other, name) {
            gaps.push(format!(
                "`{section}.framework_name` is {name:?}, which is `{other}.framework_name` too: each framework needs a \
                 name of its own"
            ));
        }
    }
    if gaps.is_empty() {
        return Ok(());
    }
    bail!("{}", gaps.join("\n"));
}

/// Limits of `[apps]` with which nothing would work.
fn refuse_limits(settings: &Settings) -> anyhow::Result<()> {
    let problems: Vec<String> = settings.apps.iter().flat_map(limits::problems).collect();
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}", problems.join("\n"));
}

/// The prefix of the variables' names must itself be a valid prefix.
fn refuse_prefix(settings: &Settings) -> anyhow::Result<()> {
    let prefix = settings.apps.as_ref().map(|apps| apps.env_vars_prefix.as_str());
    let prefix = prefix.unwrap_or_default();
    let starts_well = !prefix.starts_with(|char: char| char.is_ascii_digit());
    if starts_well
        && prefix
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
    {
        return Ok(());
    }
    bail!(
        "`apps.env_vars_prefix` is {prefix:?}; expected letters, digits and underscores, not beginning with a digit, as in \
         \"MARATHON_\""
    );
}

/// As in definitions, except that capital letters are accepted, as Marathon does here.
fn refuse_network_name(settings: &Settings) -> anyhow::Result<()> {
    let name = settings
        .apps
        .as_ref()
        .map(|apps| apps.default_network_name.as_str());
    let name = name.unwrap_or_default();
    let outer = |char: char| char.is_ascii_alphanumeric();
    let inner = |char: char| outer(char) || matches!(char, '-' | '_');
    let valid = name.starts_with(outer) && name.ends_with(outer) && name.chars().all(inner);
    if name.is_empty() || valid && name.len() <= 63 {
        return Ok(());
    }
    bail!(
        "`apps.default_network_name` is {name:?}; expected at most 63 letters and digits, with hyphens and \
         underscores only inside, as in \"dcos\""
    );
}

/// Registry requests need a minimum interval, and fetching and compiling a maximum time.
fn refuse_timeouts(settings: &Settings) -> anyhow::Result<()> {
    let seconds = settings.plugins.compile_timeout_seconds;
    if !COMPILE_SECONDS.contains(&seconds) {
        let (least, most) = (COMPILE_SECONDS.start(), COMPILE_SECONDS.end());
        bail!(
            "`plugins.compile_timeout_seconds` is {seconds}: it must be between {least} and {most} seconds"
        );
    }
    let oci = &settings.plugins.oci;
    for (key, seconds) in [
        ("refresh_seconds", oci.refresh_seconds),
        ("timeout_seconds", oci.timeout_seconds),
    ] {
        if !OCI_SECONDS.contains(&seconds) {
            let (least, most) = (OCI_SECONDS.start(), OCI_SECONDS.end());
            bail!("`plugins.oci.{key}` is {seconds}: it must be between {least} and {most} seconds");
        }
    }
    Ok(())
}

/// Variables of commands that look like settings: the URLs of a running daemon's ports.
const NO_SETTINGS: [&str; 2] = ["ADMIN_URL", "APPS_URL"];

/// `TRANSOM_APPS_PORT=8081` is `apps.port`.
fn environment() -> Env {
    Env::prefixed("TRANSOM_")
        .filter(|key| is_setting(key.as_str()))
        .map(|key| key.as_str().to_ascii_lowercase().replacen('_', ".", 1).into())
}

/// Whether a variable, without its prefix, sets a key. One without a section (`STATE`) does not.
fn is_setting(variable: &str) -> bool {
    let section = variable.split_once('_').map(|(section, _)| section);
    let is_url = |name: &&str| variable.eq_ignore_ascii_case(name);
    section.is_some_and(is_section) && !NO_SETTINGS.iter().any(is_url)
}

fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|section| section.eq_ignore_ascii_case(name))
}

/// Resolves a relative path against the directory of its file, not the working directory.
fn resolve_relative(file: Option<&Path>, path: &Path) -> PathBuf {
    match file.and_then(Path::parent) {
        Some(parent) if path.is_relative() => parent.join(path),
        _ => path.to_path_buf(),
    }
}

/// Rewrites figment's errors: place, value, and expected value.
pub(super) fn explain(error: &figment::Error) -> String {
    error
        .clone()
        .into_iter()
        .map(|error| explain_one(&error))
        .collect::<Vec<_>>()
        .join("\n")
}

fn explain_one(error: &figment::Error) -> String {
    let place = match &error.metadata {
        Some(metadata) => match &metadata.source {
            Some(source) => format!(" (in {source})"),
            None => format!(" (from {})", metadata.name),
        },
        None => String::new(),
    };
    let path = error.path.join(".");
    match &error.kind {
        Kind::UnknownField(name, known) => {
            // The path ends with the key if figment knows it.
            let at = match error.path.last() {
                None => name.clone(),
                Some(last) if last == name => path,
                Some(_) => format!("{path}.{name}"),
            };
            let hint = match (renamed::key(&at), marathon::reason(&at), nearest(name, known)) {
                (Some(new), _, _) => format!("it is now `{new}`"),
                (None, Some(reason), _) => format!("Marathon's flag has no counterpart: {reason}"),
                (None, None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None, None) => format!("known here: {}", known.join(", ")),
            };
            format!("unknown key `{at}`{place}; {hint}")
        }
        Kind::InvalidType(found, wanted) | Kind::InvalidValue(found, wanted) => {
            format!("`{path}` is {found}{place}; expected {wanted}")
        }
        Kind::UnknownVariant(found, known) => {
            let known = known.join(", ");
            let hint = renamed::value(&path, found);
            let hint = hint.map_or_else(String::new, |new| format!("; `{found}` is now `{new}`"));
            format!("`{path}` is `{found}`{place}; expected one of {known}{hint}")
        }
        kind if path.is_empty() => format!("{kind}{place}"),
        kind => format!("`{path}`: {kind}{place}"),
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let mut file = tempfile::Builder::new()
            .suffix(".toml")
            .tempfile()
            .expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        load(Some(file.path()), Overrides::default())
            .map(|(settings, _)| settings)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn section_enables_its_service() {
        let settings = read("[apps]\n").expect("valid");
        assert!(settings.apps.is_some());
        assert!(settings.discovery.is_none());
    }

    #[test]
    fn load_names_mistakes_with_their_key() {
        for (text, expected) in [
            ("[apps]\nprot = 1\n", "unknown key `apps.prot` "),
            ("[apps]\nprot = 1\n", "did you mean `port`?"),
            ("[app]\nport = 1\n", "unknown key `app`"),
            ("[apps]\nport = \"x\"\n", "`apps.port`"),
            ("[apps]\nport = 70000\n", "`apps.port`"),
            (
                "[apps.checks]\nnetwork_from = \"moon\"\n",
                "expected one of daemon, agent",
            ),
            ("[apps\n", "TOML parse error"),
            (
                "[plugins.oci]\nrefresh_seconds = 0\n",
                "`plugins.oci.refresh_seconds` is 0",
            ),
            (
                "[plugins]\ncompile_timeout_seconds = 0\n",
                "`plugins.compile_timeout_seconds` is 0: it must be between 1 and 3600 seconds",
            ),
            ("[[plugins.oci.credentials]]\nuser = \"u\"\n", "registry"),
            ("[plugins.signatures]\nkey = []\n", "did you mean `keys`?"),
            ("[apps]\nlistener = \"0.0.0.0\"\n", "`apps.listener` is 0.0.0.0"),
            (
                "[apps]\nenv_vars_prefix = \"MY-\"\n",
                "`apps.env_vars_prefix` is \"MY-\"; expected letters, digits and underscores",
            ),
            ("[apps]\nenv_vars_prefix = \"1_\"\n", "not beginning with a digit"),
            (
                "[apps]\ndefault_network_name = \"-x\"\n",
                "`apps.default_network_name` is \"-x\"; expected at most 63 letters",
            ),
            ("[apps]\nenable_features = [\"secret\"]\n", "is `secret` (in"),
            (
                "[apps]\nmax_versions = 0\nmax_apps = 0\n",
                "`apps.max_apps` is 0: it must be at least 1\n`apps.max_versions` is 0",
            ),
            (
                "[admin]\nlistener = \"10.0.0.1\"\n",
                "`admin.listener` is 10.0.0.1",
            ),
            ("[admin]\nusername = \"u\"\n", "`admin.password` is missing"),
            ("[admin]\npassword = \"p\"\n", "`admin.username` is missing"),
            (
                "[admin]\nlistener = \"10.0.0.1\"\nusername = \"u\"\n",
                "`admin.password` is missing",
            ),
            (
                "[admin]\nusername = \"u:v\"\npassword = \"p\"\n",
                "`admin.username` is \"u:v\"",
            ),
            (
                "[admin]\nusername = \"u\"\npassword = \"\"\n",
                "`admin.password` is empty",
            ),
            (
                "[apps]\nallowed_hosts = [\"http://marathon.mesos:8080\"]\n",
                "without scheme and port",
            ),
            ("[apps]\nallowed_hosts = [\"a:80\"]\n", "`apps.allowed_hosts"),
            (
                "[workflow]\nallowed_origins = [\"ui.example.com\"]\n",
                "`workflow.allowed_origins",
            ),
            (
                "[admin]\nallowed_origins = [\"null\"]\n",
                "\"null\" is not an origin",
            ),
            (
                "[workflow]\ncluster_attributes = [\"a:b\", \"airflow\"]\n",
                "`workflow.cluster_attributes` has \"airflow\"",
            ),
            (
                "[workflow]\nmesos_attributes = [\"gpu:true?:cpu\"]\n",
                "has \"gpu:true?:cpu\"",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.contains(expected),
                "{text:?} gave {error:?}, expected {expected:?}"
            );
        }
    }

    #[test]
    fn exposed_admin_port_needs_credentials_or_networks() {
        for more in [
            "username = \"u\"\npassword = \"p\"\n",
            "trusted_networks = [\"10.0.0.0/8\"]\n",
        ] {
            let text = format!("[admin]\nlistener = \"0.0.0.0\"\n{more}");
            let settings = read(&text).expect("valid");
            assert_eq!(settings.admin.listener.to_string(), "0.0.0.0");
        }
        let hosts = "[admin]\nallowed_hosts = [\"*.Example.com\", \"fd00::1\"]\n";
        let shown: Vec<String> = read(hosts)
            .expect("valid")
            .admin
            .allowed_hosts
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(shown, ["*.example.com", "[fd00::1]"]);
    }

    #[test]
    fn admin_reads_only_its_section() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |text: &str| {
            let path = dir.path().join("t.toml");
            std::fs::write(&path, text).expect("written");
            path
        };
        // The daemon's own rules for a secret from its environment do not matter here.
        let text =
            "[workflow]\napi_username = \"u\"\n[admin]\nport = 1\nusername = \"a\"\npassword = \"p\"\n";
        let found = admin(&file(text)).expect("a section");
        assert_eq!((found.port, found.username.as_deref()), (1, Some("a")));
        assert_eq!(
            found.password.map(|it| it.reveal().to_owned()).as_deref(),
            Some("p")
        );
        assert_eq!(admin(&file("[apps]\n")).expect("defaults").port, 9990);
        for (text, expected) in [
            ("[admin]\nprot = 1\n", "did you mean `port`?"),
            ("[admin\n", "TOML parse error"),
        ] {
            let error = admin(&file(text)).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = admin(&dir.path().join("none")).expect_err("no file").to_string();
        assert!(error.contains("no configuration at"), "{error}");
    }

    #[test]
    fn other_matchers_may_use_other_attribute_forms() {
        let text = "[plugins.use]\nmatcher = \"ours\"\n[workflow]\ncluster_attributes = [\"airflow\"]\n";
        let workflow = read(text).expect("valid").workflow.expect("on");
        assert_eq!(workflow.cluster_attributes, ["airflow"]);
    }

    #[test]
    fn is_setting_recognises_variables_of_sections() {
        for (variable, expected) in [
            ("APPS_PORT", true),
            ("admin_port", true),
            ("ADMIN_URL", false),
            ("apps_url", false),
            ("STATE", false),
            ("COMPONENTS_DIR", false),
        ] {
            assert_eq!(is_setting(variable), expected, "{variable}");
        }
    }

    #[test]
    fn command_line_overrides_file() {
        let mut file = tempfile::Builder::new()
            .suffix(".toml")
            .tempfile()
            .expect("a temporary file");
        file.write_all(b"[apps]\nport = 1\nrole = \"dev\"\n")
            .expect("written");
        let mut overrides = Overrides::default();
        overrides.set("apps.port", 2_u16);
        let (settings, figment) = load(Some(file.path()), overrides).expect("valid");
        let apps = settings.apps.expect("on");
        assert_eq!((apps.port, apps.role.as_str()), (2, "dev"));
        assert_eq!(
            figment.find_metadata("apps.port").expect("known").name,
            "the command line"
        );
    }

    #[test]
    fn relative_paths_are_resolved_against_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("t.toml");
        std::fs::write(
            &file,
            "[apps]\ntls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\nui_dir = \"ui\"\n[plugins]\ndir = \"p\"\n[plugins.signatures]\nkeys = [\"a.pub\", \"/b.pub\"]\n[plugins.oci]\nca_file = \"ca\"\n",
        )
        .expect("written");
        let (settings, _) = load(Some(&file), Overrides::default()).expect("valid");
        assert_eq!(settings.plugins.dir, dir.path().join("p"));
        assert_eq!(settings.plugins.oci.ca_file, Some(dir.path().join("ca")));
        let apps = settings.apps.expect("on");
        assert_eq!(apps.tls_certificate, Some(dir.path().join("c.pem")));
        assert_eq!(apps.ui_dir, Some(dir.path().join("ui")));
        let keys = settings.plugins.signatures.keys;
        assert_eq!(keys, [dir.path().join("a.pub"), PathBuf::from("/b.pub")]);
    }
}
