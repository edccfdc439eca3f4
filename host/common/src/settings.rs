//! Structs of settings, each declared in one place.

use std::fmt;
use std::ops::{Bound, RangeBounds};

/// A number of the settings that can have bounds; unset ones have none.
pub trait Bounded {
    /// The number; `None` if it is not set.
    fn number(&self) -> Option<u64>;
}

macro_rules! bounded {
    ($($Type:ty)*) => {
        $(
            impl Bounded for $Type {
                fn number(&self) -> Option<u64> {
                    Some(u64::try_from(*self).unwrap_or(u64::MAX))
                }
            }
        )*
    };
}

bounded!(u16 u32 u64 usize);

impl<T: Bounded> Bounded for Option<T> {
    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }
}

/// The message for the number at `key` if it is out of its bounds, which are included. `unit` follows
/// the upper bound.
pub fn out_of_bounds(
    key: fmt::Arguments<'_>,
    value: &impl Bounded,
    bounds: &impl RangeBounds<u64>,
    unit: &str,
) -> Option<String> {
    let number = value.number().filter(|number| !bounds.contains(number))?;
    let limit = |bound: Bound<&u64>| match bound {
        Bound::Included(limit) | Bound::Excluded(limit) => Some(*limit),
        Bound::Unbounded => None,
    };
    let min = limit(bounds.start_bound()).unwrap_or_default();
    Some(match limit(bounds.end_bound()) {
        Some(max) => format!("`{key}` is {number}: it must be between {min} and {max}{unit}"),
        None => format!("`{key}` is {number}: it must be at least {min}{unit}"),
    })
}

/// Declares a struct of settings: each field with its type, its default if it is not that of the type,
/// and the bounds of a number, with their unit.
///
/// ```text
/// transom_common::settings! {
///     /// `[section]`
///     pub struct Settings {
///         /// Seconds between two attempts.
///         pub interval: u64 = 10, in 1..=600, " seconds";
///         /// The maximum number of jobs.
///         pub max_jobs: Option<usize>, in 1..;
///     }
/// }
/// ```
///
/// The struct is read with serde, which rejects unknown keys, and has a schema. Its
/// `fn out_of_bounds(&self, section: &str)` lists the numbers that are out of their bounds. The crate
/// needs serde and schemars.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $Name:ident {
            $(
                $(#[$field_attribute:meta])*
                $field_vis:vis $field:ident: $Type:ty $(= $default:expr)? $(, in $bounds:expr $(, $unit:literal)?)?;
            )*
        }
    ) => {
        #[derive(Clone, Debug, ::serde::Deserialize, ::schemars::JsonSchema, ::serde::Serialize)]
        #[serde(deny_unknown_fields, default)]
        $(#[$attribute])*
        $vis struct $Name {
            $($(#[$field_attribute])* $field_vis $field: $Type,)*
        }

        impl Default for $Name {
            fn default() -> Self {
                Self {
                    $($field: $crate::settings!(@first $($default,)? Default::default()),)*
                }
            }
        }

        impl $Name {
            /// The numbers that are out of their bounds, one line each.
            $vis fn out_of_bounds(&self, section: &str) -> Vec<String> {
                let faults: Vec<Option<String>> = vec![$($($crate::out_of_bounds(
                    format_args!("{section}.{}", stringify!($field)),
                    &self.$field,
                    &($bounds),
                    $crate::settings!(@first $($unit,)? ""),
                ),)?)*];
                faults.into_iter().flatten().collect()
            }
        }
    };
    (@first $first:expr $(, $rest:expr)?) => {
        $first
    };
}

#[cfg(test)]
mod tests {
    crate::settings! {
        /// Of this test.
        struct Settings {
            /// Without a default of its own.
            jobs: Option<usize>, in 1..;
            /// With everything.
            interval: u64 = 10, in 1..=600, " seconds";
            /// A text.
            name: String = "a".into();
        }
    }

    fn read(text: &str) -> Result<Settings, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_keys_have_their_defaults_and_unknown_ones_are_rejected() {
        let settings = read("{}").unwrap();
        assert_eq!(
            (settings.jobs, settings.interval, settings.name.as_str()),
            (None, 10, "a")
        );
        assert!(
            read(r#"{"jobs_": 1}"#)
                .unwrap_err()
                .starts_with("unknown field `jobs_`")
        );
    }

    #[test]
    fn numbers_out_of_their_bounds_are_named_with_them() {
        for (text, expected) in [
            ("{}", [].as_slice()),
            (r#"{"jobs": 1, "interval": 600}"#, &[]),
            (
                r#"{"jobs": 0, "interval": 601}"#,
                &[
                    "`s.jobs` is 0: it must be at least 1",
                    "`s.interval` is 601: it must be between 1 and 600 seconds",
                ],
            ),
            (
                r#"{"interval": 0}"#,
                &["`s.interval` is 0: it must be between 1 and 600 seconds"],
            ),
        ] {
            assert_eq!(read(text).unwrap().out_of_bounds("s"), expected, "{text}");
        }
    }
}
