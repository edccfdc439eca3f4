//! `NAME.toml`: the operator's manifest of a component.
//!
//! ```toml
//! world = "check-probe"            # or "transom:probe/check-probe@0.1.0"
//! source = "oci://registry.example/team/probe:1.2"   # in place of the file: from a registry, see `sources`
//! digest = "sha256:…"              # optional: this component and no other
//! rollout = "immediate"            # or "shadow", "shadow-manual": a new version first runs as a shadow, see `[shadow]`;
//!                                  # or "replay": it first answers recorded calls, see `[replay]`
//! record = true                    # false: its calls are not recorded
//! [grants]
//! network = ["task"]               # also "host:port", "host:*", "10.0.0.0/8", "10.0.0.0/8:443"; probes left out: the task;
//!                                  # guarded destinations (loopback, the daemon's own ports, ...) only where named exactly
//! command = false
//! tls-unverified = false
//! clock = true                     # false: what imports wasi:clocks is refused
//! random = true                    # false: what imports wasi:random is refused
//! environment = ["TZ"]             # variables of the daemon's that a WASI guest sees
//! imports = ["wasi:sockets"]       # what an upgrade may import beyond the version before it; or "wasi-guest"
//! [limits]                         # see `Limits`; sizes "64MiB", durations "50ms"
//! instances = 2                    # kept; or "per-call": a fresh one for each call, see below
//! [probation]                      # see `Probation`
//! window = "10m"
//! max-faults = 10
//! [shadow]
//! min-duration = "10m"
//! min-calls = 100                  # answers compared
//! sample-percent = 100             # of the calls
//! max-differences = 0              # with more, or with any fault, it is not promoted automatically
//! [replay]
//! since = "24h"
//! max-calls = 1000                 # the newest
//! max-differences-percent = 0      # of the calls; with more it is refused
//! without-calls = "reject"         # or "admit": if there are no recorded calls
//! timeout = "1m"
//! [config]                         # any table: handed to `configure` as JSON
//! [[self-test]]                    # run on the trial instance; each world has its own keys, see `selftest`
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
pub(crate) mod rollout;
pub(crate) mod schema;
mod section;
pub(crate) mod units;

use toml::{Table, Value};
use transom_registry::{Source, network::Destination};

use crate::{
    manifest::{
        grants::Grants,
        limits::{Instances, Limits, MAX_ATTEMPT, MAX_CALL, MAX_INSTANCES, MAX_MEMORY, MAX_SIZE, MAX_TABLE},
        rollout::Rollout,
    },
    observe::health::Probation,
    worlds::WorldName,
};

pub(crate) use section::ManifestError;
use section::Section;

/// A validated manifest.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) world: WorldName,
    /// The registry source; none: the file in the directory.
    pub(crate) source: Option<Source>,
    /// Lower-case hexadecimal SHA-256.
    pub(crate) digest: Option<String>,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    /// A JSON object.
    pub(crate) config: serde_json::Value,
    pub(crate) probation: Probation,
    pub(crate) rollout: Rollout,
    /// Whether calls are recorded, if the host records any.
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
        let world = top.string("world")?.ok_or(ManifestError::Missing("world"))?;
        let world = WorldName::parse(&world).ok_or_else(|| {
            top.wrong(
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
            return Err(top.wrong("self-test", tests.len(), expected));
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
            "replay",
            "record",
            "config",
            "self-test",
        ])?;
        let config = to_json("config", Value::Table(config))?;
        let self_tests = tests
            .into_iter()
            .enumerate()
            .map(|(at, test)| to_json(&format!("self-test[{at}]"), Value::Table(test)))
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

/// The keys and values of a manifest's text.
fn table(text: &str) -> Result<Table, ManifestError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ManifestError::Syntax(format!("{place}{}", error.message()))
    })
}

fn parse_probation(mut it: Section, defaults: Probation) -> Result<Probation, ManifestError> {
    let probation = Probation {
        window: it.duration("window", defaults.window, rollout::MAX_WATCH)?,
        max_faults: u32::try_from(it.number_from("max-faults", 0, defaults.max_faults.into(), 1_000_000)?)
            .unwrap_or(u32::MAX),
    };
    it.finish(&["window", "max-faults"])?;
    Ok(probation)
}

fn source(top: &mut Section) -> Result<Option<Source>, ManifestError> {
    let Some(text) = top.string("source")? else {
        return Ok(None);
    };
    let source = Source::parse(&text).ok_or_else(|| top.wrong("source", &text, Source::EXPECTED))?;
    Ok(Some(source))
}

fn parse_digest(top: &Section, text: &str) -> Result<String, ManifestError> {
    match text.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit()) => {
            Ok(hex.to_ascii_lowercase())
        }
        _ => Err(top.wrong("digest", text, "\"sha256:\" and 64 hexadecimal digits")),
    }
}

fn grants(mut it: Section, world: WorldName) -> Result<Grants, ManifestError> {
    let mut network = Vec::new();
    match it.optional_strings("network")? {
        // The default of probes.
        None if world == WorldName::CheckProbe => network.push(Destination::Task),
        None => {}
        Some(texts) => {
            for text in texts {
                let destination = Destination::parse(&text).ok_or_else(|| {
                    it.wrong(
                        "network",
                        &text,
                        "\"task\", \"host:port\", \"host:*\", \"address/bits\" or \"address/bits:port\"",
                    )
                })?;
                network.push(destination);
            }
        }
    }
    let environment = it.strings("environment")?;
    if let Some(wrong) = environment
        .iter()
        .find(|it| it.is_empty() || it.contains(['=', '\0']))
    {
        return Err(it.wrong("environment", wrong, "names of variables"));
    }
    let imports = granted_imports(&mut it)?;
    let grants = Grants {
        network,
        command: it.flag("command", false)?,
        tls_unverified: it.flag("tls-unverified", false)?,
        clock: it.flag("clock", true)?,
        random: it.flag("random", true)?,
        environment,
        imports,
    };
    it.finish(&[
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
fn granted_imports(it: &mut Section) -> Result<Vec<String>, ManifestError> {
    const KEY: &str = "imports";
    let owned = |packages: &[&str]| packages.iter().map(|it| (*it).to_owned()).collect();
    let listed = match it.take(KEY) {
        None => return Ok(Vec::new()),
        Some(Value::String(profile)) => {
            let expected = || format!("a list, or one of the profiles {}", imports::profiles());
            let packages = imports::profile(&profile);
            return packages
                .map(owned)
                .ok_or_else(|| it.wrong(KEY, &profile, expected()));
        }
        Some(Value::Array(list)) => list,
        Some(other) => return Err(it.mistyped(KEY, &other, "a list of strings, or a profile")),
    };
    let mut granted: Vec<String> = Vec::new();
    for entry in listed {
        let Value::String(entry) = entry else {
            return Err(it.mistyped(KEY, &entry, "a list of strings, or a profile"));
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
            return Err(it.wrong(KEY, entry, expected));
        }
    }
    Ok(granted)
}

fn limits(mut it: Section, defaults: &Limits) -> Result<Limits, ManifestError> {
    let limits = Limits {
        wall_clock: it.duration("wall-clock", defaults.wall_clock, MAX_CALL)?,
        cpu: it.duration("cpu", defaults.cpu, MAX_CALL)?,
        memory: it.size("memory", defaults.memory, MAX_MEMORY)?,
        table: it.number("table", defaults.table, MAX_TABLE)?,
        output: it.size("output", defaults.output, 1 << 30)?,
        instances: instances(&mut it, defaults.instances)?,
        max_calls_per_instance: it.number(
            "max-calls-per-instance",
            defaults.max_calls_per_instance,
            u64::MAX,
        )?,
        concurrency: it.number("concurrency", defaults.concurrency as u64, 1_000_000)? as usize,
        steps: u32::try_from(it.number("steps", defaults.steps.into(), 1_000_000)?).unwrap_or(u32::MAX),
        attempt_time: it.duration("attempt-time", defaults.attempt_time, MAX_ATTEMPT)?,
        attempt_input: it.size("attempt-input", defaults.attempt_input, 1 << 30)?,
        attempt_output: it.size("attempt-output", defaults.attempt_output, 1 << 30)?,
        log_lines: u32::try_from(it.number("log-lines", defaults.log_lines.into(), 1_000_000)?)
            .unwrap_or(u32::MAX),
        log_line: it.size("log-line", defaults.log_line as u64, 1 << 20)? as usize,
        size: it.size("size", defaults.size, MAX_SIZE)?,
    };
    it.finish(&[
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

fn instances(it: &mut Section, default: Instances) -> Result<Instances, ManifestError> {
    let expected = format!("1 to {MAX_INSTANCES}, or \"per-call\"");
    match it.take("instances") {
        None => Ok(default),
        Some(Value::Integer(count)) => match usize::try_from(count) {
            Ok(count) if (1..=MAX_INSTANCES).contains(&count) => Ok(Instances::Kept(count)),
            _ => Err(it.wrong("instances", count, expected)),
        },
        Some(Value::String(text)) if text == "per-call" => match it.take("max-calls-per-instance") {
            None => Ok(Instances::PerCall),
            Some(calls) => Err(it.mistyped(
                "max-calls-per-instance",
                &calls,
                "nothing: with instances = \"per-call\" it is 1",
            )),
        },
        Some(Value::String(text)) => Err(it.wrong("instances", text, expected)),
        Some(other) => Err(it.mistyped("instances", &other, &expected)),
    }
}

/// Converts TOML to JSON; dates become strings.
pub(crate) fn to_json(path: &str, value: Value) -> Result<serde_json::Value, ManifestError> {
    Ok(match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Boolean(flag) => flag.into(),
        Value::Datetime(date) => date.to_string().into(),
        Value::Float(number) if number.is_finite() => number.into(),
        Value::Float(number) => {
            return Err(ManifestError::Value {
                key: path.to_owned(),
                found: number.to_string(),
                expected: "a finite number".into(),
            });
        }
        Value::Array(items) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| to_json(&format!("{path}[{index}]"), item))
            .collect::<Result<_, _>>()?,
        Value::Table(table) => serde_json::Value::Object(
            table
                .into_iter()
                .map(|(key, item)| Ok((key.clone(), to_json(&format!("{path}.{key}"), item)?)))
                .collect::<Result<_, ManifestError>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        rollout::{ReplayPlan, ShadowPlan, WithoutCalls},
        *,
    };

    fn parse(text: &str) -> Result<Manifest, String> {
        table(text)
            .and_then(|table| Manifest::from_table(table, &Limits::default(), Probation::default()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn full_manifest_parses() {
        let digest = "Ab".repeat(32);
        let manifest = parse(&format!(
            r#"
            world = "transom:probe/check-probe@0.1.0"
            digest = "sha256:{digest}"
            [grants]
            network = ["task", "10.0.0.0/8:443", "db.example:*"]
            command = true
            clock = false
            environment = ["TZ"]
            imports = ["wasi:clocks"]
            [probation]
            max-faults = 0
            [limits]
            memory = "16MiB"
            cpu = "20ms"
            wall-clock = "1m"
            steps = 7
            [config]
            since = 2026-01-02
            list = [1, 2.5, "x", true]
            "#
        ))
        .unwrap();
        assert_eq!(manifest.world, WorldName::CheckProbe);
        assert_eq!(manifest.digest, Some(digest.to_lowercase()));
        assert_eq!(manifest.grants.network.len(), 3);
        assert!(manifest.grants.command && !manifest.grants.tls_unverified);
        assert!(!manifest.grants.clock && manifest.grants.random);
        assert_eq!(manifest.grants.environment, ["TZ"]);
        assert_eq!(manifest.grants.imports, ["wasi:clocks"]);
        assert_eq!(manifest.probation.max_faults, 0);
        assert_eq!(manifest.probation.window, Probation::default().window);
        assert_eq!(manifest.limits.memory, 16 << 20);
        assert_eq!(manifest.limits.cpu, Duration::from_millis(20));
        assert_eq!(manifest.limits.wall_clock, Duration::from_mins(1));
        assert_eq!(manifest.limits.steps, 7);
        assert_eq!(
            manifest.limits.max_calls_per_instance,
            Limits::default().max_calls_per_instance
        );
        assert_eq!(
            manifest.config.to_string(),
            r#"{"list":[1,2.5,"x",true],"since":"2026-01-02"}"#
        );
    }

    #[test]
    fn manifest_grants_nothing_by_default() {
        let manifest = parse("world = \"event-filter\"").unwrap();
        assert_eq!(manifest.grants, Grants::default());
        assert_eq!(manifest.config.to_string(), "{}");
        assert_eq!(manifest.rollout, Rollout::Immediate);
        assert!(manifest.record);
        // A probe may reach its task by default.
        let probe = parse("world = \"check-probe\"").unwrap();
        assert_eq!(probe.grants.network, [Destination::Task]);
        let none = parse("world = \"check-probe\"\n[grants]\nnetwork = []").unwrap();
        assert_eq!(none.grants, Grants::default());
    }

    #[test]
    fn replay_errors_name_key_and_expectation() {
        for (text, expected) in [
            (
                "world = \"event-filter\"\n[replay]\nmax-differences-percent = 100.5",
                "`replay.max-differences-percent` is 100.5; expected 0 to 100",
            ),
            (
                "world = \"event-filter\"\n[replay]\nmax-calls = 10001",
                "`replay.max-calls` is 10001; expected 1 to 10000",
            ),
            (
                "world = \"event-filter\"\n[replay]\nwithout-calls = \"ask\"",
                "`replay.without-calls` is \"ask\"; expected \"reject\" or \"admit\"",
            ),
            (
                "world = \"event-filter\"\nrecord = 1",
                "`record` is of type integer; expected true or false",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn manifest_parses_replay() {
        let text = "world = \"event-filter\"\nrollout = \"replay\"\nrecord = false\n[replay]\nsince = \"2h\"\nmax-calls = 50\n\
                    max-differences-percent = 0.5\nwithout-calls = \"admit\"\n";
        let manifest = parse(text).unwrap();
        let plan = ReplayPlan {
            since: Duration::from_hours(2),
            max_calls: 50,
            max_differences_percent: 0.5,
            without_calls: WithoutCalls::Admit,
            timeout: Duration::from_mins(1),
        };
        assert_eq!(
            (manifest.rollout, manifest.record),
            (Rollout::Replay(plan), false)
        );
    }

    #[test]
    fn manifest_parses_rollout() {
        let text = "world = \"event-filter\"\nrollout = \"shadow\"\n[shadow]\nmin-duration = \"1s\"\nmin-calls = 7\nsample-percent = 5\n                    [[self-test]]\nevents = []\n[[self-test]]\nexpect = [\"pass\"]\n";
        let manifest = parse(text).unwrap();
        let plan = ShadowPlan {
            min_duration: Duration::from_secs(1),
            min_calls: 7,
            sample_percent: 5,
            max_differences: 0,
        };
        assert_eq!(manifest.rollout, Rollout::Shadow(plan));
        let tests: Vec<String> = manifest.self_tests.iter().map(ToString::to_string).collect();
        assert_eq!(tests, [r#"{"events":[]}"#, r#"{"expect":["pass"]}"#]);
    }

    #[test]
    fn imports_are_granted_by_list_and_by_profile() {
        let guest = [
            "wasi:cli",
            "wasi:clocks",
            "wasi:filesystem",
            "wasi:io",
            "wasi:random",
            "wasi:sockets",
        ];
        for (imports, granted) in [
            ("\"wasi-guest\"", guest.to_vec()),
            ("[\"wasi:sockets/tcp\"]", vec!["wasi:sockets/tcp"]),
            (
                "[\"wasi-guest\", \"wasi:http\"]",
                [&guest[..], &["wasi:http"]].concat(),
            ),
            ("[]", vec![]),
        ] {
            let text = format!("world = \"event-filter\"\n[grants]\nimports = {imports}");
            assert_eq!(parse(&text).unwrap().grants.imports, granted, "{imports}");
        }
    }

    #[test]
    fn old_keys_are_refused_with_their_new_names() {
        for (text, old, new) in [
            ("promote = \"auto\"", "promote", "rollout"),
            ("[shadow]\nfor = \"1s\"", "shadow.for", "min-duration"),
            ("[shadow]\ncalls = 7", "shadow.calls", "min-calls"),
            ("[shadow]\nsample = 5", "shadow.sample", "sample-percent"),
            (
                "[shadow]\ndifferences = 0",
                "shadow.differences",
                "max-differences",
            ),
            ("[probation]\nmost = 0", "probation.most", "max-faults"),
            ("[limits]\ncalls = 7", "limits.calls", "max-calls-per-instance"),
            (
                "[limits]\ninstances = \"per-call\"\ncalls = 7",
                "limits.calls",
                "max-calls-per-instance",
            ),
        ] {
            let error = parse(&format!("world = \"event-filter\"\n{text}")).unwrap_err();
            assert_eq!(error, format!("`{old}` was renamed to `{new}`"));
        }
    }

    #[test]
    fn manifest_errors_name_key_and_expectation() {
        for (text, message) in [
            ("", "`world` is missing"),
            ("world = 1", "`world` is of type integer; expected a string"),
            ("world = \"x\"", "check-probe, attribute-matcher"),
            (
                "wrld = \"event-filter\"\nworld = \"event-filter\"",
                "unknown key `wrld`; did you mean `world`?",
            ),
            (
                "world = \"event-filter\"\n[limits]\nmemroy = 1",
                "unknown key `limits.memroy`; did you mean `memory`?",
            ),
            (
                "world = \"event-filter\"\n[limits]\nzzz = 1",
                "unknown key `limits.zzz`",
            ),
            (
                "world = \"event-filter\"\n[limits]\nmemory = \"1TiB\"",
                "`limits.memory` is \"1TiB\"; expected at most",
            ),
            (
                "world = \"event-filter\"\n[limits]\ncpu = 5",
                "`limits.cpu` is of type integer",
            ),
            (
                "world = \"event-filter\"\n[limits]\nwall-clock = \"5000000000000h\"",
                "`limits.wall-clock` is \"5000000000000h\"; expected at most 3600s",
            ),
            (
                "world = \"event-filter\"\n[limits]\nattempt-time = \"25h\"",
                "`limits.attempt-time` is \"25h\"; expected at most 86400s",
            ),
            (
                "world = \"event-filter\"\n[limits]\ninstances = 0",
                "`limits.instances` is 0; expected 1 to 32, or \"per-call\"",
            ),
            (
                "world = \"event-filter\"\n[limits]\ninstances = \"many\"",
                "`limits.instances` is \"many\"; expected 1 to 32, or \"per-call\"",
            ),
            (
                "world = \"event-filter\"\n[limits]\ninstances = \"per-call\"\nmax-calls-per-instance = 5",
                "`limits.max-calls-per-instance` is of type integer; expected nothing",
            ),
            (
                "world = \"event-filter\"\n[grants]\nnetwork = [\"x\"]",
                "`grants.network` is \"x\"",
            ),
            (
                "world = \"event-filter\"\ndigest = \"sha256:1\"",
                "64 hexadecimal digits",
            ),
            (
                "world = \"event-filter\"\n[config]\nx = [nan]",
                "`config.x[0]` is NaN",
            ),
            (
                "world = \"event-filter\"\nwhen-parked = \"pass\"",
                "`when-parked` was removed: calls of a disabled plugin fail",
            ),
            (
                "world = \"event-filter\"\nrollout = \"auto\"",
                "`rollout` is \"auto\"; expected \"immediate\", \"shadow\", \"shadow-manual\" or \"replay\"",
            ),
            (
                "world = \"event-filter\"\n[shadow]\nsample-percent = 101",
                "`shadow.sample-percent` is 101; expected 1 to 100",
            ),
            (
                "world = \"event-filter\"\n[grants]\nenvironment = [\"A=B\"]",
                "`grants.environment` is \"A=B\"",
            ),
            (
                "world = \"event-filter\"\n[grants]\nimports = [\"wasi:clocks@0.2.0\"]",
                "`grants.imports` is \"wasi:clocks@0.2.0\"",
            ),
            (
                "world = \"event-filter\"\n[grants]\nimports = \"wasi-gest\"",
                "`grants.imports` is \"wasi-gest\"; expected a list, or one of the profiles \"wasi-guest\"",
            ),
            (
                "world = \"event-filter\"\n[grants]\nimports = [\"wasi\"]",
                "or one of the profiles \"wasi-guest\"",
            ),
            (
                "world = \"event-filter\"\n[grants]\nimports = [1]",
                "`grants.imports` is of type integer; expected a list of strings, or a profile",
            ),
            (
                "world = \"event-filter\"\nself-test = 1",
                "`self-test` is of type integer; expected tables",
            ),
            ("world = ", "invalid TOML: line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }
}
