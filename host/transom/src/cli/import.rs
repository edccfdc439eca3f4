//! `transom config import`: converts other programs' configuration.
//!
//! The content determines the kind of file: mesos-dns's is a JSON object; a workflow engine's own
//! file has sections, of which `[cluster]` (`[mesos]`) is read (specification, part D); Marathon's
//! has flags or variables, or is a folder ([`marathon`]).

mod literal;
mod marathon;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use toml::{Table, Value};
use transom_cli::exit::{Misconfigured, Unavailable};
use transom_cli::output::write_new;

use super::dev::shipped_components;
use super::discovery::invalid_file;

/// Convert another program's configuration to TOML: that of Marathon or mesos-dns, or `airflow.cfg`
/// of the workflow engine.
///
/// The content of FILE determines the program. Of Marathon these forms are read: flags as on its
/// command line (`--flag value` or `--flag=value`), `MARATHON_FLAG=value` lines, and a folder with
/// a file for each flag (/etc/marathon/conf; a file named `?flag` is a flag without a value).
///
/// The output starts with comments: what needs attention, and which flags have no counterpart. It
/// may contain secrets.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom config import /etc/marathon/conf --to transom.toml\n  \
    transom config import marathon.conf --env\n  \
    transom config import config.json > transom.toml")]
pub(super) struct Import {
    /// Configuration file or folder of the other program.
    #[arg(required_unless_present = "env")]
    file: Option<PathBuf>,
    /// Read the MARATHON_ variables of the environment; flags in FILE take precedence.
    #[arg(long)]
    env: bool,
    /// Write to this file, which must not exist and which only its owner may read, instead of
    /// standard output.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Boolean,
    Integer,
    Number,
    List,
}

/// All imported keys, by this program's names.
const KEYS: &[(&str, Kind)] = &[
    ("cluster_ssl", Kind::Boolean),
    ("master", Kind::Text),
    ("framework_name", Kind::Text),
    ("role", Kind::Text),
    ("checkpoint", Kind::Boolean),
    ("failover_timeout", Kind::Integer),
    ("command_shell", Kind::Boolean),
    ("task_cpu", Kind::Number),
    ("task_memory", Kind::Number),
    ("task_disk", Kind::Number),
    ("authenticate", Kind::Boolean),
    ("default_principal", Kind::Text),
    ("default_secret", Kind::Text),
    ("container_image_slave", Kind::Text),
    ("container_volume_driver", Kind::Text),
    ("container_volume_dag_name", Kind::Text),
    ("container_volume_dag_container_path", Kind::Text),
    ("container_volume_logs_name", Kind::Text),
    ("container_volume_logs_container_path", Kind::Text),
    ("container_sock", Kind::Text),
    ("container_user_group_id", Kind::Text),
    ("container_network_mode", Kind::Text),
    ("container_environment", Kind::List),
    ("cluster_attributes", Kind::List),
    ("cluster_fetch_uri", Kind::Text),
    ("cluster_fetch_username", Kind::Text),
    ("api_username", Kind::Text),
    ("api_password", Kind::Text),
    ("operator_api_url", Kind::Text),
    ("user", Kind::Text),
];

impl Import {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let texts = (name.into_string(), value.into_string());
            Some((texts.0.ok()?, texts.1.ok()?))
        });
        let text = self.read(variables).context(Misconfigured)?;
        if let Some(file) = &self.to {
            return write_new(file, &text).context(Unavailable);
        }
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    }

    fn read(&self, variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<String> {
        let base_dir = || std::env::current_dir().context("the current directory");
        let mut flags = marathon::Flags::default();
        let mut sources = Vec::new();
        if let Some(file) = &self.file {
            flags = if file.is_dir() {
                marathon::Flags::from_folder(file)?
            } else {
                let text = marathon::read_text(file)?;
                if text.trim_start().starts_with('{') {
                    self.reject_env()?;
                    let import = transom_config::read_mesos_dns(text.as_bytes())
                        .with_context(|| invalid_file(file))?;
                    return transom_config::toml(import);
                }
                let Some(flags) = marathon::Flags::from_text(&text) else {
                    self.reject_env()?;
                    return import_workflow(&text, file, &base_dir()?, shipped_components());
                };
                flags.with_context(|| invalid_file(file))?
            };
            sources.push(file.display().to_string());
        }
        if self.env {
            flags = flags.or_insert_all(marathon::Flags::from_variables(variables));
            sources.push("the environment".to_owned());
        }
        if flags.is_empty() {
            bail!("the environment has no MARATHON_ variables");
        }
        flags.into_toml(&sources.join(" and "), &base_dir()?, shipped_components())
    }

    fn reject_env(&self) -> anyhow::Result<()> {
        if self.env {
            bail!("--env reads Marathon's variables, but the file is another program's");
        }
        Ok(())
    }
}

/// A heading and its points as comments of the TOML; empty without points.
fn comment_list(heading: &str, points: &[String]) -> String {
    let mut text = String::new();
    if !points.is_empty() {
        text = format!("#\n# {heading}:\n");
        for point in points {
            text.extend(["# * ", &transom_plugin_host::printable(point), "\n"]);
        }
    }
    text
}

/// The TOML, with comments about omitted and missing keys. `base_dir`: the directory for the store;
/// `components`: the directory of the first-party components.
fn import_workflow(
    text: &str,
    file: &Path,
    base_dir: &Path,
    components: Option<PathBuf>,
) -> anyhow::Result<String> {
    let sections = ini(text);
    let Some((name, section)) = ["cluster", "mesos"]
        .iter()
        .find_map(|name| Some((*name, sections.get(*name)?)))
    else {
        bail!(
            "{} has no section [cluster] or [mesos]; expected the configuration file of a workflow engine, \
             such as airflow.cfg",
            file.display()
        );
    };
    let (mut table, mut ignored, mut errors) = (Table::new(), Vec::new(), Vec::new());
    // This program's names are inserted last, so that they take precedence.
    let is_primary_name = |key: &String| KEYS.iter().any(|(name, _)| name == key);
    let (first, last): (Vec<_>, Vec<_>) = section.iter().partition(|(key, _)| !is_primary_name(key));
    let mut commented = Vec::new();
    for (key, value) in first.into_iter().chain(last) {
        let (value, has_comment) = literal::without_comment(value);
        if has_comment {
            commented.push(key.clone());
        }
        let neutral = transom_config::WORKFLOW_ALIASES
            .iter()
            .find(|(_, alias)| alias == key)
            .map_or(key.as_str(), |(name, _)| name);
        match KEYS.iter().find(|(candidate, _)| *candidate == neutral) {
            // A key without a value is ignored.
            Some(_) if value.is_empty() => {}
            Some((_, kind)) => match convert(*kind, &value) {
                Ok(value) => drop(table.insert(neutral.to_owned(), value)),
                Err(error) => errors.push(format!("[{name}] {key}: {error}")),
            },
            None => ignored.push(key.clone()),
        }
    }
    if !errors.is_empty() {
        bail!("{}", errors.join("\n"));
    }
    let notes = notes(&table, components.is_some());
    let mut document = Table::new();
    document.insert("workflow".to_owned(), Value::Table(table));
    let mut sections = toml::to_string_pretty(&document)?;
    sections += &store_and_plugins(base_dir, components);

    let mut output = format!("# From section [{name}] of {}.\n", file.display());
    if !ignored.is_empty() {
        output += "# Ignored, because there are no settings with these names: ";
        output += &ignored.join(", ");
        output += ".\n";
    }
    if !commented.is_empty() {
        output += "# The comments (`// …`) after the values of these keys are dropped: ";
        output += &commented.join(", ");
        output += ".\n";
    }
    for gap in transom_config::missing(&sections) {
        output.extend(["# Required before the service can start: ", &gap, "\n"]);
    }
    for note in notes {
        output.extend(["# ", note, "\n"]);
    }
    Ok(output + &sections)
}

/// The settings that the daemon needs in addition to the imported section.
fn store_and_plugins(base_dir: &Path, components: Option<PathBuf>) -> String {
    let text = |value: String| Value::String(value).to_string();
    let store = text(format!("file:{}", base_dir.join("transom-store").display()));
    let plugins = components.unwrap_or_else(|| "plugins".into());
    let plugins = text(plugins.display().to_string());
    format!(
        "\n# The embedded store, for one daemon. Several daemons share a Redis: server = \"HOST:6379\".\n\
         [store]\nserver = {store}\n\n\
         # The components (NAME.wasm and NAME.toml) that decide which agents may run a task. The directory is watched.\n\
         [plugins]\ndir = {plugins}\n"
    )
}

/// Notes on differences in behaviour, with the remedies.
fn notes(workflow: &Table, components: bool) -> Vec<&'static str> {
    let mut notes = vec![
        "The older provider listened on every address; this port listens on 127.0.0.1. If Airflow runs on other machines, set \
         `listener` and `hostname`, and either credentials or `trusted_networks`.",
        "In airflow.cfg, the executor becomes transom_airflow.executor.ClusterExecutor: see docs/workflow.md.",
    ];
    if !workflow.contains_key("api_username") && !workflow.contains_key("api_password") {
        notes.push(
            "There are no credentials: only this machine may queue and kill jobs, and /v0/dags rejects every \
             request. Set `api_username` and `api_password`; the older provider took user and password \
             where none were set.",
        );
    }
    if !workflow.contains_key("container_image_slave") {
        notes.push("`container_image_slave` is not set: each job must name its image.");
    }
    if !components {
        notes.push("No components were found beside this program: copy them to the directory `plugins` beside this file.");
    }
    notes
}

fn convert(kind: Kind, text: &str) -> Result<Value, String> {
    let error = |expected: &str| format!("is {text:?}; expected {expected}");
    match kind {
        Kind::Text => Ok(Value::String(literal::unquoted(text).to_owned())),
        Kind::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" | "yes" | "on" => Ok(Value::Boolean(true)),
            "false" | "f" | "0" | "no" | "off" => Ok(Value::Boolean(false)),
            _ => Err(error("True or False")),
        },
        Kind::Integer => text
            .parse()
            .map(Value::Integer)
            .map_err(|_| error("a whole number")),
        Kind::Number => text.parse().map(Value::Float).map_err(|_| error("a number")),
        Kind::List => match literal::parse(&bracketed(unquoted_list(text))) {
            Ok(list @ Value::Array(_)) => Ok(list),
            Ok(_) => Err(error("a list")),
            Err(error) => Err(format!("is {text:?}, which is not a list: {error}")),
        },
    }
}

/// A quoted list, as in `'["a:b"]'`, without the quotes.
fn unquoted_list(text: &str) -> &str {
    let inner = literal::unquoted(text).trim();
    if inner.starts_with(['[', '(', '{']) {
        inner
    } else {
        text
    }
}

/// Objects with commas between them, as the older provider's page has them, as a list.
fn bracketed(text: &str) -> Cow<'_, str> {
    if text.starts_with('{') {
        format!("[{text}]").into()
    } else {
        text.into()
    }
}

type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Parses sections and keys by the rules of Python's `configparser`: keys become lower case, a line
/// that begins with blanks continues the previous value, and `%%` is a percent sign.
fn ini(text: &str) -> Sections {
    let mut sections = Sections::new();
    let mut section = String::new();
    let mut last: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t'])
            && let Some(value) = last
                .as_ref()
                .and_then(|key| sections.get_mut(&section)?.get_mut(key))
        {
            value.push('\n');
            value.push_str(&unescaped(trimmed));
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
            sections.entry(section.clone()).or_default();
            last = None;
        } else if let Some(index) = trimmed.find(['=', ':']) {
            let key = trimmed[..index].trim().to_ascii_lowercase();
            let value = unescaped(trimmed[index + 1..].trim());
            sections
                .entry(section.clone())
                .or_default()
                .insert(key.clone(), value);
            last = Some(key);
        }
    }
    sections
}

/// `configparser` reads a single percent sign as the beginning of an interpolation.
fn unescaped(text: &str) -> String {
    text.replace("%%", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[core]
executor = avmesos_airflow_provider.executors.mesos_executor.MesosExecutor

[mesos]
# The master.
mesos_ssl = True
master = leader.mesos:5050
framework_name = Airflow
checkpoint = True
failover_timeout = 604800
task_cpu = 1
authenticate = False
docker_image_slave = apache/airflow:3.3.2
docker_volume_driver = local
docker_volume_dag_name = airflowdags
docker_volume_dag_container_path = /home/airflow/dags/
docker_sock = /var/run/docker.sock
docker_environment = [{ "name": "NAME", 'value': 'it''s' },
    {"name": "OTHER", "value": "100%%"}]
mesos_attributes = ["airflow:true", 'gpu:true?:cpu:true',]
api_username = user
api_password =
something_else = 1
"#;

    #[test]
    fn airflow_cfg_is_imported_as_the_workflow_section() {
        let output = import_workflow(FILE, Path::new("airflow.cfg")).expect("imported");
        let document: Table = output.parse().expect("TOML");
        let workflow = &document["workflow"];
        assert_eq!(workflow["cluster_ssl"].as_bool(), Some(true));
        assert_eq!(workflow["master"].as_str(), Some("leader.mesos:5050"));
        assert_eq!(workflow["task_cpu"].as_float(), Some(1.0));
        assert_eq!(workflow["failover_timeout"].as_integer(), Some(604_800));
        assert_eq!(
            workflow["container_image_slave"].as_str(),
            Some("apache/airflow:3.3.2")
        );
        assert_eq!(
            workflow["container_environment"][0]["value"].as_str(),
            Some("its")
        );
        assert_eq!(
            workflow["container_environment"][1]["value"].as_str(),
            Some("100%")
        );
        assert_eq!(
            workflow["cluster_attributes"][1].as_str(),
            Some("gpu:true?:cpu:true")
        );
        assert!(workflow.get("api_password").is_none());
        assert!(output.contains("something_else"), "{output}");
        // The output is a valid configuration.
        let mut file = tempfile::Builder::new()
            .suffix(".toml")
            .tempfile()
            .expect("a file");
        let complete = output.replace("api_username = \"user\"\n", "");
        file.write_all(complete.as_bytes()).expect("written");
        let (settings, _) =
            transom_config::load(Some(file.path()), transom_config::Overrides::default()).expect("valid");
        assert!(settings.workflow.is_some());
    }

    fn import_workflow(text: &str, file: &Path) -> anyhow::Result<String> {
        super::import_workflow(text, file, Path::new("/srv"), Some("/opt/components".into()))
    }

    #[test]
    fn lists_are_read_with_and_without_quotes_around_them() {
        for list in [
            r#"["a:b", "c:d"]"#,
            r#"'["a:b", "c:d"]'"#,
            r#""['a:b', 'c:d']""#,
            r#""["a:b", "c:d"]""#,
            r#"("a:b", 'c:d')"#,
        ] {
            let text = format!("[mesos]\nmesos_attributes = {list}\n");
            let output = import_workflow(&text, Path::new("f")).expect(list);
            let document: Table = output.parse().expect("TOML");
            let attributes = document["workflow"]["cluster_attributes"].to_string();
            assert_eq!(attributes, r#"["a:b", "c:d"]"#, "{list}");
        }
        for (list, expected) in [
            ("\"a:b\"", "expected a list"),
            ("'[\"a:b\"", "is not a list"),
            ("a:b", "is not a list"),
        ] {
            let text = format!("[mesos]\nmesos_attributes = {list}\n");
            let error = import_workflow(&text, Path::new("f"))
                .expect_err(list)
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The older provider's page has lists of objects without brackets, with a comma at the end.
    #[test]
    fn objects_without_brackets_are_lists_and_comments_are_dropped() {
        for (text, expected) in [
            (r#"'{ "name":"TZ", "value":"UTC" },'"#, &["TZ"][..]),
            (r#"'{ "name":"TZ", "value":"UTC" }'"#, &["TZ"]),
            (
                r#"{"name":"A", "value":"1"}, {"name":"B", "value":"//x"},"#,
                &["A", "B"],
            ),
            (r#"'{ "name":"TZ", "value":"UTC" },' // the zone"#, &["TZ"]),
            (
                "[{\"name\":\"A\", \"value\":\"1\"}, // one\n  {\"name\":\"B\", \"value\":\"2\"}]",
                &["A", "B"],
            ),
        ] {
            let file = format!(
                "[mesos]\ndocker_environment = {text}\nmesos_ssl = True // TLS\n\
                 mesos_fetch_uri = http://h/x.tar.gz\nmaster = 'm:5050' // ours\n"
            );
            let output = import_workflow(&file, Path::new("f")).expect(text);
            let document: Table = output.parse().expect("TOML");
            let workflow = &document["workflow"];
            let variables = workflow["container_environment"].as_array().expect("a list");
            let names: Vec<_> = variables
                .iter()
                .filter_map(|item| item["name"].as_str())
                .collect();
            assert_eq!(names, expected, "{text}");
            assert_eq!(workflow["cluster_ssl"].as_bool(), Some(true));
            assert_eq!(workflow["cluster_fetch_uri"].as_str(), Some("http://h/x.tar.gz"));
            assert_eq!(workflow["master"].as_str(), Some("m:5050"));
            assert!(
                output.contains("are dropped: ") && output.contains("mesos_ssl"),
                "{output}"
            );
        }
    }

    #[test]
    fn imported_configuration_is_complete_or_names_missing_keys() {
        let output = import_workflow("[mesos]\nmaster = m:5050\n", Path::new("f")).expect("imported");
        let document: Table = output.parse().expect("TOML");
        assert_eq!(
            document["store"]["server"].as_str(),
            Some("file:/srv/transom-store")
        );
        assert_eq!(document["plugins"]["dir"].as_str(), Some("/opt/components"));
        assert_eq!(transom_config::missing(&output), Vec::<String>::new());
        for note in [
            "listens on 127.0.0.1",
            "There are no credentials",
            "each job must name its image",
        ] {
            assert!(output.contains(note), "{note}: {output}");
        }
        assert!(!output.contains("Required before"), "{output}");

        let text = "[mesos]\nauthenticate = True\napi_username = u\nmesos_attributes = ['airflow']\n";
        let output = import_workflow(text, Path::new("f")).expect("imported");
        for key in [
            "default_principal",
            "default_secret",
            "api_password",
            "cluster_attributes",
        ] {
            let needed = format!("# Required before the service can start: `workflow.{key}`");
            assert!(output.contains(&needed), "{key}: {output}");
        }
        let without =
            super::import_workflow(text, Path::new("f"), Path::new("/srv"), None).expect("imported");
        assert!(without.contains("No components were found"), "{without}");
    }

    #[test]
    fn cluster_names_win_over_mesos_names_and_all_errors_are_reported() {
        let text = "[cluster]\nmesos_ssl = False\ncluster_ssl = True\n";
        let output = import_workflow(text, Path::new("f")).expect("imported");
        assert!(output.contains("cluster_ssl = true"), "{output}");
        let text = "[cluster]\ncheckpoint = perhaps\ntask_cpu = x\ncluster_attributes = [1\n";
        let error = import_workflow(text, Path::new("f"))
            .expect_err("wrong")
            .to_string();
        for key in ["checkpoint", "task_cpu", "cluster_attributes"] {
            assert!(error.contains(key), "{error}");
        }
        let error = import_workflow("[core]\n", Path::new("f"))
            .expect_err("none")
            .to_string();
        assert!(error.contains("no section [cluster] or [mesos]"), "{error}");
    }
}
