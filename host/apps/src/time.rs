//! Timestamps in the form of the API's documents: UTC, milliseconds, `2015-09-29T15:59:51.164Z`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::{Timestamp, Unit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transom_common::ambient;

/// A timestamp in milliseconds. It is also the version of an app definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(Timestamp);

impl Moment {
    /// The current time, truncated to the millisecond.
    pub(crate) fn now() -> Self {
        Self::from(ambient::now())
    }

    /// The `Timestamp`, for arithmetic.
    pub(crate) fn timestamp(self) -> Timestamp {
        self.0
    }

    /// The current time, but always later than `last`: two writes within a millisecond get
    /// different versions.
    pub(crate) fn after(last: Option<Self>) -> Self {
        let now = Self::now();
        match last {
            Some(last) if last >= now => last.plus_millis(1),
            _ => now,
        }
    }

    /// `millis` later; the latest representable time on overflow.
    pub(crate) fn plus_millis(self, millis: i64) -> Self {
        Self(
            self.0
                .checked_add(jiff::SignedDuration::from_millis(millis))
                .unwrap_or(Timestamp::MAX),
        )
    }

    /// Milliseconds from `earlier` to this time; negative when `earlier` is later.
    pub(crate) fn millis_since(self, earlier: Self) -> i64 {
        self.0.as_millisecond() - earlier.0.as_millisecond()
    }
}

impl From<Timestamp> for Moment {
    fn from(timestamp: Timestamp) -> Self {
        let rounding = jiff::TimestampRound::new()
            .smallest(Unit::Millisecond)
            .mode(jiff::RoundMode::Floor);
        Self(timestamp.round(rounding).unwrap_or(timestamp))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }
}

impl FromStr for Moment {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::from)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Moment {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn moment_is_shown_with_three_fractional_digits() {
        for (text, shown) in [
            ("2018-01-01T00:00:00Z", "2018-01-01T00:00:00.000Z"),
            ("2018-01-01T00:00:00.1239Z", "2018-01-01T00:00:00.123Z"),
            ("2018-01-01T02:00:00.5+02:00", "2018-01-01T00:00:00.500Z"),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn versions_increase_even_within_a_millisecond() {
        let future = Moment::now().plus_millis(60_000);
        assert_eq!(Moment::after(Some(future)), future.plus_millis(1));
    }
}
