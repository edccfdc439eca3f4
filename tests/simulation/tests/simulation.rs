//! Simulations with fixed seeds and with a new one.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use transom_simulation::{Options, Report, Sabotage, Violation, conforms, faults, run, simplified};

fn simulate(seed: u64, minutes: u64, sabotage: Option<Sabotage>) -> Report {
    run(&Options {
        sabotage,
        ..Options::new(seed, Duration::from_mins(minutes))
    })
    .unwrap()
}

#[test]
fn simulated_store_passes_the_tests_of_every_store() {
    for seed in 0..3 {
        conforms(seed).unwrap();
    }
}

#[test]
fn same_seed_gives_the_same_trace_and_another_seed_another_one() {
    let [first, again, other] = [1, 1, 2].map(|seed| simulate(seed, 10, None));
    assert_eq!(
        (first.digest.as_str(), first.events),
        (again.digest.as_str(), again.events)
    );
    assert_ne!(first.digest, other.digest);
}

#[test]
fn invariants_hold_with_a_new_seed() {
    let seed = rand::random();
    let report = run(&Options {
        lost_disks: true,
        ..Options::new(seed, Duration::from_mins(40))
    })
    .unwrap();
    if let Some(violation) = report.violation {
        panic!("seed {seed} with lost disks:\n{violation}");
    }
    assert!(report.faults.len() > 7, "seed {seed}: most kinds of faults occur");
    assert!(
        report.terms > 2 && report.writes > 1_000 && report.jobs > 50 && report.changes > 10,
        "{report:?}"
    );
}

#[test]
fn daemon_with_an_embedded_store_leads_until_it_is_killed() {
    let seed = rand::random();
    let report = run(&Options {
        embedded: true,
        ..Options::new(seed, Duration::from_mins(20))
    })
    .unwrap();
    if let Some(violation) = report.violation {
        panic!("seed {seed} with an embedded store:\n{violation}");
    }
    assert!(report.writes > 500 && report.jobs > 30, "{report:?}");
}

/// Each of them once violated an invariant.
#[test]
fn invariants_hold_with_the_kept_seeds() {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args([
            "--no-shrink",
            "--file",
            concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.json"),
        ])
        .output();
    let output = program.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let reports = String::from_utf8_lossy(&output.stdout);
    assert!(reports.contains("seed 1036: 1.0 h"), "{reports}");
}

#[test]
fn breaches_of_the_stores_contract_are_found() {
    for (sabotage, seed, expected) in [
        (Sabotage::GrantsTwice, 1, "lead"),
        (Sabotage::ForgetsCommits, 1, "is not in the store"),
        // The first seed that has the faults that it takes.
        (Sabotage::NeverExpires, 4, "nobody leads"),
    ] {
        let violation = simulate(seed, 20, Some(sabotage)).violation.unwrap();
        assert!(violation.what.contains(expected), "{sabotage:?}: {violation}");
        assert!(!violation.events.is_empty());
    }
}

#[test]
fn simpler_run_has_only_what_the_violation_needs() {
    let options = Options::new(1, Duration::from_hours(1));
    let empty = run(&Options::new(1, Duration::from_secs(1))).unwrap();
    // Two apps and the reset of an agent violate an invariant; without lost updates, another one.
    let scripted = |options: &Options| {
        let happens = |fault: &str| !options.without.contains(fault);
        let hours = if happens("wrong clock") { 0.5 } else { 0.25 };
        let what = if happens("lost updates") {
            "app-1 has 3 tasks"
        } else {
            "nobody leads"
        };
        let is_violated = happens("reset agent") && options.apps >= 2;
        Ok(Report {
            hours,
            faults: faults()
                .filter(|fault| happens(fault))
                .map(|fault| (fault, 1))
                .collect(),
            violation: is_violated.then(|| Violation {
                at: hours * 3600.0,
                what: what.to_owned(),
                events: Vec::new(),
            }),
            ..empty.clone()
        })
    };
    let report = scripted(&options).unwrap();
    let (simpler, report) = simplified(options, report, scripted).unwrap();
    let needed: Vec<_> = faults()
        .filter(|fault| !simpler.without.contains(fault))
        .collect();
    assert_eq!(needed, ["lost updates", "reset agent"]);
    assert_eq!((simpler.apps, simpler.time), (3, Duration::from_mins(15)));
    assert_eq!(report.violation.unwrap().what, "app-1 has 3 tasks");
}

#[test]
fn limit_begins_no_further_seed() {
    let arguments = [
        "--seed", "1", "--seeds", "1000000", "--hours", "0.001", "--limit", "1",
    ];
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(arguments)
        .output();
    let output = program.unwrap();
    let reports = String::from_utf8_lossy(&output.stdout).lines().count();
    assert!(
        output.status.success() && (1..1_000_000).contains(&reports),
        "{output:?}"
    );
}

#[test]
fn bad_input_is_named() {
    let file = std::env::temp_dir().join(format!("seeds-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"world": 1, "seeds": [{"seed": 1, "hours": 1}]}"#).unwrap();
    let file = file.to_str().unwrap();
    for (arguments, expected) in [
        (&["--hours", "0"][..], "expected a time from 0.0003"),
        (&["--agents", "60000"], "60000 is not in 1..=5000"),
        (
            &["--apps", "1000", "--instances", "500"],
            "expected at most 100000 tasks",
        ),
        (
            &["--without", "rain"],
            "no such fault; expected one of: outage of the store,",
        ),
        (&["--file", file], "its seeds are of world 1, and this is world"),
        (&["--file", "absent.json"], "absent.json: "),
    ] {
        let program = std::process::Command::new(env!("CARGO_BIN_EXE_simulate"))
            .args(arguments)
            .output();
        let output = program.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    std::fs::remove_file(file).unwrap();
}
