//! Tests of valid and invalid manifests.

use std::time::Duration;

use super::{
    rollout::{CanaryPlan, Plan, ReplayPlan, ShadowPlan, WithoutCalls},
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
    // By default a probe may connect to its task.
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
    let expected = Rollout::WithCandidate {
        plan: Plan::Shadow(plan),
        automatic: true,
    };
    assert_eq!(manifest.rollout, expected);
    let tests: Vec<String> = manifest.self_tests.iter().map(ToString::to_string).collect();
    assert_eq!(tests, [r#"{"events":[]}"#, r#"{"expect":["pass"]}"#]);
}

#[test]
fn manifest_parses_canary() {
    let defaults = CanaryPlan {
        percent: 10,
        min_duration: Duration::from_mins(10),
        min_calls: 100,
        max_faults: 0,
        compare_percent: 100,
        max_differences_percent: 100.0,
        max_latency_ratio: 2.0,
        latency_floor: Duration::from_millis(10),
    };
    let changed = CanaryPlan {
        percent: 99,
        min_duration: Duration::from_secs(1),
        min_calls: 7,
        max_faults: 3,
        compare_percent: 0,
        max_differences_percent: 100.0,
        max_latency_ratio: 1.5,
        latency_floor: Duration::from_micros(50),
    };
    let table = "[canary]\npercent = 99\nmin-duration = \"1s\"\nmin-calls = 7\nmax-faults = 3\ncompare-percent = 0\n\
                 max-latency-ratio = 1.5\nlatency-floor = \"50us\"\n";
    for (rollout, table, plan, automatic) in [
        ("canary", "", defaults, true),
        ("canary-manual", "", defaults, false),
        ("canary", table, changed, true),
    ] {
        let text = format!("world = \"event-filter\"\nrollout = \"{rollout}\"\n{table}");
        let expected = Rollout::WithCandidate {
            plan: Plan::Canary(plan),
            automatic,
        };
        assert_eq!(parse(&text).unwrap().rollout, expected, "{text}");
    }
}

#[test]
fn canary_errors_name_key_and_expectation() {
    for (table, expected) in [
        ("percent = 0", "`canary.percent` is 0; expected 1 to 99"),
        ("percent = 100", "`canary.percent` is 100; expected 1 to 99"),
        (
            "percent = \"10%\"",
            "`canary.percent` is of type string; expected a whole number",
        ),
        (
            "min-calls = 0",
            "`canary.min-calls` is 0; expected 1 to 1000000000",
        ),
        (
            "min-duration = 600",
            "`canary.min-duration` is of type integer; expected a string",
        ),
        (
            "min-duration = \"9999h\"",
            "`canary.min-duration` is \"9999h\"; expected at most 604800s",
        ),
        (
            "max-faults = -1",
            "`canary.max-faults` is -1; expected 0 to 1000000",
        ),
        (
            "compare-percent = 101",
            "`canary.compare-percent` is 101; expected 0 to 100",
        ),
        (
            "max-differences-percent = 100.5",
            "`canary.max-differences-percent` is 100.5; expected 0 to 100",
        ),
        (
            "max-latency-ratio = 0.9",
            "`canary.max-latency-ratio` is 0.9; expected 1 to 1000",
        ),
        (
            "max-latency-ratio = nan",
            "`canary.max-latency-ratio` is NaN; expected 1 to 1000",
        ),
        (
            "compare-percent = 0\nmax-differences-percent = 5",
            "`canary.compare-percent` is 0; expected 1 to 100, because max-differences-percent is below 100",
        ),
        ("share = 10", "unknown key `canary.share`"),
        (
            "max-differences = 0",
            "unknown key `canary.max-differences`; did you mean `max-differences-percent`?",
        ),
    ] {
        let text = format!("world = \"event-filter\"\nrollout = \"canary\"\n[canary]\n{table}\n");
        assert_eq!(parse(&text).unwrap_err(), expected);
    }
}

/// A table of another rollout is an error. Otherwise the table would be ignored silently, and a
/// forgotten `rollout` would put the version into service for all calls.
#[test]
fn table_of_another_rollout_is_rejected() {
    for (rollout, table, expected) in [
        (
            "",
            "canary",
            "`rollout` is \"immediate\"; expected \"canary\" or \"canary-manual\", because there is a table [canary]",
        ),
        (
            "rollout = \"shadow\"",
            "canary",
            "`rollout` is \"shadow\"; expected \"canary\" or \"canary-manual\", because there is a table [canary]",
        ),
        (
            "rollout = \"canary\"",
            "shadow",
            "`rollout` is \"canary\"; expected \"shadow\" or \"shadow-manual\", because there is a table [shadow]",
        ),
        (
            "rollout = \"canary-manual\"",
            "replay",
            "`rollout` is \"canary-manual\"; expected \"replay\", because there is a table [replay]",
        ),
    ] {
        let text = format!("world = \"event-filter\"\n{rollout}\n[{table}]\n");
        assert_eq!(parse(&text).unwrap_err(), expected);
    }
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
fn old_keys_are_rejected_with_their_new_names() {
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
            "manifest-version = 2\nworld = \"event-filter\"",
            "`manifest-version` is 2; expected 1, which is what this daemon reads",
        ),
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
            "`rollout` is \"auto\"; expected \"immediate\", \"shadow\", \"shadow-manual\", \"canary\", \"canary-manual\" or \"replay\"",
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
        ("world = ", "invalid TOML: line 1: "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(message), "{text:?}: {error}");
    }
}

#[test]
fn self_test_of_another_type_is_rejected() {
    let error = parse("world = \"event-filter\"\nself-test = 1").unwrap_err();
    assert!(
        error.contains("`self-test` is of type integer; expected tables"),
        "{error}"
    );
}
