//! The store: whether it can be used, and whether confirmed writes survive a crash.

use std::path::Path;

use transom_common::error_chain;
use transom_config::{Settings, parts};
use transom_store::{Durability, Inspection, RedisSettings, ZooKeeperServer};

use super::{Finding, clock};

const CHECK: &str = "store";
/// Less free space is a warning, in bytes.
const WARNING_FREE_BYTES: u64 = 1 << 30;
/// A longer mean time of a request to ZooKeeper is a warning, in milliseconds.
const SLOW_MS: f64 = 50.0;
/// Less free space is an error, in bytes.
const ERROR_FREE_BYTES: u64 = 64 << 20;

pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    if settings.apps.is_none() && settings.workflow.is_none() && settings.kubernetes().is_empty() {
        return vec![Finding::skipped(CHECK, "no enabled service needs a store")];
    }
    let config = parts::store::config(&settings.store);
    let server = config.shown_server();
    match config.inspect().await {
        Ok(Inspection::File(dir)) => check_directory(&dir),
        Ok(Inspection::Redis(settings)) => check_redis(&server, &settings),
        Ok(Inspection::ZooKeeper(servers)) => check_zookeeper(&servers),
        Err(error @ transom_store::Error::Unavailable { .. }) => vec![
            Finding::error(
                CHECK,
                format!("{server} cannot be used: {}", error_chain(&error)),
                "Check that it runs, `store.server`, and `store.user` and `store.password` if it requires them. Without a \
                 server, `store.server = \"file:DIR\"` is an embedded store for one daemon.",
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

fn check_redis(server: &str, settings: &RedisSettings) -> Vec<Finding> {
    let version = settings.version.as_deref().unwrap_or("of unknown version");
    let mut findings = Vec::new();
    if settings.role.as_deref() == Some("slave") {
        findings.push(Finding::error(
            CHECK,
            format!("the Redis server {server} is a replica, which cannot be written to"),
            "Name the primary in `store.server`.",
        ));
    }
    if settings.evicts == Some(true) {
        findings.push(Finding::error(
            CHECK,
            format!(
                "the Redis server {server} evicts keys when its memory is full: definitions and tasks would be lost"
            ),
            "Set `maxmemory-policy noeviction`.",
        ));
    }
    let durability_problem = match (settings.append_only, settings.append_fsync.as_deref()) {
        (Some(false), _) => Durability::Volatile.may_lose(),
        (Some(true), Some("always")) => None,
        (Some(true), Some("everysec")) => Some(
            "it writes its append-only file to disk once a second: the last second is lost when its machine crashes",
        ),
        (Some(true), Some(_)) => Some(
            "it leaves it to the operating system when its append-only file is flushed to disk: the last \
             writes may be lost",
        ),
        (Some(true), None) | (None, _) => Some("it does not report its durability to this user"),
    };
    check_replicas(server, settings, &mut findings);
    if let Some(durability_problem) = durability_problem {
        findings.push(Finding::warning(
            CHECK,
            format!("the Redis server {server}: {durability_problem}"),
            "Set `appendonly yes` and `appendfsync always` (`redis-cli CONFIG SET`, and the configuration file).",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!(
                "the Redis server {server} (version {version}) answers, and a confirmed write is on disk"
            ),
        ));
    }
    if let Some(time) = settings.time {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        findings.push(clock::compare_with_clock_of("the Redis server", seconds));
    }
    findings
}

/// Whether a failover of the Redis keeps confirmed writes.
fn check_replicas(server: &str, settings: &RedisSettings, findings: &mut Vec<Finding>) {
    let (connected, replicas) = (settings.connected.unwrap_or(0), settings.replicas);
    for (address, answer) in &settings.sentinels {
        if let Err(error) = answer {
            findings.push(Finding::warning(
                CHECK,
                format!("a Sentinel does not answer: {error}"),
                format!("Check that {address} runs, and `store.sentinel_password`."),
            ));
        }
    }
    if matches!(settings.sentinels.len(), 1 | 2) {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "`store.server` names {} Sentinels: without one of them there is no failover",
                settings.sentinels.len()
            ),
            "Name three Sentinels, on three machines.",
        ));
    }
    let risk = |durability: Durability| durability.may_lose().unwrap_or_default();
    if replicas == 0 && connected > 0 {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "the Redis server {server} has {connected} replicas: {}",
                risk(Durability::Unconfirmed)
            ),
            "Set `store.replicas` to 1, or to more with more than two replicas.",
        ));
    }
    if connected < replicas {
        findings.push(Finding::error(
            CHECK,
            format!("the Redis server {server} has {connected} replicas, and {replicas} have to confirm each write"),
            "Check that its replicas run, or lower `store.replicas`.",
        ));
    } else if replicas > 0 && connected > replicas {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "{replicas} of {connected} replicas of the Redis server {server} confirm a write: {}",
                risk(Durability::PartlyReplicated)
            ),
            format!("With `store.replicas = {connected}` that cannot happen, but then no write succeeds without all of them."),
        ));
    }
    if replicas > 0 && settings.rejects_alone == Some(false) {
        findings.push(Finding::warning(
            CHECK,
            format!("the Redis server {server} accepts writes of other programs while it is cut off from its replicas"),
            format!("Set `min-replicas-to-write {replicas}` and `min-replicas-max-lag 5` on all its servers."),
        ));
    }
}

fn check_zookeeper(servers: &[ZooKeeperServer]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let serving = servers.iter().filter(|server| server.mode.is_some());
    for server in servers.iter().filter(|server| server.mode.is_none()) {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "the ZooKeeper server {} does not serve, or does not answer `srvr`",
                server.address
            ),
            "Check that it runs and reaches the others. `4lw.commands.whitelist` has to contain `srvr`, as by default.",
        ));
    }
    if servers.len() < 3 || servers.len().is_multiple_of(2) {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "`store.server` names {} ZooKeeper servers: the state survives the loss of {}",
                servers.len(),
                servers.len().saturating_sub(1) / 2
            ),
            "Name all servers of an ensemble of three or five.",
        ));
    }
    for server in serving.clone() {
        if let Some((mean, longest)) = server.latency.filter(|(mean, _)| *mean > SLOW_MS) {
            findings.push(Finding::warning(
                CHECK,
                format!(
                    "the ZooKeeper server {} takes {mean} ms for a request, and {longest} ms at most",
                    server.address
                ),
                "Give its transaction log (`dataLogDir`) a disk of its own: each write waits for a sync.",
            ));
        }
    }
    if findings.is_empty() {
        let version = serving.clone().find_map(|server| server.version.as_deref());
        findings.push(Finding::ok(
            CHECK,
            format!(
                "{} ZooKeeper servers (version {}) serve, and a confirmed write is on the disks of most",
                serving.count(),
                version.unwrap_or("unknown")
            ),
        ));
    }
    findings
}

/// Checks the directory of the embedded store.
fn check_directory(dir: &Path) -> Vec<Finding> {
    let mut existing_dir = dir;
    // The daemon creates a missing directory, so the nearest existing ancestor has to be writable.
    while !existing_dir.exists() {
        match existing_dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => existing_dir = parent,
            _ => {
                existing_dir = Path::new(".");
                break;
            }
        }
    }
    let dir_text = dir.display();
    let unusable = |problem: String| {
        Finding::error(
            CHECK,
            format!("the directory {dir_text} of the embedded store cannot be used: {problem}"),
            "Make it a directory that the daemon's user owns, or name another in `store.server`.",
        )
        .unavailable()
    };
    if !existing_dir.is_dir() {
        return vec![unusable(format!("{} is not a directory", existing_dir.display()))];
    }
    if let Err(error) = tempfile::tempfile_in(existing_dir) {
        return vec![unusable(format!(
            "{} is not writable: {error}",
            existing_dir.display()
        ))];
    }
    vec![match rustix::fs::statvfs(existing_dir) {
        Ok(system) => check_free_space(dir, system.f_bavail.saturating_mul(system.f_frsize)),
        Err(error) => Finding::warning(
            CHECK,
            format!("the free space at {dir_text} is unknown: {error}"),
            "Check the file system.",
        ),
    }]
}

fn check_free_space(dir: &Path, free: u64) -> Finding {
    let message = format!("{} is writable, {} MB are free", dir.display(), free >> 20);
    let advice = "Free space on that file system: when it is full, nothing can be launched or changed.";
    if free < ERROR_FREE_BYTES {
        Finding::error(CHECK, message, advice)
    } else if free < WARNING_FREE_BYTES {
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
        for (redis_settings, state, part) in [
            (settings(Some(true), Some("always")), State::Ok, "on disk"),
            (
                settings(Some(true), Some("everysec")),
                State::Warning,
                "once a second",
            ),
            (
                settings(Some(true), Some("no")),
                State::Warning,
                "the operating system",
            ),
            (
                settings(Some(false), Some("always")),
                State::Warning,
                "no append-only file",
            ),
            (settings(None, None), State::Warning, "does not report"),
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
            let findings = check_redis("r:1", &redis_settings);
            assert_eq!(findings[0].state, state, "{redis_settings:?}");
            assert!(findings[0].message.contains(part), "{}", findings[0].message);
        }
    }

    #[test]
    fn failover_of_redis_has_to_keep_every_confirmed_write() {
        let settings = |connected, replicas, rejects_alone| RedisSettings {
            append_only: Some(true),
            append_fsync: Some("always".to_owned()),
            connected: Some(connected),
            replicas,
            rejects_alone: Some(rejects_alone),
            ..RedisSettings::default()
        };
        let with_sentinels = |answers: &[Result<&str, &str>]| RedisSettings {
            sentinels: answers
                .iter()
                .map(|answer| ("s:1".to_owned(), answer.map(str::to_owned).map_err(str::to_owned)))
                .collect(),
            ..settings(2, 2, true)
        };
        for (redis_settings, state, part) in [
            (settings(0, 0, false), State::Ok, "on disk"),
            (settings(2, 2, true), State::Ok, "on disk"),
            (settings(2, 0, true), State::Warning, "no write waits"),
            (settings(0, 1, true), State::Error, "1 have to confirm"),
            (settings(2, 1, true), State::Warning, "1 of 2 replicas"),
            (
                settings(2, 2, false),
                State::Warning,
                "accepts writes of other programs",
            ),
            (with_sentinels(&[Ok("p:1"); 3]), State::Ok, "on disk"),
            (
                with_sentinels(&[Ok("p:1"); 2]),
                State::Warning,
                "names 2 Sentinels",
            ),
            (
                with_sentinels(&[Ok("p:1"), Ok("p:1"), Err("the Sentinel s:1: timeout")]),
                State::Warning,
                "does not answer: the Sentinel s:1: timeout",
            ),
        ] {
            let findings = check_redis("r:1", &redis_settings);
            assert_eq!(findings[0].state, state, "{redis_settings:?}");
            assert!(findings[0].message.contains(part), "{}", findings[0].message);
        }
    }

    #[test]
    fn zookeeper_has_to_survive_the_loss_of_a_server() {
        let server = |number: usize, mode: Option<&str>, mean: f64| ZooKeeperServer {
            address: format!("h{number}:2181"),
            mode: mode.map(str::to_owned),
            version: Some("3.8.0".to_owned()),
            latency: Some((mean, 9.0)),
        };
        let all: Vec<_> = (0..3)
            .map(|number| server(number, Some("follower"), 1.0))
            .collect();
        let mut one_down = all.clone();
        one_down[1].mode = None;
        let mut slow = all.clone();
        slow[2].latency = Some((120.5, 900.0));
        for (servers, state, part) in [
            (&all[..], State::Ok, "3 ZooKeeper servers (version 3.8.0) serve"),
            (&all[..1], State::Warning, "survives the loss of 0"),
            (&all[..2], State::Warning, "survives the loss of 0"),
            (&one_down, State::Warning, "h1:2181 does not serve"),
            (&slow, State::Warning, "h2:2181 takes 120.5 ms"),
        ] {
            let findings = check_zookeeper(servers);
            assert_eq!((findings.len(), findings[0].state), (1, state));
            assert!(findings[0].message.contains(part), "{}", findings[0].message);
        }
    }

    #[test]
    fn directory_of_the_store_has_to_be_usable() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let state = |path: &Path| check_directory(path)[0].state;
        assert_ne!(state(&dir.path().join("new/store")), State::Error);
        assert!(!dir.path().join("new").exists(), "a check creates nothing");
        assert_eq!(state(&file.join("store")), State::Error);
        assert_eq!(check_free_space(dir.path(), 1 << 40).state, State::Ok);
        assert_eq!(check_free_space(dir.path(), 100 << 20).state, State::Warning);
        assert_eq!(check_free_space(dir.path(), 1 << 20).state, State::Error);
    }
}
