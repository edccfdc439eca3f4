//! `NAME.toml`: the operator's manifest of a component.
//!
//! ```toml
//! world = "check-probe"            # or "transom:probe/check-probe@0.1.0"
//! source = "oci://registry.example/team/probe:1.2"   # instead of the file: from a registry, see `Source`
//! digest = "sha256:…"              # optional: this component and no other
//! rollout = "immediate"            # or "shadow", "shadow-manual": a new version first runs as a shadow,
//!                                  # see `[shadow]`;
//!                                  # or "canary", "canary-manual": it first answers a share of the calls,
//!                                  # see `[canary]`;
//!                                  # or "replay": it first answers recorded calls, see `[replay]`.
//!                                  # Each of these tables belongs to its rollout
//! record = true                    # false: its calls are not recorded
//! [grants]
//! network = ["task"]               # also "host:port", "host:*", "10.0.0.0/8", "10.0.0.0/8:443";
//!                                  # default for probes: the task;
//!                                  # guarded destinations (loopback, the daemon's own ports, ...) only
//!                                  # if named exactly
//! command = false
//! tls-unverified = false
//! clock = true                     # false: a component that imports wasi:clocks is rejected
//! random = true                    # false: a component that imports wasi:random is rejected
//! environment = ["TZ"]             # variables of the daemon that a WASI guest can read
//! imports = ["wasi:sockets"]       # additional imports of an upgrade; or the profile "wasi-guest"
//! [limits]                         # see `Limits`; sizes "64MiB", durations "50ms"
//! instances = 2                    # kept instances; or "per-call": a new one for each call, see below
//! [probation]                      # see `Probation`
//! window = "10m"
//! max-faults = 10
//! [shadow]
//! min-duration = "10m"
//! min-calls = 100                  # answers compared
//! sample-percent = 100             # of the calls
//! max-differences = 0              # with more, or with any fault, it is not promoted automatically
//! [canary]
//! percent = 10                     # of the tasks, queries, apps or containers
//! min-duration = "10m"
//! min-calls = 100                  # answered by the canary
//! max-faults = 0                   # with more, the canary is aborted
//! compare-percent = 100            # of its calls, repeated on the serving version
//! max-differences-percent = 100    # of the compared ones; with more, it is aborted
//! max-latency-ratio = 2.0          # its p99 divided by the serving version's; above this, it is aborted
//! latency-floor = "10ms"           # a p99 up to this never exceeds the ratio
//! [replay]
//! since = "24h"
//! max-calls = 1000                 # the newest ones are replayed
//! max-differences-percent = 0      # of the calls; with more, the version is rejected
//! without-calls = "reject"         # or "admit": what happens if there are no recorded calls
//! timeout = "1m"
//! [config]                         # any table: handed to `configure` as JSON
//! [[self-test]]                    # run on the trial instance; each world has its own keys, see `self_test`
//! ```
//!
//! With `instances = "per-call"` no state of one call reaches the next. The price: each call
//! creates and configures an instance, under the limits of a call; a matcher loads the whole agent
//! set with each call (15 ms for 10,000 agents), a filter opens its query with each batch, and a
//! probe's attempt keeps its instance during input and output, so that at most 32 run at a time.
//! Further calls wait, and fail as busy after `wall-clock`.

pub(crate) mod files;
pub(crate) mod grants;
pub(crate) mod imports;
pub(crate) mod limits;
pub(crate) mod masks;
pub(crate) mod probation;
pub(crate) mod rollout;
pub(crate) mod schema;
mod section;
pub(crate) mod units;

use toml::{Table, Value};
use transom_plugin_cases::{NotFinite, toml_to_json};
use transom_registry::{Source, network::Destination};

use crate::{
    manifest::{
        grants::Grants,
        limits::{
            Instances, Limits, MAX_ATTEMPT_DURATION, MAX_CALL_DURATION, MAX_COMPONENT_SIZE, MAX_INSTANCES,
            MAX_MEMORY, MAX_TABLE,
        },
        probation::Probation,
        rollout::Rollout,
    },
    worlds::WorldName,
};

pub(crate) use section::ManifestError;
use section::Section;

/// A validated manifest.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) world: WorldName,
    /// The registry source. `None`: the component is a file in the directory.
    pub(crate) source: Option<Source>,
    /// Lower-case hexadecimal SHA-256.
    pub(crate) digest: Option<String>,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    /// A JSON object.
    pub(crate) config: serde_json::Value,
    pub(crate) probation: Probation,
    pub(crate) rollout: Rollout,
    /// Whether calls are recorded, provided that the host records calls.
    pub(crate) record: bool,
    /// Parsed later by the world.
    pub(crate) self_tests: Vec<serde_json::Value>,
}

/// Maximum self-tests of one manifest.
const MAX_SELF_TESTS: usize = 64;

impl Manifest {
    /// Validates a manifest; `defaults` and `probation` are the default values.
    fn from_table(table: Table, defaults: &Limits, probation: Probation) -> Result<Manifest, ManifestError> {
        let mut top = Section::new("", table);
        check_version(&mut top)?;
        let world = top.string("world")?.ok_or(ManifestError::Missing("world"))?;
        let world = WorldName::parse(&world).ok_or_else(|| {
            top.invalid_value(
                "world",
                &world,
                "check-probe, attribute-matcher, bootstrap-handler or event-filter",
            )
        })?;
        let source = source(&mut top)?;
        let digest = top
            .string("digest")?
            .map(|text| parse_digest(&top, &text))
            .transpose()?;
        let grants = grants(top.section("grants")?, world)?;
        let limits = limits(top.section("limits")?, defaults)?;
        let probation = parse_probation(top.section("probation")?, probation)?;
        let rollout = rollout::rollout(&mut top)?;
        let record = top.flag("record", true)?;
        let config = top.table("config")?;
        let tests = top.tables("self-test")?;
        if tests.len() > MAX_SELF_TESTS {
            let expected = format!("at most {MAX_SELF_TESTS} of them");
            return Err(top.invalid_value("self-test", tests.len(), expected));
        }
        top.finish(&[
            "world",
            "source",
            "digest",
            "grants",
            "limits",
            "probation",
            "rollout",
            "shadow",
            "canary",
            "replay",
            "record",
            "config",
            "self-test",
        ])?;
        let config = toml_to_json("config", Value::Table(config))?;
        let self_tests = tests
            .into_iter()
            .enumerate()
            .map(|(at, test)| toml_to_json(&format!("self-test[{at}]"), Value::Table(test)))
            .collect::<Result<_, _>>()?;
        Ok(Manifest {
            world,
            source,
            digest,
            grants,
            limits,
            config,
            probation,
            rollout,
            record,
            self_tests,
        })
    }
}

/// Validates the text of a manifest without its component.
///
/// # Errors
/// The first error, with the key and the expected value.
pub fn check_manifest(text: &str) -> Result<(), String> {
    let checked =
        table(text).and_then(|table| Manifest::from_table(table, &Limits::default(), Probation::default()));
    checked.map(drop).map_err(|error| error.to_string())
}

/// Version of the manifest format, in the key `manifest-version`; 1 if the key is missing. It
/// increases only when older daemons would misunderstand the new format.
const VERSION: i64 = 1;

fn check_version(top: &mut Section) -> Result<(), ManifestError> {
    match top.take("manifest-version") {
        None | Some(Value::Integer(VERSION)) => Ok(()),
        Some(Value::Integer(found)) => Err(top.invalid_value(
            "manifest-version",
            found,
            format!("{VERSION}, which is what this daemon reads; a higher one needs a newer transom"),
        )),
        Some(other) => Err(top.invalid_type("manifest-version", &other, "a whole number")),
    }
}

/// Parses the text of a manifest into its keys and values.
fn table(text: &str) -> Result<Table, ManifestError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let location = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ManifestError::Syntax(format!("{location}{}", error.message()))
    })
}

fn parse_probation(mut section: Section, defaults: Probation) -> Result<Probation, ManifestError> {
    let probation = Probation {
        window: section.duration("window", defaults.window, rollout::MAX_OBSERVATION)?,
        max_faults: u32::try_from(section.number_from(
            "max-faults",
            0,
            defaults.max_faults.into(),
            1_000_000,
        )?)
        .unwrap_or(u32::MAX),
    };
    section.finish(&["window", "max-faults"])?;
    Ok(probation)
}

fn source(top: &mut Section) -> Result<Option<Source>, ManifestError> {
    let Some(text) = top.string("source")? else {
        return Ok(None);
    };
    let source = Source::parse(&text).ok_or_else(|| top.invalid_value("source", &text, Source::EXPECTED))?;
    Ok(Some(source))
}

fn parse_digest(top: &Section, text: &str) -> Result<String, ManifestError> {
    match text.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit()) => {
            Ok(hex.to_ascii_lowercase())
        }
        _ => Err(top.invalid_value("digest", text, "\"sha256:\" and 64 hexadecimal digits")),
    }
}

fn grants(mut section: Section, world: WorldName) -> Result<Grants, ManifestError> {
    let mut network = Vec::new();
    match section.optional_strings("network")? {
        // The default grant of probes.
        None if world == WorldName::CheckProbe => network.push(Destination::Task),
        None => {}
        Some(texts) => {
            for text in texts {
                let destination = Destination::parse(&text).ok_or_else(|| {
                    section.invalid_value(
                        "network",
                        &text,
                        "\"task\", \"host:port\", \"host:*\", \"address/bits\" or \"address/bits:port\"",
                    )
                })?;
                network.push(destination);
            }
        }
    }
    let environment = section.strings("environment")?;
    if let Some(invalid_name) = environment
        .iter()
        .find(|it| it.is_empty() || it.contains(['=', '\0']))
    {
        return Err(section.invalid_value("environment", invalid_name, "names of variables"));
    }
    let imports = granted_imports(&mut section)?;
    let grants = Grants {
        network,
        command: section.flag("command", false)?,
        tls_unverified: section.flag("tls-unverified", false)?,
        clock: section.flag("clock", true)?,
        random: section.flag("random", true)?,
        environment,
        imports,
    };
    section.finish(&[
        "network",
        "command",
        "tls-unverified",
        "clock",
        "random",
        "environment",
        "imports",
    ])?;
    Ok(grants)
}

/// A list, whose entries may also be profiles, or the name of one profile.
fn granted_imports(section: &mut Section) -> Result<Vec<String>, ManifestError> {
    const IMPORTS_KEY: &str = "imports";
    let owned = |packages: &[&str]| packages.iter().map(|it| (*it).to_owned()).collect();
    let listed = match section.take(IMPORTS_KEY) {
        None => return Ok(Vec::new()),
        Some(Value::String(profile)) => {
            let expected = || format!("a list, or one of the profiles {}", imports::profiles());
            let packages = imports::profile(&profile);
            return packages
                .map(owned)
                .ok_or_else(|| section.invalid_value(IMPORTS_KEY, &profile, expected()));
        }
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(section.invalid_type(IMPORTS_KEY, &other, "a list of strings, or a profile"));
        }
    };
    let mut granted: Vec<String> = Vec::new();
    for entry in listed {
        let Value::String(entry) = entry else {
            return Err(section.invalid_type(IMPORTS_KEY, &entry, "a list of strings, or a profile"));
        };
        if let Some(packages) = imports::profile(&entry) {
            granted.extend::<Vec<String>>(owned(packages));
        } else if imports::is_pattern(&entry) {
            granted.push(entry);
        } else {
            let expected = format!(
                "a package or an interface without version, such as \"wasi:clocks\", or one of the profiles {}",
                imports::profiles()
            );
            return Err(section.invalid_value(IMPORTS_KEY, entry, expected));
        }
    }
    Ok(granted)
}

fn limits(mut section: Section, defaults: &Limits) -> Result<Limits, ManifestError> {
    let limits = Limits {
        wall_clock: section.duration("wall-clock", defaults.wall_clock, MAX_CALL_DURATION)?,
        cpu: section.duration("cpu", defaults.cpu, MAX_CALL_DURATION)?,
        memory: section.size("memory", defaults.memory, MAX_MEMORY)?,
        table: section.number("table", defaults.table, MAX_TABLE)?,
        output: section.size("output", defaults.output, 1 << 30)?,
        instances: instances(&mut section, defaults.instances)?,
        max_calls_per_instance: section.number(
            "max-calls-per-instance",
            defaults.max_calls_per_instance,
            u64::MAX,
        )?,
        concurrency: section.number("concurrency", defaults.concurrency as u64, 1_000_000)? as usize,
        steps: u32::try_from(section.number("steps", defaults.steps.into(), 1_000_000)?).unwrap_or(u32::MAX),
        attempt_time: section.duration("attempt-time", defaults.attempt_time, MAX_ATTEMPT_DURATION)?,
        attempt_input: section.size("attempt-input", defaults.attempt_input, 1 << 30)?,
        attempt_output: section.size("attempt-output", defaults.attempt_output, 1 << 30)?,
        log_lines: u32::try_from(section.number("log-lines", defaults.log_lines.into(), 1_000_000)?)
            .unwrap_or(u32::MAX),
        log_line: section.size("log-line", defaults.log_line as u64, 1 << 20)? as usize,
        size: section.size("size", defaults.size, MAX_COMPONENT_SIZE)?,
    };
    section.finish(&[
        "wall-clock",
        "cpu",
        "memory",
        "table",
        "output",
        "instances",
        "max-calls-per-instance",
        "concurrency",
        "steps",
        "attempt-time",
        "attempt-input",
        "attempt-output",
        "log-lines",
        "log-line",
        "size",
    ])?;
    Ok(limits)
}

fn instances(section: &mut Section, default: Instances) -> Result<Instances, ManifestError> {
    let expected = format!("1 to {MAX_INSTANCES}, or \"per-call\"");
    match section.take("instances") {
        None => Ok(default),
        Some(Value::Integer(count)) => match usize::try_from(count) {
            Ok(count) if (1..=MAX_INSTANCES).contains(&count) => Ok(Instances::Kept(count)),
            _ => Err(section.invalid_value("instances", count, expected)),
        },
        Some(Value::String(text)) if text == "per-call" => match section.take("max-calls-per-instance") {
            None => Ok(Instances::PerCall),
            Some(calls) => Err(section.invalid_type(
                "max-calls-per-instance",
                &calls,
                "nothing: with instances = \"per-call\" it is 1",
            )),
        },
        Some(Value::String(text)) => Err(section.invalid_value("instances", text, expected)),
        Some(other) => Err(section.invalid_type("instances", &other, &expected)),
    }
}

impl From<NotFinite> for ManifestError {
    fn from(NotFinite { key, found }: NotFinite) -> ManifestError {
        ManifestError::Value {
            key,
            found,
            expected: "a finite number".into(),
        }
    }
}

#[cfg(test)]
mod tests;
