//! Some seconds of chaos with a fixed seed, on three servers of ZooKeeper: the simulation finds more, in less time, and this shows that real
//! processes and connections behave as the simulated ones.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use std::time::Duration;

use transom_chaos::{Options, Store, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invariants_hold_for_seconds_of_chaos() {
    let options = Options {
        seed: 20_180_101,
        time: Duration::from_secs(10),
        store: Store::ZooKeeper,
        verbose: false,
    };
    let report = run(&options).await.expect("a run that can be carried out");
    assert!(report.holds, "{report}");
    assert!(
        report.quiet_moments >= 2 && report.least_wanted >= 200,
        "{report}"
    );
    assert!(
        report.writes.acknowledged >= 20 && !report.faults.is_empty(),
        "{report}"
    );
    assert!(
        report.invariants.iter().all(|invariant| invariant.checked > 0),
        "{report}"
    );
}
