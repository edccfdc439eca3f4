//! A hash for maps that are asked once per agent: quicker than the standard one, which withstands keys
//! chosen to collide. Keys here are the host's numbers, or so few that collisions do not matter.

use std::hash::{BuildHasherDefault, Hasher};

/// For `HashMap`.
pub type QuickHash = BuildHasherDefault<QuickHasher>;

/// Fibonacci hashing, byte by byte for texts.
#[derive(Debug, Default)]
pub struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn finish(&self) -> u64 {
        // A table uses the lower bits for the place, and only the upper ones depend on all of the
        // key.
        self.0.rotate_left(20)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.0 = (self.0 ^ u64::from(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, Hash};

    use super::*;

    /// How many places of a table, of 1,024, the keys take.
    fn places(keys: impl Iterator<Item = impl Hash>) -> usize {
        let places: HashSet<u64> = keys
            .map(|key| QuickHash::default().hash_one(key) % 1024)
            .collect();
        places.len()
    }

    #[test]
    fn keys_spread_over_a_table() {
        // Random ones would take 1024 * (1 - 1/e) = 647.
        for taken in [
            places(0_u32..1024),
            places((0_u32..1024).map(|n| n * 1024)),
            places((0..1024).map(|n| format!("rack-{n}"))),
            places((0..1024).map(|n| format!("{n}.node"))),
        ] {
            assert!(taken > 550, "{taken} of 1024");
        }
    }
}
