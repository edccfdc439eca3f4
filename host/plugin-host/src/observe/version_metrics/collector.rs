//! Encodes the measurements as metrics.

use std::{fmt::Error as FmtError, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use super::{CallOutcome, Totals, Versions};
use crate::observe::latency_histogram::Buckets;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    plugin: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    plugin: String,
    version: String,
    outcome: &'static str,
}

impl Collector for Versions {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), FmtError> {
        let series: Vec<(VersionLabels, Totals)> = self
            .series()
            .into_iter()
            .map(|((plugin, version), totals)| (VersionLabels { plugin, version }, totals))
            .collect();
        let mut encoder = SeriesEncoder { encoder, series };
        encoder.calls()?;
        encoder.histogram(
            "call_duration",
            "Duration of a call in its instance, without the wait for the instance.",
            |it| &it.duration,
        )?;
        encoder.histogram(
            "queue_wait",
            "Wait of a call for an instance, its creation included.",
            |it| &it.wait,
        )?;
        encoder.family(
            "cpu",
            "Processor time used by plugin instances, their creation included.",
            Some(&Unit::Seconds),
            MetricType::Counter,
            |it, encoder| {
                let seconds = Duration::from_nanos(it.cpu).as_secs_f64();
                encoder.encode_counter::<NoLabelSet, _, f64>(&seconds, None)
            },
        )?;
        let memory = |it: &Totals| i64::try_from(it.memory).unwrap_or(i64::MAX);
        encoder.family(
            "memory_peak",
            "Peak linear memory of the largest instance.",
            Some(&Unit::Bytes),
            MetricType::Gauge,
            |it, encoder| encoder.encode_gauge(&memory(it)),
        )?;
        encoder.gauge("instances", "Live instances.", |it| it.instances)?;
        encoder.gauge("in_flight", "Calls and attempts in progress.", |it| it.in_flight)?;
        encoder.gauge("queue", "Calls waiting for an instance.", |it| it.queue)?;
        encoder.counter("denials", "Denied destinations, commands and WASI calls.", |it| {
            it.denials
        })?;
        encoder.counter("log_drops", "Log lines dropped over the limit.", |it| {
            it.log_drops
        })
    }
}

struct SeriesEncoder<'a> {
    encoder: DescriptorEncoder<'a>,
    series: Vec<(VersionLabels, Totals)>,
}

impl SeriesEncoder<'_> {
    fn calls(&mut self) -> Result<(), FmtError> {
        let help = "Calls by outcome: ok, error (returned by the component), trap (or an invalid result), timeout, busy, disabled.";
        let mut family = self
            .encoder
            .encode_descriptor("calls", help, None, MetricType::Counter)?;
        for (labels, totals) in &self.series {
            for &outcome in CallOutcome::ALL {
                let labels = CallLabels {
                    plugin: labels.plugin.clone(),
                    version: labels.version.clone(),
                    outcome: outcome.name(),
                };
                let calls = totals.outcomes[outcome as usize];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&calls, None)?;
            }
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, of: fn(&Totals) -> &Buckets) -> Result<(), FmtError> {
        self.family(
            name,
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
            |it, encoder| {
                let it = of(it);
                encoder.encode_histogram::<NoLabelSet>(it.sum_seconds(), it.count(), &it.seconds(), None)
            },
        )
    }

    fn counter(&mut self, name: &str, help: &str, of: fn(&Totals) -> u64) -> Result<(), FmtError> {
        self.family(name, help, None, MetricType::Counter, |it, encoder| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&of(it), None)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, of: fn(&Totals) -> i64) -> Result<(), FmtError> {
        self.family(name, help, None, MetricType::Gauge, |it, encoder| {
            encoder.encode_gauge(&of(it))
        })
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        encode: impl Fn(&Totals, &mut MetricEncoder<'_>) -> Result<(), FmtError>,
    ) -> Result<(), FmtError> {
        let mut family = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for (labels, totals) in &self.series {
            encode(totals, &mut family.encode_family(labels)?)?;
        }
        Ok(())
    }
}
