#![allow(clippy::unwrap_used)] // Tests fail by panicking.

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn bucket_holds_one_second_and_refills_evenly() {
    use Action::{Drop, Send, Slip};
    // (rate, slip, milliseconds and expected action of each answer)
    type Answers = &'static [(u64, Action)];
    let table: [(u32, u8, Answers); 5] = [
        (
            2,
            2,
            &[
                (0, Send),
                (0, Send),
                (0, Drop),
                (0, Slip),
                (0, Drop),
                (499, Slip),
                (500, Send),
                (999, Drop),
                (1000, Send),
            ],
        ),
        (
            1,
            1,
            &[(0, Send), (0, Slip), (999, Slip), (1000, Send), (1000, Slip)],
        ),
        (
            1,
            0,
            &[
                (0, Send),
                (0, Drop),
                (0, Drop),
                (0, Drop),
                (5000, Send),
                (5000, Drop),
            ],
        ),
        // A bucket holds the answers of one second, however long it was idle.
        (
            2,
            3,
            &[
                (0, Send),
                (3_600_000, Send),
                (3_600_000, Send),
                (3_600_000, Drop),
                (3_600_000, Drop),
                (3_600_000, Slip),
            ],
        ),
        // Threads lock the shard in another order than they read the clock.
        (1, 1, &[(1000, Send), (500, Slip), (1500, Slip), (2000, Send)]),
    ];
    for (rate, slip, answers) in table {
        let limiter = Limiter::new(Settings { rate, slip });
        for (n, (millis, verdict)) in answers.iter().enumerate() {
            let got = limiter.check_at(ip("192.0.2.1"), Class::Records, at(*millis));
            assert_eq!(
                got, *verdict,
                "answer {n} at {millis} ms of {rate}/s, slip {slip}"
            );
        }
    }
}

#[test]
fn networks_and_classes_have_separate_buckets() {
    // (client and class with an empty bucket, another client and class, whether they share the bucket)
    for (used, other, shared) in [
        (
            ("192.0.2.1", Class::Records),
            ("192.0.2.255", Class::Records),
            true,
        ),
        (
            ("192.0.2.1", Class::Records),
            ("192.0.3.1", Class::Records),
            false,
        ),
        (
            ("192.0.2.1", Class::Records),
            ("::ffff:192.0.2.9", Class::Records),
            true,
        ),
        (("192.0.2.1", Class::NoName), ("192.0.2.1", Class::Records), false),
        (("192.0.2.1", Class::NoName), ("192.0.2.1", Class::NoData), false),
        (
            ("2001:db8:0:100::1", Class::Error),
            ("2001:db8:0:1ff::2", Class::Error),
            true,
        ),
        (
            ("2001:db8:0:100::1", Class::Error),
            ("2001:db8:0:200::1", Class::Error),
            false,
        ),
        (("::", Class::Error), ("0.0.0.0", Class::Error), false),
    ] {
        let limiter = Limiter::new(Settings { rate: 1, slip: 0 });
        assert_eq!(limiter.check_at(ip(used.0), used.1, at(0)), Action::Send);
        let expected = if shared { Action::Drop } else { Action::Send };
        assert_eq!(
            limiter.check_at(ip(other.0), other.1, at(0)),
            expected,
            "{used:?} {other:?}"
        );
    }
}

#[test]
fn flood_from_many_networks_evicts_but_never_blocks_others() {
    let limiter = Limiter::new(Settings { rate: 1, slip: 0 });
    let networks = u32::try_from(SHARDS * ROWS_PER_SHARD * BUCKETS_PER_ROW * 4).unwrap();
    for network in 0..networks {
        // Each network starts with a full bucket, even if another bucket was evicted for it.
        let client = IpAddr::V4((network << 8).into());
        assert_eq!(
            limiter.check_at(client, Class::Records, at(network.into())),
            Action::Send
        );
    }
    assert_eq!(
        limiter.check_at(ip("2001:db8::1"), Class::Records, at(networks.into())),
        Action::Send
    );
    // The bucket of the most recent network was not evicted.
    let last = IpAddr::V4(((networks - 1) << 8).into());
    assert_eq!(
        limiter.check_at(last, Class::Records, at(networks.into())),
        Action::Drop
    );
}

#[test]
fn class_depends_on_code_and_answer_count() {
    let answer = |code: u8, answers: u8| [0, 7, 0x84, code, 0, 1, 0, answers, 0, 0, 0, 0];
    for (answer, class) in [
        (&answer(0, 1)[..], Class::Records),
        (&answer(0, 0), Class::NoData),
        (&answer(3, 0), Class::NoName),
        (&answer(3, 1), Class::NoName),
        (&answer(0x85, 0), Class::Error),
        (&answer(2, 0), Class::Error),
        (&[], Class::Error),
    ] {
        assert_eq!(Class::of(answer), class, "{answer:?}");
    }
}

#[test]
fn limiter_accepts_the_largest_rate() {
    let limiter = Limiter::new(Settings::per_second(u32::MAX));
    for millis in [0, 1, u64::MAX / 2] {
        let verdict = limiter.check_at(ip("192.0.2.1"), Class::Records, at(millis));
        assert_eq!(verdict, Action::Send);
    }
}
