//! Decides which calls a canary answers.
//!
//! The key of a call is what it is about: a task, an app, a query, a container. Each key has a
//! place from 0 to 99: SHA-256 of the plugin's name and the parts of the key, each followed by a
//! zero byte; then the first seven bytes as a big-endian number, modulo 100 (seven, so that a shell
//! can compute it). A canary answers the keys whose place is below `percent`. A key thus keeps its
//! version after a restart and in another daemon, and a higher percentage only adds keys.

use sha2::{Digest, Sha256};

/// The hash of a key. It allocates no memory.
pub(crate) struct KeyHash(Sha256);

impl KeyHash {
    pub(super) fn of(plugin: &str) -> KeyHash {
        let mut hash = KeyHash(Sha256::new());
        hash.part(plugin);
        hash
    }

    /// Adds a part of the key.
    pub(crate) fn part(&mut self, part: &str) {
        self.0.update(part.as_bytes());
        self.0.update([0]);
    }

    /// Adds a number, in decimal.
    pub(crate) fn number(&mut self, number: u32) {
        let mut digits = [0; 10];
        let (mut at, mut remaining) = (digits.len(), number);
        loop {
            at -= 1;
            digits[at] = b'0' + (remaining % 10) as u8;
            remaining /= 10;
            if remaining == 0 {
                break;
            }
        }
        self.0.update(&digits[at..]);
        self.0.update([0]);
    }

    /// Returns the place of the key: 0 to 99.
    pub(super) fn share(self) -> u64 {
        let digest = self.0.finalize();
        let first = digest
            .iter()
            .take(7)
            .fold(0, |number: u64, byte| (number << 8) | u64::from(*byte));
        first % 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(plugin: &str, parts: &[&str]) -> u64 {
        let mut hash = KeyHash::of(plugin);
        for part in parts {
            hash.part(part);
        }
        hash.share()
    }

    const SHARES: &[(&str, &[&str], u64)] = &[
        ("check-http", &["web.1"], 63),
        ("check-http", &["web.2"], 82),
        ("check-tcp", &["web.1"], 19),
        ("attributes", &["/shop/web"], 79),
        ("events", &["status_update_event", "", ""], 12),
        ("bootstrap", &["k8s", "agent", "12"], 70),
        ("p", &[""], 37),
    ];

    /// The values of `echo $((0x$(printf '%s\0' check-http web.1 | sha256sum | cut -c1-14) %
    /// 100))`. If a daemon computed other values, its takeover would move calls from one version to
    /// the other.
    #[test]
    fn shares_are_the_same_in_every_daemon() {
        for &(plugin, parts, expected) in SHARES {
            assert_eq!(share(plugin, parts), expected, "{plugin} {parts:?}");
        }
        let mut container = KeyHash::of("bootstrap");
        container.part("k8s");
        container.part("agent");
        container.number(12);
        assert_eq!(container.share(), share("bootstrap", &["k8s", "agent", "12"]));
        let mut largest = KeyHash::of("p");
        largest.number(u32::MAX);
        assert_eq!(largest.share(), share("p", &["4294967295"]));
        let mut zero = KeyHash::of("p");
        zero.number(0);
        assert_eq!(zero.share(), share("p", &["0"]));
    }

    #[test]
    fn keys_are_spread_evenly_and_differ_between_plugins() {
        let mut counts = [0_u32; 100];
        let mut same = 0;
        for number in 0..20_000 {
            let key = format!("task-{number}");
            let first = share("check-http", &[&key]);
            counts[usize::try_from(first).unwrap()] += 1;
            same += u32::from(first == share("check-tcp", &[&key]));
        }
        // Expected are 200, with a standard deviation of 14.
        assert!(
            counts.iter().all(|count| (130..=270).contains(count)),
            "{counts:?}"
        );
        assert!((130..=270).contains(&same), "{same}");
        // The boundaries of the parts count.
        assert_ne!(share("p", &["ab", "c"]), share("p", &["a", "bc"]));
    }
}
