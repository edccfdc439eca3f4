//! The export of traces: sampling, the queue of spans, and the shutdown.

use std::time::Duration;

use anyhow::Context;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use transom_common::trace;
use transom_config::Telemetry;

use super::collector::Collector;

/// The maximum number of spans in one request to the collector.
const BATCH_SIZE: usize = 512;
/// The interval of exports while the queue is not full.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The timeout for exporting the remaining spans when the daemon stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number each of attributes, events and links of one span. The span of an instance's
/// launch has an event for each status.
const MAX_PER_SPAN: u32 = 64;

/// The running export; `None`: traces are off.
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    pub(super) fn off() -> Self {
        Self(None)
    }

    /// Traces that are exported by this provider.
    #[cfg(test)]
    pub(super) fn of(provider: SdkTracerProvider) -> Self {
        Self(Some(provider))
    }

    /// Starts the export to the configured collector, if there is one. Sends no request yet.
    pub(super) fn to_collector(settings: &Telemetry) -> anyhow::Result<Option<Self>> {
        let Some(url) = settings.traces_url() else {
            return Ok(None);
        };
        let timeout = Duration::from_secs(settings.otlp_timeout_seconds);
        let headers = settings.otlp_headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), value.reveal().to_owned()));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(&url, timeout)?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&url)
            .with_headers(headers.collect())
            .with_timeout(timeout)
            .build()
            .context("telemetry.otlp_endpoint")?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(settings.queue_spans)
            .with_max_export_batch_size(BATCH_SIZE)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        let attributes = settings.resource_attributes.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attributes(attributes)
            .build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(
                BatchSpanProcessor::builder(exporter)
                    .with_batch_config(batches)
                    .build(),
            )
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                settings.sample_ratio,
            ))))
            .with_max_events_per_span(MAX_PER_SPAN)
            .with_max_attributes_per_span(MAX_PER_SPAN)
            .with_max_links_per_span(MAX_PER_SPAN)
            .with_resource(resource)
            .build();
        Ok(Some(Self(Some(provider))))
    }

    /// The layer that converts `tracing` spans of the target [`trace::TARGET`] to spans of a trace.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let targets = Targets::new().with_target(trace::TARGET, LevelFilter::INFO);
        self.0.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("transom"))
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
                .with_filter(targets)
        })
    }

    /// Exports the remaining spans, with a timeout of a few seconds.
    pub(crate) async fn stop(self) {
        let Some(provider) = self.0 else { return };
        // The shutdown blocks its thread.
        let stopped = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        if !matches!(stopped.await, Ok(Ok(()))) {
            tracing::warn!("the daemon stopped before all spans were exported");
        }
    }
}
