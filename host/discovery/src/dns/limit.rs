//! Limits on how much one network is answered over UDP, where anybody can ask in another's name: without them a server is
//! a means to flood third parties. Off unless configured.
//!
//! Answers are counted by source network (/24 or /56) and [`Class`], so that a flood of questions for missing names costs no
//! one his good answers. Each of these has a bucket that holds the answers of one second and fills evenly. Of the answers
//! for which there is nothing in it, most are not sent, and every n-th is sent without its records, marked as cut: who really asks
//! then asks over TCP, where nobody can pretend to be another.
//!
//! The table has a fixed size and is taken apart in shards; a decision looks at one row of one shard, sets nothing aside and
//! waits for no other shard. Where the table is too small for all that ask, those that asked longest ago are forgotten: it is
//! then too kind, never too harsh.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::packet::{self, code};

/// Parts of the table that do not wait for each other.
const SHARDS: usize = 64;
/// Places for a bucket in a row.
const WAYS: usize = 4;
/// Rows of a shard; with the rest 16,384 buckets.
const ROWS: usize = 64;
/// What one answer takes out of a bucket.
const ONE: u64 = 1_000;

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Answers in a second for each network and class, more than 0.
    pub rate: u32,
    /// Of answers beyond that, every this many-th is sent as one that was cut: 1 all of them, 0 none.
    pub slip: u8,
}

impl Settings {
    /// This many answers in a second, and every second one beyond that cut.
    pub fn per_second(rate: u32) -> Self {
        Self { rate, slip: 2 }
    }
}

/// Kinds of answers that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// There is something.
    Records,
    /// There is nothing of that type.
    NoData,
    /// There is no such name.
    NoName,
    /// Everything else.
    Error,
}

impl Class {
    /// What an answer is.
    pub fn of(answer: &[u8]) -> Self {
        let code = answer.get(3).map(|flags| flags & 0xf);
        let answers = answer.get(6..8);
        match (code, answers) {
            (Some(code::NOERROR), Some([0, 0])) => Self::NoData,
            (Some(code::NOERROR), Some(_)) => Self::Records,
            (Some(code::NXDOMAIN), _) => Self::NoName,
            _ => Self::Error,
        }
    }
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Send,
    /// Send what [`emptied`] leaves of it.
    Slip,
    /// Do not send it.
    Drop,
}

/// Answers that were sent of late.
#[derive(Debug)]
pub struct Limiter {
    settings: Settings,
    /// Not to be foreseen, so that nobody can aim at another's bucket.
    hasher: RandomState,
    start: Instant,
    shards: Box<[Mutex<[[Bucket; WAYS]; ROWS]>]>,
}

/// The answers that one network and class still has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// Whose it is; 0 nobody's.
    key: u64,
    /// In thousandths of an answer.
    left: u32,
    /// When that was so, in milliseconds.
    at: u64,
    /// Answers too many, modulo `slip`.
    slipped: u8,
}

impl Limiter {
    /// Nothing has been sent yet.
    pub fn new(settings: Settings) -> Self {
        let shard = || Mutex::new([[Bucket::default(); WAYS]; ROWS]);
        Self {
            settings,
            hasher: RandomState::new(),
            start: Instant::now(),
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
        }
    }

    /// Counts an answer that is about to be sent over UDP.
    pub fn check(&self, client: IpAddr, class: Class) -> Verdict {
        self.check_at(client, class, self.start.elapsed())
    }

    /// [`Self::check`] at a time after the start.
    fn check_at(&self, client: IpAddr, class: Class, now: Duration) -> Verdict {
        let now = now.as_millis() as u64;
        // 0 marks a free place.
        let key = self.hasher.hash_one((network(client), class)) | 1;
        let shard = (key >> 32) as usize % SHARDS;
        let row = (key >> 40) as usize % ROWS;
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let row = &mut shard[row];
        let place = row.iter().position(|bucket| bucket.key == key);
        let place = place.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|place| row[*place].at).unwrap_or(0);
            row[oldest] = Bucket::full(key, self.settings, now);
            oldest
        });
        row[place].take(self.settings, now)
    }
}

impl Bucket {
    fn full(key: u64, settings: Settings, now: u64) -> Self {
        Self {
            key,
            left: capacity(settings),
            at: now,
            slipped: 0,
        }
    }

    /// Takes an answer out, if there is one.
    fn take(&mut self, settings: Settings, now: u64) -> Verdict {
        // An answer is a thousand, and a second a thousand milliseconds.
        let filled = now.saturating_sub(self.at).saturating_mul(settings.rate.into());
        let left = u64::from(self.left)
            .saturating_add(filled)
            .min(capacity(settings).into());
        // Threads may look at the clock in one order and come here in another.
        self.at = self.at.max(now);
        let Some(rest) = left.checked_sub(ONE) else {
            self.left = left as u32;
            self.slipped = self.slipped.checked_add(1).unwrap_or(0);
            if settings.slip > 0 && self.slipped >= settings.slip {
                self.slipped = 0;
                return Verdict::Slip;
            }
            return Verdict::Drop;
        };
        self.left = rest as u32;
        Verdict::Send
    }
}

/// The answers of a second, and at least one.
fn capacity(settings: Settings) -> u32 {
    settings.rate.max(1).saturating_mul(ONE as u32)
}

/// The network that an address counts as part of: who is given a network can ask from all of it.
fn network(client: IpAddr) -> (bool, u64) {
    match client.to_canonical() {
        IpAddr::V4(client) => (false, u64::from(u32::from(client) >> 8)),
        IpAddr::V6(client) => (true, (u128::from(client) >> 72) as u64),
    }
}

/// What is sent of an answer with [`Verdict::Slip`]: no records, and the mark that says so. None of what is no answer.
pub fn emptied(answer: &[u8]) -> Option<Vec<u8>> {
    packet::emptied(answer)
}

#[cfg(test)]
mod tests;
