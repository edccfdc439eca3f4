//! Serves a registry's metrics, in the format that the client asks for.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, header};
use prometheus_client::registry::Registry;

use crate::ApiError;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a registry, in the OpenMetrics text format; in Prometheus's text format, if the header
/// `Accept` names `text/plain` and not OpenMetrics.
pub fn response(registry: &Registry, headers: &HeaderMap) -> Response {
    let accepts = |format: &str| {
        let values = headers.get_all(header::ACCEPT).iter();
        let mut values = values.filter_map(|value| value.to_str().ok());
        values.any(|value| value.to_ascii_lowercase().contains(format))
    };
    let is_plain = accepts("text/plain") && !accepts("application/openmetrics-text");
    let (content_type, text) = if is_plain {
        (PROMETHEUS_TEXT, text(registry).map(|text| prometheus_text(&text)))
    } else {
        (OPEN_METRICS, text(registry))
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, content_type)], text).into_response(),
        Err(cause) => ApiError::internal(&cause).into_response(),
    }
}

/// OpenMetrics text in Prometheus's format: there the description of a counter or an info names its
/// samples, whose names have a suffix, and units are no part of it.
fn prometheus_text(text: &str) -> String {
    let mut lines = Vec::new();
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap_or((described, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" | "stateset" | "gaugehistogram" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                lines.push(format!("# HELP {name}{suffix} {help}\n"));
            }
            lines.push(format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            lines.push(format!("{line}\n"));
        }
    }
    lines.concat()
}

fn text(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(one_family_each(&text))
}

/// Merges the metrics of the same name that several sub-registries contain, such as those of
/// several frameworks: the format requires one description, followed by all samples.
fn one_family_each(text: &str) -> String {
    let mut families: Vec<Vec<&str>> = Vec::new();
    let mut indices = HashMap::new();
    let (mut index, mut described) = (None, false);
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next();
            let found = *indices.entry(name).or_insert(families.len());
            described = found < families.len();
            if !described {
                families.push(Vec::new());
            }
            index = Some(found);
        }
        let repeated = described && line.starts_with("# ");
        if let Some(family) = index.and_then(|index| families.get_mut(index))
            && !repeated
            && line != END
        {
            family.push(line);
        }
    }
    let lines = families.into_iter().flatten().chain([END]);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The last line.
const END: &str = "# EOF";

/// `GET /metrics`, for a registry that is complete.
pub fn router(registry: Arc<Registry>) -> Router {
    let answer = async move |headers: HeaderMap| response(&registry, &headers);
    Router::new().route("/metrics", get(answer))
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn metric_of_several_sub_registries_is_one_family() {
        let mut registry = Registry::default();
        registry.register("alone", "One of a kind", Gauge::<i64>::default());
        for framework in ["a", "b"] {
            let label = ("framework".into(), framework.into());
            let registry = registry.sub_registry_with_label(label);
            registry.register("tasks", "Tasks", Gauge::<i64>::default());
            registry.register("starts", "Starts", Counter::<u64>::default());
        }
        let expected = "# HELP alone One of a kind.\n# TYPE alone gauge\nalone 0\n\
            # HELP tasks Tasks.\n# TYPE tasks gauge\ntasks{framework=\"a\"} 0\ntasks{framework=\"b\"} 0\n\
            # HELP starts Starts.\n# TYPE starts counter\nstarts_total{framework=\"a\"} 0\n\
            starts_total{framework=\"b\"} 0\n# EOF\n";
        assert_eq!(text(&registry), Ok(expected.to_owned()));
        assert_eq!(text(&Registry::default()), Ok("# EOF\n".to_owned()));
        let expected = expected
            .replace("starts Starts", "starts_total Starts")
            .replace("starts counter", "starts_total counter")
            .replace("# EOF\n", "");
        assert_eq!(prometheus_text(&text(&registry).unwrap()), expected);
    }
}
