//! Kubernetes' notation of amounts: `100m`, `1.5`, `128Mi`, `1e3`.

use serde::{Deserialize, Serialize};

/// CPU, memory and the number of pods: the requests of a pod, or the resources of a node for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resources {
    /// Thousandths of a CPU.
    pub(crate) cpu_millis: u64,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Pods.
    pub(crate) pods: u64,
}

impl Resources {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods.saturating_sub(other.pods),
        }
    }

    /// The larger amount of each resource.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.max(other.cpu_millis),
            memory: self.memory.max(other.memory),
            pods: self.pods.max(other.pods),
        }
    }

    pub(crate) fn fits_in(self, room: Self) -> bool {
        self.cpu_millis <= room.cpu_millis && self.memory <= room.memory && self.pods <= room.pods
    }
}

/// Parses thousandths of CPUs, rounded up; `None` if the text is no amount.
pub(super) fn cpu_millis(text: &str) -> Option<u64> {
    whole(amount(text)? * 1000.0)
}

/// Parses bytes or pods, rounded up; `None` if the text is no amount.
pub(super) fn count(text: &str) -> Option<u64> {
    whole(amount(text)?)
}

fn amount(text: &str) -> Option<f64> {
    const UNITS: &[(&str, f64)] = &[
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let unit = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    // Rust's parser also accepts `inf` and `nan`, which must be rejected.
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-' | b'e' | b'E');
    let amount: f64 = number.bytes().all(plain).then(|| number.parse().ok()).flatten()?;
    Some(amount * factor).filter(|amount| *amount >= 0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from f64 saturates, and amounts are not negative"
)]
fn whole(amount: f64) -> Option<u64> {
    // Rounding errors may make the product slightly larger than a whole number.
    amount.is_finite().then(|| (amount - 1e-6).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_each_notation() {
        for (text, millis) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("0.5", Some(500)),
            (".5", Some(500)),
            ("100m", Some(100)),
            ("57m", Some(57)),
            ("1500u", Some(2)),
            ("1n", Some(1)),
            ("2e1", Some(20_000)),
            ("+1", Some(1000)),
            ("-1", None),
            ("", None),
            ("m", None),
            ("much", None),
            ("inf", None),
            ("nan", None),
            ("1 m", None),
        ] {
            assert_eq!(cpu_millis(text), millis, "{text:?}");
        }
        for (text, bytes) in [
            ("128Mi", Some(134_217_728)),
            ("1Gi", Some(1_073_741_824)),
            ("1.5Ki", Some(1536)),
            ("1G", Some(1_000_000_000)),
            ("500k", Some(500_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1E3", Some(1000)),
            ("1Ei", Some(1 << 60)),
            ("99999999999999E", Some(u64::MAX)),
            ("1e999", None),
            ("110", Some(110)),
            ("128974848000m", Some(128_974_848)),
            ("1KiB", None),
        ] {
            assert_eq!(count(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn resources_fit_only_in_every_dimension() {
        let of = |cpu_millis, memory, pods| Resources {
            cpu_millis,
            memory,
            pods,
        };
        let room = of(10, 20, 30);
        assert!(room.fits_in(room));
        for one_more in [of(11, 0, 0), of(0, 21, 0), of(0, 0, 31)] {
            assert!(!one_more.fits_in(room), "{one_more:?}");
        }
        assert_eq!(room.minus(of(11, 1, 1)), of(0, 19, 29));
        assert_eq!(room.max(of(5, 50, 30)), of(10, 50, 30));
        assert_eq!(of(u64::MAX, 1, 1).plus(room), of(u64::MAX, 21, 31));
    }
}
