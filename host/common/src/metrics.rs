//! Structs of metrics, the usual histogram, and metric families that are described before their first series.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry, Unit};

/// A metric family whose help text and type are exported while it has no series yet.
///
/// A registry omits a family without series from its output, so neither a person nor a test of the
/// documentation could distinguish a family without events from one that does not exist.
#[derive(Clone, Debug)]
pub struct Described<F>(pub F);

impl<F: EncodeMetric> EncodeMetric for Described<F> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

impl<F: TypedMetric> TypedMetric for Described<F> {
    const TYPE: MetricType = F::TYPE;
}

/// A histogram of durations, with buckets from a millisecond to about half a minute.
pub fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

/// A metric that a registry can export. Clones share the values.
pub trait Registered: Clone {
    /// The metric that a registry encodes. A family is [`Described`].
    fn exported(&self) -> impl Metric;

    /// Adds it to a registry.
    fn register(&self, registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>) {
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, self.exported()),
            None => registry.register(name, help, self.exported()),
        }
    }
}

impl<N: Clone, A> Registered for Counter<N, A>
where
    Self: Metric,
{
    fn exported(&self) -> impl Metric {
        self.clone()
    }
}

impl<N: Clone, A> Registered for Gauge<N, A>
where
    Self: Metric,
{
    fn exported(&self) -> impl Metric {
        self.clone()
    }
}

impl Registered for Histogram {
    fn exported(&self) -> impl Metric {
        self.clone()
    }
}

impl<S, M, C: Clone> Registered for Family<S, M, C>
where
    S: Clone + std::hash::Hash + Eq,
    C: MetricConstructor<M>,
    Described<Self>: Metric,
{
    fn exported(&self) -> impl Metric {
        Described(self.clone())
    }
}

/// Declares a struct of metrics: each field with its type, its initial value if it is not the
/// default, its name in the registry, its help text and, optionally, its unit.
///
/// ```text
/// transom_common::metrics! {
///     /// Clones share them.
///     pub(crate) struct Metrics {
///         jobs: Gauge => "jobs", "Jobs";
///         run_time: Histogram = Histogram::new([1.0]) => "run_time", "Time of a job", Unit::Seconds;
///     }
/// }
/// ```
///
/// The struct has `fn registered(&mut Registry) -> Self`, which creates and registers all of them, and
/// `fn add_to(&self, &mut Registry)`, which registers those of an existing struct.
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        $vis:vis struct $Name:ident {
            $(
                $field_vis:vis $field:ident: $Type:ty $(= $initial:expr)?
                    => $name:literal, $help:literal $(, $unit:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug)]
        $vis struct $Name {
            $(#[doc = $help] $field_vis $field: $Type,)*
        }

        impl Default for $Name {
            fn default() -> Self {
                Self {
                    $($field: $crate::metrics!(@first $($initial,)? Default::default()),)*
                }
            }
        }

        impl $Name {
            /// Creates the metrics in a registry.
            #[allow(dead_code, reason = "metrics of the process exist before the registry")]
            fn registered(registry: &mut prometheus_client::registry::Registry) -> Self {
                let metrics = Self::default();
                metrics.add_to(registry);
                metrics
            }

            /// Registers the metrics.
            fn add_to(&self, registry: &mut prometheus_client::registry::Registry) {
                $(
                    let unit = $crate::metrics!(@first $(Some($unit),)? None);
                    $crate::Registered::register(&self.$field, registry, $name, $help, unit);
                )*
            }
        }
    };
    (@first $first:expr $(, $rest:expr)?) => {
        $first
    };
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_described_family_is_exported_before_its_first_series() {
        let mut registry = Registry::default();
        let events = Family::<[(&str, &str); 1], Counter>::default();
        registry.register("plain", "Not described", events.clone());
        registry.register("described", "Described", Described(events.clone()));
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).map(|()| text)
        };
        let empty = "# HELP described Described.\n# TYPE described counter\n# EOF\n";
        assert_eq!(text(), Ok(empty.to_owned()));
        events.get_or_create(&[("kind", "a")]).inc();
        let with_series = "described_total{kind=\"a\"} 1\n";
        assert!(text().is_ok_and(|text| text.contains(with_series)));
    }

    crate::metrics! {
        /// Of this test.
        struct Metrics {
            jobs: Gauge => "jobs", "Jobs";
            ends: Family<[(&'static str, &'static str); 1], Counter> => "ends", "Ends";
            time: Histogram = Histogram::new([1.0]) => "time", "Time", Unit::Seconds;
        }
    }

    #[test]
    fn declared_metrics_are_registered_with_name_help_and_unit() {
        let mut registry = Registry::default();
        let metrics = Metrics::registered(&mut registry);
        metrics.jobs.set(3);
        metrics.time.observe(0.5);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for expected in [
            "# HELP jobs Jobs.\n# TYPE jobs gauge\njobs 3\n",
            "# HELP ends Ends.\n# TYPE ends counter\n",
            "# UNIT time_seconds seconds\ntime_seconds_sum 0.5\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
