use std::sync::Arc;

use super::*;
use crate::sources::{image::Image, source::Source};

const PAUSES: Pauses = Pauses {
    refresh: Duration::from_mins(5),
    spread: 1.0,
};

fn wish(source: &str) -> Wish {
    Wish {
        source: Source::parse(source).unwrap(),
        limit: 100,
        pinned: None,
    }
}

fn tag() -> Wish {
    wish("oci://r.example/probe:1")
}

fn pinned() -> Wish {
    wish(&format!("oci://r.example/probe@sha256:{}", "0".repeat(64)))
}

fn fetched(mark: &str) -> Fetched {
    Fetched {
        image: Arc::new(Image {
            source: "oci://r.example/probe:1".to_owned(),
            manifest: mark.to_owned(),
            signatures: Vec::new(),
        }),
        component: Arc::default(),
    }
}

fn away() -> FetchError {
    FetchError::Unreachable {
        host: "r.example".to_owned(),
        message: "away".to_owned(),
    }
}

fn not_there() -> FetchError {
    FetchError::NotThere {
        host: "r.example".to_owned(),
        message: "x".to_owned(),
    }
}

/// The one errand that is due.
fn take(book: &mut Book, now: Instant) -> Errand {
    let (mut errands, _) = book.due(now, 4);
    assert_eq!(errands.len(), 1);
    errands.remove(0)
}

/// How long nothing is due.
fn pause(book: &mut Book, now: Instant) -> Option<Duration> {
    let (errands, next) = book.due(now, 4);
    assert!(errands.is_empty());
    next.map(|next| next - now)
}

#[test]
fn a_tag_is_asked_for_again_and_a_digest_is_not() {
    for (wish, expected) in [(tag(), Some(PAUSES.refresh)), (pinned(), None)] {
        let (mut book, now) = (Book::default(), Instant::now());
        book.wish("p", wish.clone(), None, Some(now));
        assert!(book.has("p", &wish) && matches!(book.found("p"), Found::Underway));
        let errand = take(&mut book, now);
        assert_eq!(pause(&mut book, now), None, "it is underway");
        let news = book.done(&errand, Ok((fetched("a"), true)), &PAUSES, now);
        assert!(matches!(news, News::Came { .. }));
        assert!(matches!(book.found("p"), Found::Here(_)));
        assert_eq!(pause(&mut book, now), expected);
        book.refresh(now);
        let (errands, _) = book.due(now, 4);
        assert_eq!(errands.len(), usize::from(expected.is_some()));
    }
    // One that was fetched before the daemon started is not asked for at all.
    let (mut book, now) = (Book::default(), Instant::now());
    book.wish("p", pinned(), Some(fetched("a")), None);
    assert_eq!(pause(&mut book, now), None);
    assert_eq!(book.status("p").unwrap().state, status::Fetching::Current);
    // One whose signature is missing is looked for again.
    let (mut book, now) = (Book::default(), Instant::now());
    book.wish("p", pinned(), None, Some(now));
    let errand = take(&mut book, now);
    book.done(&errand, Ok((fetched("a"), false)), &PAUSES, now);
    assert_eq!(pause(&mut book, now), Some(PAUSES.refresh));
}

#[test]
fn failures_that_may_pass_are_tried_again_sooner() {
    let (mut book, mut now) = (Book::default(), Instant::now());
    book.wish("p", tag(), None, Some(now));
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let errand = take(&mut book, now);
        book.done(&errand, Err(away()), &PAUSES, now);
        assert_eq!(pause(&mut book, now), Some(Duration::from_secs(seconds)));
        now += Duration::from_secs(seconds);
    }
    let errand = take(&mut book, now);
    book.done(&errand, Err(not_there()), &PAUSES, now);
    assert_eq!(pause(&mut book, now), Some(PAUSES.refresh));
    now += PAUSES.refresh;
    let errand = take(&mut book, now);
    book.done(&errand, Ok((fetched("a"), true)), &PAUSES, now);
    now += PAUSES.refresh;
    let errand = take(&mut book, now);
    book.done(&errand, Err(away()), &PAUSES, now);
    assert_eq!(
        pause(&mut book, now),
        Some(Duration::from_secs(1)),
        "the first of a new row"
    );
}

#[test]
fn what_is_here_stays_whatever_happens() {
    let (mut book, now) = (Book::default(), Instant::now());
    book.wish("p", tag(), Some(fetched("old")), Some(now));
    assert!(
        matches!(book.found("p"), Found::Here(_)),
        "it was fetched earlier"
    );
    for (error, expected) in [
        (away(), News::Failed(away())),
        (away(), News::None),
        (not_there(), News::Failed(not_there())),
    ] {
        book.refresh(now);
        let errand = take(&mut book, now);
        assert!(errand.have.is_some());
        assert_eq!(book.done(&errand, Err(error), &PAUSES, now), expected);
        let status = book.status("p").unwrap();
        assert_eq!(status.state, status::Fetching::Failed);
        assert!(status.trouble.is_some() && status.digest.is_some() && status.checked_at.is_some());
        assert!(matches!(book.found("p"), Found::Here(_)));
    }
    book.refresh(now);
    let errand = take(&mut book, now);
    let news = book.done(&errand, Ok((fetched("old"), true)), &PAUSES, now);
    assert_eq!(news, News::Recovered);
    assert_eq!(book.status("p").unwrap().state, status::Fetching::Current);
    assert_eq!(book.of_same_source("p", &tag()).unwrap().image.manifest, "old");
    assert!(book.of_same_source("p", &pinned()).is_none());

    // Without anything the failure is the answer.
    book.wish("q", pinned(), None, Some(now));
    let errand = take(&mut book, now);
    book.done(&errand, Err(not_there()), &PAUSES, now);
    assert!(matches!(book.found("q"), Found::Failed(error) if error == not_there()));
}

#[test]
fn an_answer_to_an_earlier_wish_is_none() {
    let (mut book, now) = (Book::default(), Instant::now());
    book.wish("p", tag(), None, Some(now));
    let old = take(&mut book, now);
    book.wish("p", pinned(), None, Some(now));
    assert_eq!(
        pause(&mut book, now),
        None,
        "one at a time: the place is taken until the first is back"
    );
    assert_eq!(
        book.done(&old, Ok((fetched("old"), true)), &PAUSES, now),
        News::None
    );
    assert!(matches!(book.found("p"), Found::Underway));
    let new = take(&mut book, now);
    assert_eq!(new.wish, pinned());

    // Forgotten and wished for again: the one that is back late disturbs nothing.
    book.forget("p");
    book.wish("p", tag(), None, Some(now));
    let newest = take(&mut book, now);
    book.done(&new, Err(away()), &PAUSES, now);
    assert_eq!(pause(&mut book, now), None);
    book.done(&newest, Ok((fetched("a"), true)), &PAUSES, now);
    assert!(matches!(book.found("p"), Found::Here(_)));
    book.keep_only(|_| false);
    assert_eq!(book.done(&newest, Err(away()), &PAUSES, now), News::None);
    assert!(book.status("p").is_none());
}

#[test]
fn asked_for_while_underway_it_is_fetched_once_more() {
    let (mut book, now) = (Book::default(), Instant::now());
    book.wish("p", tag(), None, Some(now));
    let errand = take(&mut book, now);
    book.refresh(now);
    book.done(&errand, Ok((fetched("a"), true)), &PAUSES, now);
    take(&mut book, now);

    let (mut book, now) = (Book::default(), Instant::now());
    for name in ["a", "b", "c"] {
        book.wish(name, tag(), None, Some(now));
    }
    let (errands, next) = book.due(now, 2);
    assert_eq!((errands.len(), next), (2, None));
    assert_eq!(book.due(now, 0).0.len(), 0);
    assert_eq!(book.due(now, 2).0.len(), 1);
}
