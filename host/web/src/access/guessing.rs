//! Slows down the guessing of passwords.
//!
//! After [`FREE_FAILURES`] wrong credentials from an address, each further answer to wrong credentials
//! is delayed, by 100 ms, 200 ms and so on up to 10 s. [`MEMORY`] after the last one the address is
//! forgotten. Addresses of IPv6 are counted by /64. The surrounding network (/24, /48) is counted too,
//! with more free failures, so that a client gains little by changing its address.
//!
//! Right credentials are compared first and answered immediately, whatever else comes from the
//! address: behind a load balancer or a NAT, an attacker and the users have the same one, and a lockout
//! as that of fail2ban would turn guessing into a denial of service. Vault locks the user instead, which
//! has the same effect with our single users.
//!
//! A delay alone does not slow down a client that guesses on many connections and gives each one up
//! when no answer comes immediately. Therefore a failure counts when it is detected, and its delay
//! passes in the table whether or not the client waits. An address with more than [`MAX_PENDING`] such
//! delays gets 429 and its credentials are not compared any more, as with `MaxStartups` of sshd: it
//! makes [`MAX_PENDING`] guesses in 10 s at most. This does not apply to addresses that had right
//! credentials in the last day, from which users would be locked out; from these an attacker can guess
//! in parallel, and the load balancer in front has to limit him.
//!
//! What waits is bounded: [`MAX_WAITING_OF_ADDRESS`] and [`MAX_WAITING`] answers, further ones are 429
//! immediately; and [`MAX_ENTRIES`] addresses, of which the one that was quiet longest is forgotten.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use tokio::sync::Semaphore;

use crate::port_metrics::PORT_METRICS;
use crate::throttle::Throttle;
use crate::{ApiError, Network};

/// Wrong credentials of an address that are answered without a delay.
const FREE_FAILURES: u32 = 5;
/// The same for its network.
const FREE_FAILURES_OF_NETWORK: u32 = 40;
/// The first delay; each failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// How long failures count after the last one.
const MEMORY: Duration = Duration::from_mins(10);
/// How long an address counts as one of users after the last right credentials.
const SUCCESS_MEMORY: Duration = Duration::from_hours(24);
/// Delays of an address that have not passed; see above.
const MAX_PENDING: usize = 64;
/// Answers to an address that wait for their delay.
const MAX_WAITING_OF_ADDRESS: usize = 8;
/// Answers of a port that wait for their delay.
const MAX_WAITING: usize = 256;
/// The maximum number of entries in each table.
const MAX_ENTRIES: usize = 4096;

/// What failures are counted for: an address of IPv4, or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(IpAddr),
    Network(Network),
}

impl Key {
    /// The key of an address, and that of its surroundings.
    fn both_of(client: IpAddr) -> [(Self, u32); 2] {
        let client = client.to_canonical();
        let (own, around) = if client.is_ipv4() {
            (Self::Address(client), Network::of(client))
        } else {
            (Self::Network(Network::of(client)), Network::site_of(client))
        };
        [
            (own, FREE_FAILURES),
            (Self::Network(around), FREE_FAILURES_OF_NETWORK),
        ]
    }

    fn of(client: IpAddr) -> Self {
        let [(own, _), _] = Self::both_of(client);
        own
    }
}

/// The failures of an address or a network.
#[derive(Debug, Default)]
struct Entry {
    failures: u32,
    /// The time of the last failure.
    last: Duration,
    /// The ends of delays.
    pending: VecDeque<Duration>,
}

/// Counts failures: pure, times are since any start.
#[derive(Debug, Default)]
struct Failures {
    entries: HashMap<Key, Entry>,
    /// When each address had right credentials last.
    successes: HashMap<Key, Duration>,
}

impl Failures {
    /// Counts wrong credentials, and returns the delay of the answer.
    fn failed(&mut self, client: IpAddr, now: Duration) -> Duration {
        let mut delay = Duration::ZERO;
        for (key, free) in Key::both_of(client) {
            make_room(&mut self.entries, &key, |entry| entry.last);
            let entry = self.entries.entry(key).or_default();
            if now.saturating_sub(entry.last) > MEMORY {
                *entry = Entry::default();
            }
            entry.failures = entry.failures.saturating_add(1);
            entry.last = now;
            if entry.failures > free {
                let doublings = (entry.failures - free - 1).min(16);
                delay = delay.max((FIRST_DELAY * (1 << doublings)).min(MAX_DELAY));
            }
        }
        if !delay.is_zero()
            && let Some(entry) = self.entries.get_mut(&Key::of(client))
            && entry.pending.len() <= MAX_PENDING
        {
            entry.pending.push_back(now + delay);
        }
        delay
    }

    /// Records right credentials. They do not end the delays of the address, because an attacker may
    /// have the same one.
    fn succeeded(&mut self, client: IpAddr, now: Duration) {
        let key = Key::of(client);
        make_room(&mut self.successes, &key, |last| *last);
        self.successes.insert(key, now);
    }

    /// Whether credentials from this address are compared; otherwise how long not.
    fn may_compare(&mut self, client: IpAddr, now: Duration) -> Result<(), Duration> {
        let key = Key::of(client);
        let Some(entry) = self.entries.get_mut(&key) else {
            return Ok(());
        };
        entry.pending.retain(|end| *end > now);
        if entry.pending.len() < MAX_PENDING {
            return Ok(());
        }
        let success = self.successes.get(&key);
        if success.is_some_and(|last| now.saturating_sub(*last) < SUCCESS_MEMORY) {
            return Ok(());
        }
        let first = entry.pending.iter().min();
        Err(first.map_or(Duration::ZERO, |end| end.saturating_sub(now)))
    }
}

/// Removes the oldest entry of a full table that does not have this key.
fn make_room<V>(table: &mut HashMap<Key, V>, key: &Key, last: impl Fn(&V) -> Duration) {
    if table.len() < MAX_ENTRIES || table.contains_key(key) {
        return;
    }
    let oldest = table
        .iter()
        .min_by_key(|(_, value)| last(value))
        .map(|(key, _)| *key);
    if let Some(oldest) = oldest {
        table.remove(&oldest);
    }
}

/// The guesses at a port.
#[derive(Debug)]
pub(super) struct Guesses {
    port: &'static str,
    start: Instant,
    failures: Mutex<Failures>,
    waiting: Arc<Semaphore>,
    waiting_of_address: Mutex<HashMap<Key, usize>>,
    log: Throttle,
}

impl Guesses {
    pub(super) fn new(port: &'static str) -> Self {
        Self {
            port,
            start: Instant::now(),
            failures: Mutex::default(),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            waiting_of_address: Mutex::default(),
            log: Throttle::once(),
        }
    }

    /// The rejection of a request whose credentials must not be compared.
    pub(super) fn rejection(&self, client: IpAddr) -> Option<Response> {
        let wait = self.failures().may_compare(client, self.start.elapsed()).err()?;
        PORT_METRICS.wrong_credentials(self.port, "rejected");
        Some(too_many(wait))
    }

    /// Records a request with right credentials.
    pub(super) fn succeeded(&self, client: IpAddr) {
        self.failures().succeeded(client, self.start.elapsed());
    }

    /// Answers a request with wrong credentials after the delay of its address.
    pub(super) async fn failed(&self, client: IpAddr, response: Response) -> Response {
        let delay = self.failures().failed(client, self.start.elapsed());
        if delay.is_zero() {
            PORT_METRICS.wrong_credentials(self.port, "answered");
            return response;
        }
        if let Some(earlier) = self.log.pass() {
            tracing::warn!(
                port = self.port,
                peer = %client.to_canonical(),
                ?delay,
                earlier,
                "many requests with wrong credentials: their answers are delayed"
            );
        }
        let Some(_waiting) = self.wait(Key::of(client)) else {
            PORT_METRICS.wrong_credentials(self.port, "rejected");
            return too_many(delay);
        };
        PORT_METRICS.wrong_credentials(self.port, "delayed");
        tokio::time::sleep(delay).await;
        response
    }

    /// A place to wait, unless too many answers wait already.
    fn wait(&self, key: Key) -> Option<Waiting<'_>> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned().ok()?;
        let mut waiting = self.waiting_of_address();
        let count = waiting.entry(key).or_default();
        if *count >= MAX_WAITING_OF_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Waiting {
            guesses: self,
            key,
            _permit: permit,
        })
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting_of_address(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.waiting_of_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that waits for its delay.
struct Waiting<'a> {
    guesses: &'a Guesses,
    key: Key,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.guesses.waiting_of_address();
        if let Some(count) = waiting.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

/// 429, after which the connection is closed.
fn too_many(wait: Duration) -> Response {
    let text = "Too many requests with wrong credentials came from this address. Try again later.";
    let seconds = wait.as_secs().max(1);
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, text)
        .header(header::RETRY_AFTER, HeaderValue::from(seconds))
        .into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delay_doubles_after_the_free_failures_and_is_forgotten() {
        let mut failures = Failures::default();
        let client = ip("192.0.2.1");
        let mut delays = |count: usize, client, now| -> Vec<u64> {
            let delays = (0..count).map(|_| failures.failed(client, now).as_millis() as u64);
            delays.collect()
        };
        let expected = [
            0, 0, 0, 0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000,
        ];
        assert_eq!(delays(14, client, seconds(0)), expected);
        assert_eq!(delays(1, client, seconds(600)), [10_000]);
        assert_eq!(delays(1, client, seconds(1201)), [0]);
        // Another address of the network has its own free failures until those of the network are used
        // up.
        assert_eq!(delays(6, ip("192.0.2.2"), seconds(1201)), [0, 0, 0, 0, 0, 100]);
        for last in 3..9 {
            delays(6, IpAddr::from([192, 0, 2, last]), seconds(1201));
        }
        assert_ne!(delays(1, ip("192.0.2.99"), seconds(1201)), [0]);
        assert_eq!(delays(1, ip("192.0.3.99"), seconds(1201)), [0]);
        // Addresses of one /64 are the same.
        for last in 0..5 {
            assert_eq!(delays(1, ip(&format!("2001:db8::{last}")), seconds(0)), [0]);
        }
        assert_eq!(delays(1, ip("2001:db8::99"), seconds(0)), [100]);
    }

    #[test]
    fn parallel_guesses_are_not_compared_unless_the_address_had_right_credentials() {
        let (guesser, user) = (ip("192.0.2.1"), ip("198.51.100.1"));
        let mut failures = Failures::default();
        failures.succeeded(user, seconds(0));
        for client in [guesser, user] {
            // One failure after the other, with the delay in between, is always compared.
            let mut now = seconds(1);
            for _ in 0..100 {
                assert_eq!(failures.may_compare(client, now), Ok(()));
                now += failures.failed(client, now);
            }
            let mut compared = 0;
            for _ in 0..1000 {
                if failures.may_compare(client, now).is_ok() {
                    failures.failed(client, now);
                    compared += 1;
                }
            }
            let expected = if client == guesser { MAX_PENDING } else { 1000 };
            assert_eq!(compared, expected, "{client}");
            assert_eq!(failures.may_compare(client, now).is_ok(), client == user);
            assert_eq!(failures.may_compare(client, now + seconds(11)), Ok(()));
        }
    }

    #[test]
    fn tables_are_bounded_and_the_quietest_address_is_forgotten() {
        let mut failures = Failures::default();
        for number in 0..5000_u32 {
            let client = IpAddr::from((number << 16).to_be_bytes());
            failures.failed(client, seconds(1) * number.min(1000));
            failures.succeeded(client, seconds(1) * number.min(1000));
        }
        assert_eq!(failures.entries.len(), MAX_ENTRIES);
        assert_eq!(failures.successes.len(), MAX_ENTRIES);
        assert!(!failures.entries.contains_key(&Key::of(ip("0.1.0.0"))));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_wait_are_bounded() {
        let guesses = Arc::new(Guesses::new("test"));
        let client = ip("192.0.2.1");
        let answer = || StatusCode::UNAUTHORIZED.into_response();
        for _ in 0..FREE_FAILURES {
            assert_eq!(guesses.failed(client, answer()).await.status(), 401);
        }
        let attempts = (0..20).map(|_| guesses.failed(client, answer()));
        let mut statuses: Vec<u16> = futures::future::join_all(attempts)
            .await
            .into_iter()
            .map(|response| response.status().as_u16())
            .collect();
        statuses.sort_unstable();
        assert_eq!(
            statuses,
            [vec![401; MAX_WAITING_OF_ADDRESS], vec![429; 12]].concat()
        );
        assert!(guesses.waiting_of_address().is_empty());
    }
}
