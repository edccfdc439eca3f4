//! Restarts that begin with some of the instances and continue when these are healthy.

use serde::{Deserialize, Serialize};

/// A restart replaces this many instances of each app or pod and then waits. It continues on
/// request or after a time; the deployment is rolled back when a new instance fails.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Canary {
    pub(crate) amount: Amount,
    /// How many seconds all new instances must be healthy, with successful checks, before the
    /// restart continues automatically. `None`: it continues only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u32>,
    /// Whether the restart has continued.
    #[serde(default)]
    pub(crate) continued: bool,
}

/// The number of instances that are replaced first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Amount {
    Instances(u32),
    /// A share of the wanted number, above 0 and at most 100.
    Percent(f64),
}

impl Amount {
    /// Parses `3` or `12.5%`. `None` for other texts, for zero, and for more than 100%.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok()?;
                (percent > 0.0 && percent <= 100.0).then_some(Self::Percent(percent))
            }
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Instances),
        }
    }

    /// The number of instances of `all`; shares are rounded up.
    pub(crate) fn of(self, all: u32) -> u32 {
        match self {
            Self::Instances(count) => count.min(all),
            Self::Percent(percent) => (f64::from(all) * percent / 100.0).ceil() as u32,
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Instances(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_a_number_or_a_share() {
        let of = |text: &str, all| Amount::parse(text).map(|amount| amount.of(all));
        for (text, all, expected) in [
            ("1", 10, 1),
            ("20", 10, 10),
            ("10%", 10, 1),
            ("10%", 11, 2),
            ("0.1%", 3, 1),
            ("100%", 3, 3),
        ] {
            assert_eq!(of(text, all), Some(expected), "{text} of {all}");
            let amount = Amount::parse(text).map(|amount| amount.to_string());
            assert_eq!(amount.as_deref(), Some(text));
        }
        for text in ["", "0", "-1", "x", "0%", "101%", "NaN%", "1.5", "%"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }
}
