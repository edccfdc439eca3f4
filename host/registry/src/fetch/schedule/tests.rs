use std::sync::Arc;

use super::*;
use crate::{
    attestations::Attestations,
    oci::{Image, Source},
};

const POLICY: RetryPolicy = RetryPolicy {
    refresh: Duration::from_mins(5),
    spread: 1.0,
};

fn request(source: &str) -> FetchRequest {
    FetchRequest {
        source: Source::parse(source).unwrap(),
        limit: 100,
        pinned: None,
    }
}

fn tag() -> FetchRequest {
    request("oci://r.example/probe:1")
}

fn pinned() -> FetchRequest {
    request(&format!("oci://r.example/probe@sha256:{}", "0".repeat(64)))
}

fn fetched(mark: &str) -> Fetched {
    Fetched {
        image: Arc::new(Image {
            source: "oci://r.example/probe:1".to_owned(),
            manifest: mark.to_owned(),
            signatures: Vec::new(),
            bundles: Vec::new(),
            attestations: Attestations::default(),
        }),
        component: Arc::default(),
    }
}

fn unreachable() -> FetchError {
    FetchError::Unreachable {
        host: "r.example".to_owned(),
        message: "away".to_owned(),
    }
}

fn not_found() -> FetchError {
    FetchError::NotFound {
        host: "r.example".to_owned(),
        message: "x".to_owned(),
    }
}

/// Starts the only fetch that is due.
fn take(schedule: &mut FetchSchedule, now: Instant) -> FetchTask {
    let (mut tasks, _) = schedule.due(now, 4);
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

/// Checks that no fetch is due, and returns the time until the next one.
fn delay(schedule: &mut FetchSchedule, now: Instant) -> Option<Duration> {
    let (tasks, next) = schedule.due(now, 4);
    assert!(tasks.is_empty());
    next.map(|next| next - now)
}

#[test]
fn tag_is_fetched_again_and_digest_is_not() {
    for (request, expected) in [(tag(), Some(POLICY.refresh)), (pinned(), None)] {
        let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
        schedule.set_request("p", request.clone(), None, Some(now));
        assert!(schedule.is_current("p", &request) && matches!(schedule.state("p"), FetchState::Pending));
        let task = take(&mut schedule, now);
        assert_eq!(delay(&mut schedule, now), None, "the fetch is running");
        let outcome = schedule.finish(&task, Ok((fetched("a"), true)), &POLICY, now, 1);
        assert!(matches!(outcome, FetchOutcome::Changed { .. }));
        assert!(matches!(schedule.state("p"), FetchState::Fetched(_)));
        assert_eq!(delay(&mut schedule, now), expected);
        schedule.refresh(now);
        let (tasks, _) = schedule.due(now, 4);
        assert_eq!(tasks.len(), usize::from(expected.is_some()));
    }
    // A digest that was fetched before the daemon started is not fetched again.
    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", pinned(), Some(fetched("a")), None);
    assert_eq!(delay(&mut schedule, now), None);
    assert_eq!(schedule.status("p").unwrap().state, FetchStatus::Current);
    // A digest whose signature is missing is fetched again.
    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", pinned(), None, Some(now));
    let task = take(&mut schedule, now);
    schedule.finish(&task, Ok((fetched("a"), false)), &POLICY, now, 1);
    assert_eq!(delay(&mut schedule, now), Some(POLICY.refresh));
}

#[test]
fn temporary_failures_are_retried_sooner() {
    let (mut schedule, mut now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", tag(), None, Some(now));
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let task = take(&mut schedule, now);
        schedule.finish(&task, Err(unreachable()), &POLICY, now, 1);
        assert_eq!(delay(&mut schedule, now), Some(Duration::from_secs(seconds)));
        now += Duration::from_secs(seconds);
    }
    let task = take(&mut schedule, now);
    schedule.finish(&task, Err(not_found()), &POLICY, now, 1);
    assert_eq!(delay(&mut schedule, now), Some(POLICY.refresh));
    now += POLICY.refresh;
    let task = take(&mut schedule, now);
    schedule.finish(&task, Ok((fetched("a"), true)), &POLICY, now, 1);
    now += POLICY.refresh;
    let task = take(&mut schedule, now);
    schedule.finish(&task, Err(unreachable()), &POLICY, now, 1);
    assert_eq!(
        delay(&mut schedule, now),
        Some(Duration::from_secs(1)),
        "the first of a new row"
    );
}

#[test]
fn fetched_image_stays_after_later_failures() {
    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", tag(), Some(fetched("old")), Some(now));
    assert!(
        matches!(schedule.state("p"), FetchState::Fetched(_)),
        "the image was fetched earlier"
    );
    for (error, expected) in [
        (unreachable(), FetchOutcome::Failed(unreachable())),
        (unreachable(), FetchOutcome::Unchanged),
        (not_found(), FetchOutcome::Failed(not_found())),
    ] {
        schedule.refresh(now);
        let task = take(&mut schedule, now);
        assert!(task.previous.is_some());
        assert_eq!(schedule.finish(&task, Err(error), &POLICY, now, 1), expected);
        let status = schedule.status("p").unwrap();
        assert_eq!(status.state, FetchStatus::Failed);
        assert!(status.error.is_some() && status.digest.is_some() && status.checked_at.is_some());
        assert!(matches!(schedule.state("p"), FetchState::Fetched(_)));
    }
    schedule.refresh(now);
    let task = take(&mut schedule, now);
    let outcome = schedule.finish(&task, Ok((fetched("old"), true)), &POLICY, now, 1);
    assert_eq!(outcome, FetchOutcome::Recovered);
    assert_eq!(schedule.status("p").unwrap().state, FetchStatus::Current);
    assert_eq!(schedule.fetched_from("p", &tag()).unwrap().image.manifest, "old");
    assert!(schedule.fetched_from("p", &pinned()).is_none());

    // Without a fetched image the state is the failure.
    schedule.set_request("q", pinned(), None, Some(now));
    let task = take(&mut schedule, now);
    schedule.finish(&task, Err(not_found()), &POLICY, now, 1);
    assert!(matches!(schedule.state("q"), FetchState::Failed(error) if error == not_found()));
}

#[test]
fn result_of_an_outdated_request_is_ignored() {
    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", tag(), None, Some(now));
    let old = take(&mut schedule, now);
    schedule.set_request("p", pinned(), None, Some(now));
    assert_eq!(
        delay(&mut schedule, now),
        None,
        "the second fetch waits for the first"
    );
    assert_eq!(
        schedule.finish(&old, Ok((fetched("old"), true)), &POLICY, now, 1),
        FetchOutcome::Unchanged
    );
    assert!(matches!(schedule.state("p"), FetchState::Pending));
    let new = take(&mut schedule, now);
    assert_eq!(new.request, pinned());

    // The plugin is forgotten and requested again: the late result of the earlier fetch is ignored.
    schedule.forget("p");
    schedule.set_request("p", tag(), None, Some(now));
    let newest = take(&mut schedule, now);
    schedule.finish(&new, Err(unreachable()), &POLICY, now, 1);
    assert_eq!(delay(&mut schedule, now), None);
    schedule.finish(&newest, Ok((fetched("a"), true)), &POLICY, now, 1);
    assert!(matches!(schedule.state("p"), FetchState::Fetched(_)));
    schedule.keep_only(|_| false);
    assert_eq!(
        schedule.finish(&newest, Err(unreachable()), &POLICY, now, 1),
        FetchOutcome::Unchanged
    );
    assert!(schedule.status("p").is_none());
}

#[test]
fn refresh_during_a_fetch_fetches_again() {
    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    schedule.set_request("p", tag(), None, Some(now));
    let task = take(&mut schedule, now);
    schedule.refresh(now);
    schedule.finish(&task, Ok((fetched("a"), true)), &POLICY, now, 1);
    take(&mut schedule, now);

    let (mut schedule, now) = (FetchSchedule::default(), Instant::now());
    for name in ["a", "b", "c"] {
        schedule.set_request(name, tag(), None, Some(now));
    }
    let (tasks, next) = schedule.due(now, 2);
    assert_eq!((tasks.len(), next), (2, None));
    assert_eq!(schedule.due(now, 0).0.len(), 0);
    assert_eq!(schedule.due(now, 2).0.len(), 1);
}
