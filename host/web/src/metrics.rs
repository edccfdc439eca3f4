//! Serves a registry's metrics.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header;
use prometheus_client::registry::Registry;

use crate::ApiError;

/// The content type of [`response`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a registry, in the OpenMetrics text format.
pub fn response(registry: &Registry) -> Response {
    match text(registry) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(cause) => ApiError::internal(&cause).into_response(),
    }
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
    Router::new().route("/metrics", get(async move || response(&registry)))
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
    }
}
