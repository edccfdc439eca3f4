//! Metric families that are described before their first series.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

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

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
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
}
