//! Response rate limiting over UDP, against amplification attacks with forged source addresses. Off
//! by default. Answers over HTTPS are counted too; beyond the limit they are rejected.
//!
//! Answers are counted by source network (/24 or /56) and [`Class`], so that a flood of queries for
//! missing names does not affect good answers. Each pair has a token bucket with the answers of one
//! second. Beyond it most answers are dropped, and every n-th is sent empty with the TC flag, so
//! that real clients retry over TCP.
//!
//! The table has a fixed size and is sharded; a decision locks one shard and allocates nothing. If
//! the table is too small, the oldest bucket of a row is evicted: the limit is then too lenient,
//! never too strict.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::packet::{self, code};

/// Independently locked parts of the table.
const SHARDS: usize = 64;
/// Buckets of a row.
const BUCKETS_PER_ROW: usize = 4;
/// Rows of a shard; 64 shards of 64 rows of 4 buckets are 16,384 buckets.
const ROWS_PER_SHARD: usize = 64;
/// The cost of one answer in a bucket.
const ANSWER_COST: u64 = 1_000;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Answers per second for each network and class, more than 0.
    pub rate: u32,
    /// Every `slip`-th answer beyond the limit is sent [`emptied`]: 1 for all, 0 for none.
    pub slip: u8,
}

impl Settings {
    /// `rate` answers per second; every second one beyond the limit is sent [`emptied`].
    pub fn per_second(rate: u32) -> Self {
        Self { rate, slip: 2 }
    }
}

/// Classes of answers with separate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Answers with records.
    Records,
    /// The name has no records of that type.
    NoData,
    /// The name does not exist.
    NoName,
    /// Everything else.
    Error,
}

impl Class {
    /// The class of an answer.
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
pub enum Action {
    /// Send it.
    Send,
    /// Send it [`emptied`].
    Slip,
    /// Do not send it.
    Drop,
}

/// The token buckets.
#[derive(Debug)]
pub struct Limiter {
    settings: Settings,
    /// Random, so that an attacker cannot target a bucket.
    hasher: RandomState,
    start: Instant,
    shards: Box<[Mutex<[[Bucket; BUCKETS_PER_ROW]; ROWS_PER_SHARD]>]>,
}

/// The token bucket of one network and class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// The hash of network and class; 0 if free.
    key: u64,
    /// The tokens, in thousandths of an answer.
    tokens: u32,
    /// The time at which `tokens` was computed, in milliseconds after the start.
    updated_at: u64,
    /// Answers beyond the limit, modulo `slip`.
    slipped: u8,
}

impl Limiter {
    /// A limiter with an empty table.
    pub fn new(settings: Settings) -> Self {
        let shard = || Mutex::new([[Bucket::default(); BUCKETS_PER_ROW]; ROWS_PER_SHARD]);
        Self {
            settings,
            hasher: RandomState::new(),
            start: Instant::now(),
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
        }
    }

    /// Counts an answer that is about to be sent.
    pub fn check(&self, client: IpAddr, class: Class) -> Action {
        self.check_at(client, class, self.start.elapsed())
    }

    /// [`Self::check`] at a time after the start.
    fn check_at(&self, client: IpAddr, class: Class, now: Duration) -> Action {
        let now = now.as_millis() as u64;
        // 0 marks a free bucket.
        let key = self.hasher.hash_one((network(client), class)) | 1;
        let shard = (key >> 32) as usize % SHARDS;
        let row = (key >> 40) as usize % ROWS_PER_SHARD;
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let row = &mut shard[row];
        let index = row.iter().position(|bucket| bucket.key == key);
        let index = index.unwrap_or_else(|| {
            let oldest = (0..BUCKETS_PER_ROW)
                .min_by_key(|index| row[*index].updated_at)
                .unwrap_or(0);
            row[oldest] = Bucket::full(key, self.settings, now);
            oldest
        });
        row[index].take(self.settings, now)
    }
}

impl Bucket {
    fn full(key: u64, settings: Settings, now: u64) -> Self {
        Self {
            key,
            tokens: capacity(settings),
            updated_at: now,
            slipped: 0,
        }
    }

    /// Takes the tokens of one answer, if the bucket has enough.
    fn take(&mut self, settings: Settings, now: u64) -> Action {
        // `rate` answers per second are `rate` thousandths of an answer per millisecond.
        let filled = now
            .saturating_sub(self.updated_at)
            .saturating_mul(settings.rate.into());
        let tokens = u64::from(self.tokens)
            .saturating_add(filled)
            .min(capacity(settings).into());
        // Threads may lock the shard in another order than they read the clock.
        self.updated_at = self.updated_at.max(now);
        let Some(remaining) = tokens.checked_sub(ANSWER_COST) else {
            self.tokens = tokens as u32;
            self.slipped = self.slipped.checked_add(1).unwrap_or(0);
            if settings.slip > 0 && self.slipped >= settings.slip {
                self.slipped = 0;
                return Action::Slip;
            }
            return Action::Drop;
        };
        self.tokens = remaining as u32;
        Action::Send
    }
}

/// The capacity of a bucket: the answers of one second, at least one, in thousandths.
fn capacity(settings: Settings) -> u32 {
    settings.rate.max(1).saturating_mul(ANSWER_COST as u32)
}

/// The network in which an address is counted: a client usually controls all of its addresses.
fn network(client: IpAddr) -> (bool, u64) {
    match client.to_canonical() {
        IpAddr::V4(client) => (false, u64::from(u32::from(client) >> 8)),
        IpAddr::V6(client) => (true, (u128::from(client) >> 72) as u64),
    }
}

/// The answer without records and with the TC flag, for [`Action::Slip`]; none if `answer` is
/// invalid.
pub fn emptied(answer: &[u8]) -> Option<Vec<u8>> {
    packet::emptied(answer)
}

#[cfg(test)]
mod tests;
