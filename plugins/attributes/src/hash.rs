//! Hashes for maps that are asked once per agent: quicker than the standard one, which withstands keys
//! chosen to collide. Keys here are the host's numbers, and the attributes that a site gives its own
//! agents.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps by an agent's handle.
pub type HandleHash = BuildHasherDefault<HandleHasher>;

/// Leaves handles in their order. The host counts them up, so they fill a table without collisions, and
/// successive candidates are close in memory.
#[derive(Debug, Default)]
pub struct HandleHasher(u32);

impl HandleHasher {
    /// A table uses the upper seven bits of a machine word to tell the keys in a place apart.
    const UPPER: u64 = 0xFE00_0000_FE00_0000;
}

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        let handle = u64::from(self.0);
        let mixed = handle.wrapping_mul(MULTIPLIER);
        handle & !Self::UPPER | mixed & Self::UPPER
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(self.0 << 8 | u32::from(*byte));
        }
    }

    fn write_u32(&mut self, handle: u32) {
        self.0 = handle;
    }
}

/// 2^64 divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// For maps by texts.
pub type QuickHash = BuildHasherDefault<QuickHasher>;

/// Fibonacci hashing, by words of four bytes for texts.
#[derive(Debug, Default)]
pub struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        // A table uses the lower bits for the place, and only the upper ones depend on all of the
        // key.
        self.0.rotate_left(20)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u32(u32::from_le_bytes(*word));
        }
        for byte in rest {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u32(u32::from(byte));
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u32(word as u32);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.0 = (self.0 ^ u64::from(word)).wrapping_mul(MULTIPLIER);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    /// How many places of a table, of 1,024, the keys take.
    fn places<H: BuildHasher + Default>(keys: impl Iterator<Item = impl Hash>) -> usize {
        let places: HashSet<u64> = keys.map(|key| H::default().hash_one(key) % 1024).collect();
        places.len()
    }

    #[test]
    fn successive_handles_take_successive_places() {
        let hash = |handle: u32| HandleHash::default().hash_one(handle);
        for handle in [0, 7, 1 << 24, u32::MAX - 1] {
            assert_eq!(hash(handle) % 1024, u64::from(handle % 1024));
            // What tells them apart in a place differs, too.
            assert_ne!(hash(handle) >> 57, hash(handle + 1) >> 57);
        }
        assert_eq!(places::<HandleHash>(5000_u32..6024), 1024);
    }

    #[test]
    fn keys_spread_over_a_table() {
        // Random ones would take 1024 * (1 - 1/e) = 647.
        for taken in [
            places::<QuickHash>((0..1024).map(|n| format!("rack-{n}"))),
            places::<QuickHash>((0..1024).map(|n| format!("{n}.node"))),
        ] {
            assert!(taken > 550, "{taken} of 1024");
        }
    }
}
