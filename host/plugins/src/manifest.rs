//! `NAME.toml`: what an operator says of the component beside it.
//!
//! ```toml
//! world = "check-probe"            # or "transom:probe/check-probe@0.1.0"
//! digest = "sha256:…"              # optional: this component and no other
//! [grants]
//! network = ["task"]               # also "host:port", "host:*", "10.0.0.0/8", "10.0.0.0/8:443"
//! command = false
//! tls-unverified = false
//! [limits]                         # see `Limits`; sizes "64MiB", durations "50ms"
//! [config]                         # any table: handed to `configure` as JSON
//! ```

mod section;

use toml::{Table, Value};

use crate::{
    grants::{Destination, Grants},
    limits::{Limits, MAX_ATTEMPT, MAX_CALL, MAX_MEMORY, MAX_SIZE, MAX_TABLE},
    world::WorldName,
};

pub(crate) use section::ManifestError;
use section::Section;

/// A manifest, parsed and checked.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) world: WorldName,
    /// Lower-case hexadecimal SHA-256.
    pub(crate) digest: Option<String>,
    pub(crate) grants: Grants,
    pub(crate) limits: Limits,
    /// A JSON object.
    pub(crate) config: serde_json::Value,
}

impl Manifest {
    /// Parses; what is left out comes from `defaults`.
    pub(crate) fn parse(text: &str, defaults: &Limits) -> Result<Manifest, ManifestError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            ManifestError::Syntax(format!("{place}{}", error.message()))
        })?;
        let mut top = Section::new("", table);
        let world = top.string("world")?.ok_or(ManifestError::Missing("world"))?;
        let world = WorldName::parse(&world).ok_or_else(|| {
            top.wrong(
                "world",
                &world,
                "check-probe, attribute-matcher, bootstrap-handler or event-filter",
            )
        })?;
        let digest = top
            .string("digest")?
            .map(|text| parse_digest(&top, &text))
            .transpose()?;
        let grants = grants(top.section("grants")?)?;
        let limits = limits(top.section("limits")?, defaults)?;
        let config = top.table("config")?;
        top.finish(&["world", "digest", "grants", "limits", "config"])?;
        let config = to_json("config", Value::Table(config))?;
        Ok(Manifest {
            world,
            digest,
            grants,
            limits,
            config,
        })
    }
}

fn parse_digest(top: &Section, text: &str) -> Result<String, ManifestError> {
    match text.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_hexdigit()) => {
            Ok(hex.to_ascii_lowercase())
        }
        _ => Err(top.wrong("digest", text, "\"sha256:\" and 64 hexadecimal digits")),
    }
}

fn grants(mut it: Section) -> Result<Grants, ManifestError> {
    let mut network = Vec::new();
    for text in it.strings("network")? {
        let destination = Destination::parse(&text).ok_or_else(|| {
            it.wrong(
                "network",
                &text,
                "\"task\", \"host:port\", \"host:*\", \"address/bits\" or \"address/bits:port\"",
            )
        })?;
        network.push(destination);
    }
    let grants = Grants {
        network,
        command: it.flag("command")?,
        tls_unverified: it.flag("tls-unverified")?,
    };
    it.finish(&["network", "command", "tls-unverified"])?;
    Ok(grants)
}

fn limits(mut it: Section, defaults: &Limits) -> Result<Limits, ManifestError> {
    let limits = Limits {
        wall_clock: it.duration("wall-clock", defaults.wall_clock, MAX_CALL)?,
        cpu: it.duration("cpu", defaults.cpu, MAX_CALL)?,
        memory: it.size("memory", defaults.memory, MAX_MEMORY)?,
        table: it.number("table", defaults.table, MAX_TABLE)?,
        output: it.size("output", defaults.output, 1 << 30)?,
        instances: it.number("instances", defaults.instances as u64, 32)? as usize,
        calls: it.number("calls", defaults.calls, u64::MAX)?,
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
        "calls",
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

/// TOML as JSON; dates become text.
fn to_json(path: &str, value: Value) -> Result<serde_json::Value, ManifestError> {
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
                expected: "a number that JSON can carry".into(),
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

    use super::*;

    fn parse(text: &str) -> Result<Manifest, String> {
        Manifest::parse(text, &Limits::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_full_manifest() {
        let digest = "Ab".repeat(32);
        let manifest = parse(&format!(
            r#"
            world = "transom:probe/check-probe@0.1.0"
            digest = "sha256:{digest}"
            [grants]
            network = ["task", "10.0.0.0/8:443", "db.example:*"]
            command = true
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
        assert_eq!(manifest.limits.memory, 16 << 20);
        assert_eq!(manifest.limits.cpu, Duration::from_millis(20));
        assert_eq!(manifest.limits.wall_clock, Duration::from_mins(1));
        assert_eq!(manifest.limits.steps, 7);
        assert_eq!(manifest.limits.calls, Limits::default().calls);
        assert_eq!(
            manifest.config.to_string(),
            r#"{"list":[1,2.5,"x",true],"since":"2026-01-02"}"#
        );
    }

    #[test]
    fn nothing_is_granted_unless_said() {
        let manifest = parse("world = \"event-filter\"").unwrap();
        assert_eq!(manifest.grants, Grants::default());
        assert_eq!(manifest.config.to_string(), "{}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("", "`world` is missing"),
            ("world = 1", "`world` is of type integer; expected a text"),
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
                "`limits.instances` is 0; expected 1 to 32",
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
            ("world = ", "it is no TOML: line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }
}
