use std::sync::Arc;

use super::*;
use crate::{
    manifest::{files::ManifestFile, limits::Limits, probation::Probation},
    observe::metrics::Metrics,
};

/// Statistics of a candidate whose rollout is the one of this manifest.
fn stats(manifest: &str) -> CandidateStats {
    let text = format!("world = \"check-probe\"\n{manifest}\n");
    let file = ManifestFile::parse(text, &Limits::default(), Probation::default());
    let manifest = file.manifest().unwrap();
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let context = VersionContext::new("p", manifest, Vec::new(), VersionMetrics::unexported());
    let crate::manifest::rollout::Rollout::WithCandidate { plan, automatic } = manifest.rollout else {
        panic!("{:?}", manifest.rollout);
    };
    let terms = Terms {
        plan,
        automatic,
        generation: Generation(1),
    };
    let metrics = metrics.candidate("p", plan.kind());
    CandidateStats::new(terms, Arc::new(context), VersionMetrics::unexported(), metrics)
}

fn different(number: u32) -> Comparison {
    Comparison::Different(Difference {
        question: number.to_string(),
        serving: "first".to_owned(),
        candidate: "repeated".to_owned(),
    })
}

fn fault() -> CallError {
    CallError::Trapped {
        name: "p".to_owned(),
        message: "x".to_owned(),
    }
}

fn counts(stats: &CandidateStats) -> [u64; 5] {
    [
        &stats.answered,
        &stats.compared,
        &stats.differences,
        &stats.failures,
        &stats.dropped,
    ]
    .map(|it| it.load(Relaxed))
}

#[test]
fn all_differences_are_counted_and_the_latest_are_shown() {
    let stats = stats("rollout = \"shadow\"");
    for number in 0..50 {
        stats.record_comparison(Ok(different(number)));
    }
    stats.record_comparison(Ok(Comparison::Stale));
    stats.record_comparison(Err(CallError::Stopped));
    let recent = stats.recent_differences();
    assert_eq!(
        (recent.len(), recent[0].question.as_str()),
        (MAX_DIFFERENCES, "34")
    );
    assert_eq!(recent[0].candidate, "repeated", "the shadow answers second");
    stats.record_comparison(Err(fault()));
    assert_eq!(counts(&stats), [50, 51, 50, 1, 2]);
}

#[test]
fn faults_of_repeated_calls_on_the_serving_version_are_not_the_canarys() {
    let stats = stats("rollout = \"canary\"");
    stats.record_comparison(Ok(different(1)));
    stats.record_comparison(Ok(Comparison::Same));
    stats.record_comparison(Err(fault()));
    assert_eq!(counts(&stats), [0, 2, 1, 0, 1]);
    assert_eq!(stats.faults(), 0);
    let recent = stats.recent_differences();
    assert_eq!(
        (recent[0].serving.as_str(), recent[0].candidate.as_str()),
        ("repeated", "first"),
        "the canary answered first"
    );
}

/// Adds calls of this duration to the histogram of a version.
fn record_durations(metrics: &VersionMetrics, calls: u64, millis: u64) {
    for _ in 0..calls {
        metrics.record_duration(Duration::from_millis(millis), Duration::ZERO);
    }
}

#[test]
fn slow_canary_is_aborted_once_both_have_enough_calls() {
    let stats = stats(
        "rollout = \"canary\"\n[canary]\nmin-calls = 100\nmax-latency-ratio = 3\nlatency-floor = \"1ms\"\n[limits]\ninstances = 2",
    );
    let (canary, serving) = (&stats.context.metrics, &stats.serving);
    // The first call of each of its two instances is left out, however long it takes.
    record_durations(canary, 2, 900);
    record_durations(canary, 100, 4);
    record_durations(serving, 99, 2);
    assert_eq!(stats.latency(), None, "99 calls of the serving version");
    record_durations(serving, 1, 2);
    assert!(stats.latency().is_some());
    assert_eq!(
        stats.verdict(),
        None,
        "it is twice as slow, and three times is allowed"
    );
    record_durations(canary, 50, 9);
    let (verdict, reason) = stats.verdict().unwrap();
    assert_eq!(verdict, CandidateVerdict::Failed);
    assert!(reason.contains("canary.max-latency-ratio"), "{reason}");
}

#[test]
fn calls_before_the_canary_began_do_not_count() {
    let stats = stats("rollout = \"canary\"\n[canary]\nmin-calls = 1\n[limits]\ninstances = 1");
    let before = VersionMetrics::unexported();
    record_durations(&before, 10, 800);
    let stats = CandidateStats::new(
        stats.terms,
        Arc::clone(&stats.context),
        before.clone(),
        stats.metrics.clone(),
    );
    record_durations(&stats.context.metrics, 10, 1);
    assert_eq!(stats.latency(), None);
    record_durations(&before, 1, 2);
    let serving = stats.latency().unwrap().serving;
    assert!(serving < Duration::from_millis(3), "{serving:?}");
}

#[test]
fn manual_candidate_is_never_promoted_by_the_host() {
    for (manifest, expected) in [
        (
            "rollout = \"shadow\"\n[shadow]\nmin-duration = \"1us\"\nmin-calls = 1",
            true,
        ),
        (
            "rollout = \"shadow-manual\"\n[shadow]\nmin-duration = \"1us\"\nmin-calls = 1",
            false,
        ),
        (
            "rollout = \"canary\"\n[canary]\nmin-duration = \"1us\"\nmin-calls = 1",
            true,
        ),
        (
            "rollout = \"canary-manual\"\n[canary]\nmin-duration = \"1us\"\nmin-calls = 1",
            false,
        ),
    ] {
        let stats = stats(manifest);
        assert_eq!(stats.verdict(), None, "it has answered no call: {manifest}");
        stats.count_answer();
        stats.record_comparison(Ok(Comparison::Same));
        let verdict = stats.verdict().map(|(verdict, _)| verdict);
        assert_eq!(
            verdict,
            expected.then_some(CandidateVerdict::Agreed),
            "{manifest}"
        );
    }
}
