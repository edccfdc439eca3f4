//! Response rate limiting: across threads, and the empty answers that it sends.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use transom_discovery::dns::limit::{Action, Class, Limiter, Settings, emptied};

#[test]
fn limit_holds_across_threads() {
    const THREADS: usize = 4;
    const ANSWERS: usize = 20_000;
    let limiter = Limiter::new(Settings { rate: 100, slip: 3 });
    let (sent, slipped, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
    let client: IpAddr = "192.0.2.1".parse().unwrap();
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                for _ in 0..ANSWERS {
                    match limiter.check(client, Class::Records) {
                        Action::Send => sent.fetch_add(1, Ordering::Relaxed),
                        Action::Slip => slipped.fetch_add(1, Ordering::Relaxed),
                        Action::Drop => 0,
                    };
                }
            });
        }
    });
    // The full bucket, its refill during the test, and one answer for rounding.
    let max_sent = 100.0 + 100.0 * began.elapsed().as_secs_f64() + 1.0;
    let (sent, slipped) = (sent.into_inner(), slipped.into_inner());
    assert!(sent >= 100 && sent as f64 <= max_sent, "{sent} of {max_sent}");
    assert_eq!(slipped, (THREADS * ANSWERS - sent) / 3);
    // Answers of another class have their own bucket.
    assert_eq!(limiter.check(client, Class::NoName), Action::Send);
}

#[test]
fn slipped_answer_is_empty_with_tc() {
    let name = Name::from_ascii("web.marathon.mesos.").unwrap();
    let mut answer = Message::new(7, MessageType::Response, OpCode::Query);
    answer.add_query(Query::query(name.clone(), RecordType::A));
    answer.metadata.authoritative = true;
    answer.add_answer(Record::from_rdata(name, 60, RData::A(A([10, 0, 0, 1].into()))));
    let bytes = answer.to_vec().unwrap();
    assert_eq!(Class::of(&bytes), Class::Records);
    let slipped = Message::from_vec(&emptied(&bytes).unwrap()).unwrap();
    answer.answers.clear();
    answer.metadata.truncation = true;
    assert_eq!(slipped, answer);
    assert!(emptied(b"no message").is_none());
}
