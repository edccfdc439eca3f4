//! Histories of operations by several daemons while servers fail, and what must hold of them.
//!
//! Every commit puts a value that no other one puts, so a version tells which commit it is of. The
//! versions are the order of the commits, with which the times of all calls are compared: that is
//! cheaper than a search for an order, and finds the same.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use transom_testkit::eventually;

use crate::{Batch, Error, Expect, Lease, Store};

const LEASE: &str = "history/leader";
const TTL: Duration = Duration::from_secs(2);
const REGISTERS: u32 = 5;
/// Some batches are so large that they are staged where a store does that.
const LARGE: usize = 1_500_000;

/// An operation with the times of its call and its answer.
#[derive(Clone, Debug)]
struct Operation {
    began: Instant,
    ended: Instant,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A commit to a register, under a fencing number, with the condition on the version.
    Write {
        id: u64,
        register: u32,
        fencing: u64,
        expected: Option<u64>,
        outcome: Outcome,
    },
    /// The commit that a register had, with its version.
    Read {
        register: u32,
        found: Option<(u64, u64)>,
    },
    /// A granted lease, and when it ended for its holder.
    Held {
        holder: String,
        fencing: u64,
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Version(u64),
    Rejected,
    /// It may be applied, now or later.
    Unknown,
}

/// What daemons do until they are stopped.
#[derive(Debug, Default)]
pub(crate) struct History {
    operations: Mutex<Vec<Operation>>,
    next: AtomicU64,
    is_over: AtomicBool,
}

fn register(number: u32) -> String {
    format!("history/registers/{number}")
}

fn entry_of(id: u64) -> String {
    format!("history/writes/{id}")
}

fn id_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Runs a daemon with each of the stores while `fail` lets something fail, several times, and checks
/// what they did. `HISTORY_SEED` and `HISTORY_FAULTS` repeat a run and let it take longer. `observer` sees
/// the present state at the end. A store that may lose acknowledged writes must still not grant a lease
/// twice.
pub(crate) async fn run(
    stores: Vec<Arc<dyn Store>>,
    observer: &Arc<dyn Store>,
    may_lose: bool,
    mut fail: impl AsyncFnMut(&mut StdRng) -> String,
) {
    let seed: u64 =
        std::env::var("HISTORY_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    let faults: u32 = std::env::var("HISTORY_FAULTS").map_or(3, |faults| faults.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let history = Arc::new(History::default());
    let daemons: Vec<_> = stores
        .into_iter()
        .enumerate()
        .map(|(number, store)| {
            let daemon = Arc::clone(&history).daemon(format!("daemon-{number}"), store, rng.random());
            tokio::spawn(daemon)
        })
        .collect();
    let mut done = Vec::new();
    for _ in 0..faults {
        done.push(fail(&mut rng).await);
        println!("seed {seed}: {done:?}");
        // Until something is written again, and some more.
        recovered(observer).await;
        let before = history.len();
        eventually("the daemons go on", || async {
            if history.len() > before + 200 {
                Ok(())
            } else {
                Err(history.len().to_string())
            }
        })
        .await;
    }
    history.stop();
    for daemon in daemons {
        daemon.await.unwrap();
    }
    recovered(observer).await;
    let mut violations = history.check(&**observer).await;
    if may_lose && !violations.is_empty() {
        println!("seed {seed}: {violations:#?}");
        violations.clear();
        one_holds_the_lease(&history.operations.lock().unwrap(), &mut violations);
    }
    let operations = history.len();
    println!("seed {seed}: {operations} operations, faults: {done:?}");
    assert!(
        violations.is_empty(),
        "seed {seed}, faults {done:?}: {violations:#?}"
    );
    assert!(operations > 500, "seed {seed}: {operations} operations");
}

/// Waits until a store answers again.
pub(crate) async fn recovered(store: &Arc<dyn Store>) {
    eventually("the store answers", || async {
        let put = store.put("recovered", "x".into(), Expect::Any).await;
        put.map(drop).map_err(|error| transom_common::error_chain(&error))
    })
    .await;
}

impl History {
    /// Runs a daemon: it campaigns for the lease and writes under it, reads, and pauses.
    pub(crate) async fn daemon(self: Arc<Self>, name: String, store: Arc<dyn Store>, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut lease: Option<Lease> = None;
        let mut known: BTreeMap<u32, u64> = BTreeMap::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            lease = self.lead(&*store, &name, lease, began).await;
            let number = rng.random_range(0..REGISTERS);
            match &lease {
                Some(held) if rng.random_bool(0.7) => {
                    let expected = rng
                        .random_bool(0.5)
                        .then(|| known.get(&number).copied())
                        .flatten();
                    let version = self
                        .write(&*store, held, number, expected, rng.random_ratio(1, 100))
                        .await;
                    known.extend(version.map(|version| (number, version)));
                }
                _ => {
                    if let Ok(found) = store.get(&register(number)).await {
                        let found = found.map(|entry| (id_of(&entry.value), entry.version));
                        known.extend(found.map(|(_, version)| (number, version)));
                        self.add(
                            began,
                            What::Read {
                                register: number,
                                found,
                            },
                        );
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..10))).await;
        }
    }

    async fn lead(
        &self,
        store: &dyn Store,
        name: &str,
        lease: Option<Lease>,
        began: Instant,
    ) -> Option<Lease> {
        let held = match lease {
            Some(lease) if lease.remaining() > TTL / 2 => return Some(lease),
            Some(lease) => match store.renew(&lease).await {
                Ok(renewed) => renewed,
                Err(Error::Unavailable { .. }) if !lease.remaining().is_zero() => return Some(lease),
                Err(_) => return None,
            },
            None => store.acquire(LEASE, name, TTL).await.ok()?,
        };
        let until = held.expires.into_std();
        let fencing = held.fencing;
        let holder = name.to_owned();
        self.add(
            began,
            What::Held {
                holder,
                fencing,
                until,
            },
        );
        Some(held)
    }

    async fn write(
        &self,
        store: &dyn Store,
        held: &Lease,
        number: u32,
        expected: Option<u64>,
        is_large: bool,
    ) -> Option<u64> {
        let (id, began) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        let expect = expected.map_or(Expect::Any, Expect::Version);
        let mut batch = Batch::new()
            .put(register(number), id.to_string(), expect)
            .put(entry_of(id), id.to_string(), Expect::Absent)
            .fenced(LEASE, held.fencing);
        if is_large {
            // Digits that a compression does not shorten much.
            let mut rng = StdRng::seed_from_u64(id);
            let filling: Vec<u8> = (0..LARGE).map(|_| rng.random_range(b' '..b'~')).collect();
            batch = batch.put("history/large", filling, Expect::Any);
        }
        let outcome = match store.commit(batch).await {
            Ok(versions) => Outcome::Version(versions[0]),
            Err(Error::Conflict { .. } | Error::Fenced { .. }) => Outcome::Rejected,
            Err(_) => Outcome::Unknown,
        };
        self.add(
            began,
            What::Write {
                id,
                register: number,
                fencing: held.fencing,
                expected,
                outcome,
            },
        );
        match outcome {
            Outcome::Version(version) => Some(version),
            _ => None,
        }
    }

    fn add(&self, began: Instant, what: What) {
        let ended = Instant::now();
        let operation = Operation { began, ended, what };
        self.operations.lock().unwrap().push(operation);
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.lock().unwrap().len()
    }

    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Checks what must hold, with what the store has at the end. Returns the violations.
    pub(crate) async fn check(&self, store: &dyn Store) -> Vec<String> {
        let mut stored = BTreeMap::new();
        for entry in store.scan("history/writes/").await.unwrap() {
            stored.insert(id_of(&entry.value), entry.version);
        }
        check(&self.operations.lock().unwrap(), &stored)
    }
}

/// `stored`: the versions of the entries of all commits that were applied.
fn check(operations: &[Operation], stored: &BTreeMap<u64, u64>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut writes = Vec::new();
    for operation in operations {
        let What::Write {
            id,
            register,
            fencing,
            expected,
            outcome,
        } = operation.what
        else {
            continue;
        };
        // The entry of a commit is put right after the register.
        let version = stored.get(&id).map(|version| version - 1);
        match (outcome, version) {
            (Outcome::Version(version), None) => {
                violations.push(format!("the acknowledged write {id}, version {version}, is lost"));
            }
            (Outcome::Version(answered), Some(version)) if answered != version => {
                violations.push(format!(
                    "the write {id} has version {version}, answered was {answered}"
                ));
            }
            (Outcome::Rejected, Some(_)) => violations.push(format!("the rejected write {id} is applied")),
            _ => {}
        }
        if let Some(version) = version {
            let is_known = matches!(outcome, Outcome::Version(_));
            writes.push((version, id, register, fencing, expected, operation, is_known));
        }
    }
    writes.sort_by_key(|write| write.0);
    let versions: BTreeSet<u64> = writes.iter().map(|write| write.0).collect();
    if versions.len() != writes.len() {
        violations.push("a version was assigned twice".to_owned());
    }
    in_order(&writes, &mut violations);
    reads_are_of_the_latest(operations, &writes, &mut violations);
    one_holds_the_lease(operations, &mut violations);
    violations
}

/// Version, id, register, fencing number, expected version, the call, and whether its answer arrived.
type Write<'o> = (u64, u64, u32, u64, Option<u64>, &'o Operation, bool);

fn in_order(writes: &[Write<'_>], violations: &mut Vec<String>) {
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut fencing, mut latest_began) = (0, None::<(Instant, u64)>);
    for (version, id, register, number, expected, operation, is_known) in writes {
        if *number < fencing {
            violations.push(format!(
                "the write {id} has the fencing number {number} after {fencing}"
            ));
        }
        fencing = fencing.max(*number);
        let before = last.insert(*register, *version);
        if expected.is_some() && before != *expected {
            violations.push(format!(
                "the write {id} expected version {expected:?}, and {before:?} was there"
            ));
        }
        // Every earlier version belongs to a call that began before the end of this one.
        if let Some((began, other)) = latest_began.filter(|(began, _)| *is_known && *began > operation.ended)
        {
            violations.push(format!(
                "the write {other} began {:?} after the end of {id}, and has a smaller version",
                began - operation.ended
            ));
        }
        if latest_began.is_none_or(|(began, _)| operation.began > began) {
            latest_began = Some((operation.began, *id));
        }
    }
}

fn reads_are_of_the_latest(operations: &[Operation], writes: &[Write<'_>], violations: &mut Vec<String>) {
    for register in 0..REGISTERS {
        let of: BTreeMap<u64, &Write<'_>> = writes
            .iter()
            .filter(|write| write.2 == register)
            .map(|write| (write.0, write))
            .collect();
        // What every later read must have at least, by the time from which on.
        let mut known: Vec<(Instant, u64)> = of
            .values()
            .filter(|write| write.6)
            .map(|write| (write.5.ended, write.0))
            .collect();
        let mut reads: Vec<(&Operation, u64)> = Vec::new();
        for operation in operations {
            let What::Read {
                register: read,
                found,
            } = operation.what
            else {
                continue;
            };
            if read != register {
                continue;
            }
            let version = found.map_or(0, |(_, version)| version);
            match found.map(|(id, version)| (id, of.get(&version))) {
                Some((id, Some(write))) if write.1 == id && write.5.began <= operation.ended => {}
                None => {}
                Some((id, _)) => violations.push(format!(
                    "a read found {id}, version {version}, which was not written then"
                )),
            }
            known.push((operation.ended, version));
            reads.push((operation, version));
        }
        known.sort();
        let mut least = 0;
        let known: Vec<(Instant, u64)> = known
            .into_iter()
            .map(|(at, version)| {
                least = least.max(version);
                (at, least)
            })
            .collect();
        for (operation, version) in reads {
            let before = known.partition_point(|(at, _)| *at < operation.began);
            let least = before.checked_sub(1).map_or(0, |last| known[last].1);
            if version < least {
                violations.push(format!(
                    "a read of {register} found version {version}, and {least} was there before"
                ));
            }
        }
    }
}

fn one_holds_the_lease(operations: &[Operation], violations: &mut Vec<String>) {
    // By number: who held it, since when, and until when.
    let mut held: BTreeMap<u64, (&str, Instant, Instant)> = BTreeMap::new();
    for operation in operations {
        if let What::Held {
            holder,
            fencing,
            until,
        } = &operation.what
        {
            let entry = held.entry(*fencing).or_insert((holder, operation.ended, *until));
            *entry = (holder, entry.1.min(operation.ended), entry.2.max(*until));
        }
    }
    let held: Vec<_> = held.into_iter().collect();
    for pair in held.windows(2) {
        let [(first, (former, _, until)), (second, (holder, from, _))] = pair else {
            continue;
        };
        if from < until && former != holder {
            violations.push(format!(
                "the lease was granted as number {second} {:?} before the end of number {first}",
                *until - *from
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations at seconds from a start.
    struct Script(Instant, Vec<Operation>);

    impl Script {
        fn add(&mut self, began: f64, ended: f64, what: What) {
            let at = |seconds| self.0 + Duration::from_secs_f64(seconds);
            self.1.push(Operation {
                began: at(began),
                ended: at(ended),
                what,
            });
        }

        fn write(&mut self, (began, ended): (f64, f64), id: u64, fencing: u64, outcome: Outcome) {
            self.add(
                began,
                ended,
                What::Write {
                    id,
                    register: 0,
                    fencing,
                    expected: None,
                    outcome,
                },
            );
        }
    }

    fn violated(script: impl FnOnce(&mut Script), stored: &[(u64, u64)]) -> String {
        let mut operations = Script(Instant::now(), Vec::new());
        script(&mut operations);
        check(&operations.1, &stored.iter().copied().collect()).join("; ")
    }

    #[test]
    fn violations_are_found() {
        use Outcome::{Rejected, Unknown, Version};
        let read = |version| What::Read {
            register: 0,
            found: Some((1, version)),
        };
        let held = |script: &Script, holder: &str, fencing, until| What::Held {
            holder: holder.to_owned(),
            fencing,
            until: script.0 + Duration::from_secs_f64(until),
        };
        let good = |script: &mut Script| {
            script.write((0.0, 1.0), 1, 1, Version(10));
            script.write((0.5, 1.5), 2, 1, Unknown);
            script.write((2.0, 3.0), 3, 1, Rejected);
            script.add(1.1, 1.2, read(10));
        };
        assert_eq!(violated(good, &[(1, 11)]), "");
        assert_eq!(violated(good, &[(1, 11), (2, 14)]), "");
        assert!(violated(good, &[]).contains("is lost"));
        assert!(violated(good, &[(1, 12)]).contains("answered was 10"));
        assert!(violated(good, &[(1, 11), (3, 13)]).contains("rejected write 3 is applied"));
        let late = |script: &mut Script| {
            script.write((0.0, 1.0), 1, 1, Version(20));
            script.write((2.0, 3.0), 2, 1, Version(10));
        };
        assert!(violated(late, &[(1, 21), (2, 11)]).contains("began 1s after the end"));
        let fenced = |script: &mut Script| {
            script.write((0.0, 1.0), 1, 2, Version(10));
            script.write((0.0, 1.0), 2, 1, Version(20));
        };
        assert!(violated(fenced, &[(1, 11), (2, 21)]).contains("number 1 after 2"));
        let stale = |script: &mut Script| {
            script.write((0.0, 1.0), 1, 1, Version(10));
            script.write((0.0, 1.0), 2, 1, Version(20));
            script.add(1.1, 1.2, read(10));
        };
        assert!(violated(stale, &[(1, 11), (2, 21)]).contains("version 10, and 20 was there"));
        let early = |script: &mut Script| {
            let (first, second) = (held(script, "a", 1, 5.0), held(script, "b", 2, 9.0));
            script.add(0.0, 1.0, first);
            script.add(3.0, 4.0, second);
        };
        let same = |script: &mut Script| {
            let (first, second) = (held(script, "a", 1, 5.0), held(script, "a", 2, 9.0));
            script.add(0.0, 1.0, first);
            script.add(3.0, 4.0, second);
        };
        assert_eq!(violated(same, &[]), "");
        assert!(violated(early, &[]).contains("number 2 1s before the end of number 1"));
    }
}
