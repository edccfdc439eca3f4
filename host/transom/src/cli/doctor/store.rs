//! The store: whether it can be used, and whether confirmed writes survive a crash.

use std::path::Path;

use transom_common::error_chain;
use transom_store::{Inspection, RedisSettings};

use super::{Finding, clock};
use crate::config::Settings;
use crate::daemon::store_config;

const CHECK: &str = "store";
/// Less free space is a warning, in bytes.
const SPACE: u64 = 1 << 30;
/// Less free space is an error, in bytes.
const LITTLE_SPACE: u64 = 64 << 20;

pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    if settings.apps.is_none() && settings.workflow.is_none() && settings.kubernetes().is_empty() {
        return vec![Finding::skipped(CHECK, "no enabled service needs a store")];
    }
    let config = store_config(&settings.store);
    let server = config.shown_server();
    match config.inspect().await {
        Ok(Inspection::File(dir)) => directory(&dir),
        Ok(Inspection::Redis(found)) => redis(&server, &found),
        Err(error @ transom_store::Error::Unavailable { .. }) => vec![
            Finding::error(
                CHECK,
                format!("the Redis {server} cannot be used: {}", error_chain(&error)),
                "Check that it runs, `store.server`, and `store.user` and `store.password` if it requires them. Without a \
                 Redis, `store.server = \"file:DIR\"` is an embedded store for one daemon.",
            )
            .unavailable(),
        ],
        Err(error) => vec![Finding::error(
            CHECK,
            error_chain(&error),
            "Correct the section [store].",
        )],
    }
}

fn redis(server: &str, found: &RedisSettings) -> Vec<Finding> {
    let version = found.version.as_deref().unwrap_or("of unknown version");
    let mut findings = Vec::new();
    if found.role.as_deref() == Some("slave") {
        findings.push(Finding::error(
            CHECK,
            format!("the Redis {server} is a replica, which cannot be written to"),
            "Name the primary in `store.server`.",
        ));
    }
    if found.evicts == Some(true) {
        findings.push(Finding::error(
            CHECK,
            format!(
                "the Redis {server} evicts keys when its memory is full: definitions and tasks would be lost"
            ),
            "Set `maxmemory-policy noeviction`.",
        ));
    }
    let durable = match (found.append_only, found.append_fsync.as_deref()) {
        (Some(false), _) => Some("has no append-only file: the last writes are lost when it crashes"),
        (Some(true), Some("always")) => None,
        (Some(true), Some("everysec")) => Some(
            "writes its append-only file to disk once a second: the last second is lost when its machine crashes",
        ),
        (Some(true), Some(_)) => {
            Some("leaves it to the system when its append-only file is on disk: the last writes may be lost")
        }
        (Some(true), None) | (None, _) => Some("does not tell this user how durable it is"),
    };
    if let Some(how) = durable {
        findings.push(Finding::warning(
            CHECK,
            format!("the Redis {server} {how}"),
            "Set `appendonly yes` and `appendfsync always` (`redis-cli CONFIG SET`, and the configuration file).",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!("the Redis {server} (version {version}) answers, and a confirmed write is on disk"),
        ));
    }
    if let Some(time) = found.time {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        findings.push(clock::compared("the Redis", seconds));
    }
    findings
}

/// Checks the directory of the embedded store.
fn directory(dir: &Path) -> Vec<Finding> {
    let mut place = dir;
    // The daemon creates a missing directory, so the nearest existing ancestor has to be writable.
    while !place.exists() {
        match place.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => place = parent,
            _ => {
                place = Path::new(".");
                break;
            }
        }
    }
    let shown = dir.display();
    let unusable = |why: String| {
        Finding::error(
            CHECK,
            format!("the directory {shown} of the embedded store cannot be used: {why}"),
            "Make it a directory that the daemon's user owns, or name another in `store.server`.",
        )
        .unavailable()
    };
    if !place.is_dir() {
        return vec![unusable(format!("{} is no directory", place.display()))];
    }
    if let Err(error) = tempfile::tempfile_in(place) {
        return vec![unusable(format!("{} is not writable: {error}", place.display()))];
    }
    vec![match rustix::fs::statvfs(place) {
        Ok(system) => space(dir, system.f_bavail.saturating_mul(system.f_frsize)),
        Err(error) => Finding::warning(
            CHECK,
            format!("the free space at {shown} is unknown: {error}"),
            "Check the file system.",
        ),
    }]
}

fn space(dir: &Path, free: u64) -> Finding {
    let message = format!("{} is writable, {} MB are free", dir.display(), free >> 20);
    let advice = "Free space on that file system: when it is full, nothing can be launched or changed.";
    if free < LITTLE_SPACE {
        Finding::error(CHECK, message, advice)
    } else if free < SPACE {
        Finding::warning(CHECK, message, advice)
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn redis_has_to_keep_every_confirmed_write() {
        let settings = |append_only, fsync: Option<&str>| RedisSettings {
            append_only,
            append_fsync: fsync.map(str::to_owned),
            ..RedisSettings::default()
        };
        for (found, state, part) in [
            (settings(Some(true), Some("always")), State::Ok, "on disk"),
            (
                settings(Some(true), Some("everysec")),
                State::Warning,
                "once a second",
            ),
            (settings(Some(true), Some("no")), State::Warning, "the system"),
            (
                settings(Some(false), Some("always")),
                State::Warning,
                "no append-only file",
            ),
            (settings(None, None), State::Warning, "does not tell"),
            (
                RedisSettings {
                    role: Some("slave".to_owned()),
                    ..settings(Some(true), Some("always"))
                },
                State::Error,
                "replica",
            ),
            (
                RedisSettings {
                    evicts: Some(true),
                    ..settings(Some(true), Some("always"))
                },
                State::Error,
                "evicts",
            ),
        ] {
            let findings = redis("r:1", &found);
            assert_eq!(findings[0].state, state, "{found:?}");
            assert!(findings[0].message.contains(part), "{}", findings[0].message);
        }
    }

    #[test]
    fn directory_of_the_store_has_to_be_usable() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let state = |path: &Path| directory(path)[0].state;
        assert_ne!(state(&dir.path().join("new/store")), State::Error);
        assert!(!dir.path().join("new").exists(), "a check creates nothing");
        assert_eq!(state(&file.join("store")), State::Error);
        assert_eq!(space(dir.path(), 1 << 40).state, State::Ok);
        assert_eq!(space(dir.path(), 100 << 20).state, State::Warning);
        assert_eq!(space(dir.path(), 1 << 20).state, State::Error);
    }
}
