//! A duration in the settings: `15s`, `10m`, or a number of seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(Duration);

impl Period {
    /// A duration of this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration.
    pub fn duration(self) -> Duration {
        self.0
    }

    /// Parses `15s`, `1h30m`, `500ms`, or a number of seconds.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(seconds) = text.parse() {
            return Some(Self::seconds(seconds));
        }
        let length: jiff::SignedDuration = text.parse().ok()?;
        Duration::try_from(length).ok().map(Self)
    }
}

#[cfg(test)]
impl From<Duration> for Period {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match (seconds, millis) {
            (0, millis) if millis > 0 => write!(f, "{millis}ms"),
            (seconds, 0) => write!(f, "{seconds}s"),
            (seconds, millis) => write!(f, "{seconds}s{millis}ms"),
        }
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as \"15s\" or \"10m\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
                Period::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Period, E> {
                Ok(Period::seconds(seconds))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Period, E> {
                let seconds = u64::try_from(seconds);
                seconds
                    .map(Period::seconds)
                    .map_err(|_| E::custom("expected a length of time that is not negative"))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis, text_form) in [
            ("15s", Some(15_000), "15s"),
            ("10m", Some(600_000), "600s"),
            ("1h30m", Some(5_400_000), "5400s"),
            ("500ms", Some(500), "500ms"),
            ("7", Some(7000), "7s"),
            ("0", Some(0), "0s"),
            ("-1s", None, ""),
            ("soon", None, ""),
            ("", None, ""),
        ] {
            let period = Period::parse(text);
            assert_eq!(period.map(|it| it.duration().as_millis()), millis, "{text}");
            if let Some(period) = period {
                assert_eq!(period.to_string(), text_form);
            }
        }
    }
}
