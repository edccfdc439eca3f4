//! Simulations with fixed seeds and with a new one.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use transom_simulation::{Options, Report, Sabotage, conforms, run};

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
    let report = simulate(seed, 60, None);
    if let Some(violation) = report.violation {
        panic!("seed {seed}:\n{violation}");
    }
    assert!(report.faults.len() > 7, "seed {seed}: most kinds of faults occur");
    assert!(
        report.terms > 3 && report.writes > 1_000 && report.jobs > 100 && report.changes > 20,
        "{report:?}"
    );
}

#[test]
fn breaches_of_the_stores_contract_are_found() {
    for (sabotage, expected) in [
        (Sabotage::GrantsTwice, "lead"),
        (Sabotage::ForgetsCommits, "is not in the store"),
        (Sabotage::NeverExpires, "nobody leads"),
    ] {
        // Not every hour has the faults that it takes.
        let violation = (1..5).find_map(|seed| simulate(seed, 60, Some(sabotage)).violation);
        let violation = violation.unwrap();
        assert!(violation.what.contains(expected), "{sabotage:?}: {violation}");
        assert!(!violation.events.is_empty());
    }
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
