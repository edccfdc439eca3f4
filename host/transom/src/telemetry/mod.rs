//! The daemon's log, to standard error as text or JSON, and its traces.

mod collector;
mod traces;

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use transom_common::trace;
use transom_config::{Log, LogFormat, LogLevel, Telemetry};

pub(crate) use traces::Traces;

/// Starts the log, without traces.
///
/// Levels are taken from `level`; libraries that log every request stay at `warn` unless named.
pub(crate) fn start(level: &LogLevel, format: LogFormat) -> anyhow::Result<()> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter(level, "off")?)
        .with_writer(std::io::stderr)
        // It would print to standard error, which panics if that cannot be written.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}

/// Starts the log, and the export of traces if a collector is configured.
pub(crate) fn start_traced(log: &Log, telemetry: &Telemetry) -> anyhow::Result<Traces> {
    let Some(traces) = Traces::to_collector(telemetry)? else {
        start(&log.level, log.format)?;
        return Ok(Traces::off());
    };
    tracing_subscriber::registry()
        .with(lines(log, std::io::stderr)?)
        .with(traces.layer())
        .init();
    trace::turn_on();
    Ok(traces)
}

/// The log layer for a subscriber with traces: each line contains the spans around it, with their
/// `trace_id`.
fn lines<S, W>(log: &Log, writer: W) -> anyhow::Result<impl Layer<S> + use<S, W>>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    Ok(lines.with_filter(filter(&log.level, "info")?))
}

/// The filter for log lines. `spans`: the level of the spans that traces export. While traces are off,
/// these spans are disabled, so that they have no overhead.
fn filter(level: &LogLevel, spans: &str) -> anyhow::Result<EnvFilter> {
    let target = trace::TARGET;
    let directives = format!(
        "hickory_server=warn,hyper=warn,wasmtime=warn,cranelift=warn,{},{target}={spans}",
        level.as_str()
    );
    Ok(EnvFilter::try_new(&directives)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use opentelemetry_sdk::trace::SdkTracerProvider;
    use serde_json::Value;

    use super::*;

    /// A writer that keeps the written bytes.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_within_a_traced_span_contain_its_trace_id() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let log = Log {
            format: LogFormat::Json,
            ..Log::default()
        };
        let traces = Traces::of(SdkTracerProvider::builder().build());
        let subscriber = tracing_subscriber::registry()
            .with(lines(&log, move || writer.clone()).unwrap())
            .with(traces.layer());
        trace::turn_on();
        let expected = tracing::subscriber::with_default(subscriber, || {
            tracing::info!("outside");
            let span = trace::root(
                &opentelemetry::Context::new(),
                || tracing::info_span!(target: trace::TARGET, "request", trace_id = tracing::field::Empty),
            );
            let _entered = span.enter();
            tracing::info!("inside");
            tracing::debug!("too detailed");
            format!("{:?}", trace::TraceContext::current())
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["message"], "outside");
        assert_eq!(lines[0].get("span"), None);
        let id = lines[1]["span"]["trace_id"].as_str().unwrap();
        assert!(id.len() == 32 && expected.contains(id), "{id} {expected}");
    }

    #[test]
    fn spans_of_traces_are_disabled_while_traces_are_off() {
        let buffer = Buffer::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter(&"trace".parse().unwrap(), "off").unwrap())
            .with_writer(move || buffer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!(target: trace::TARGET, "request");
            assert!(span.is_disabled());
        });
    }
}
