//! `[telemetry]`: traces by OpenTelemetry.

use std::collections::BTreeMap;

use reqwest::header::{HeaderName, HeaderValue};
use transom_common::{Secret, schema, settings};

settings! {
    /// `[telemetry]`: traces, exported by OTLP over HTTP (protobuf). Off without an endpoint.
    #[derive(PartialEq)]
    pub struct Telemetry {
        /// The collector, such as `http://127.0.0.1:4318`; spans are posted to `/v1/traces` below it.
        pub otlp_endpoint: Option<String>;
        /// Headers of each request to the collector, such as `authorization`.
        #[schemars(with = "BTreeMap<String, schema::Secret>")]
        pub otlp_headers: BTreeMap<String, Secret>;
        /// The timeout of a request to the collector.
        pub otlp_timeout_seconds: u64 = 10;
        /// The share of traces that are exported, from 0 to 1. It applies to traces that begin in this
        /// daemon; for a request with `traceparent`, the sampling decision of the client applies.
        pub sample_ratio: f64 = 1.0;
        /// `service.name` of the resource.
        pub service_name: String = "transom".to_owned();
        /// Further attributes of the resource, such as `deployment.environment.name`.
        pub resource_attributes: BTreeMap<String, String>;
        /// The maximum number of spans that wait for their export; further ones are dropped.
        pub queue_spans: usize = 8192;
    }
}

impl Telemetry {
    /// The URL that spans are posted to; `None`: traces are off.
    pub fn traces_url(&self) -> Option<String> {
        let endpoint = self.otlp_endpoint.as_ref()?;
        Some(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
    }

    /// Values that are out of bounds, one line each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(endpoint) = &self.otlp_endpoint {
            let url = reqwest::Url::parse(endpoint).ok();
            let is_base = |url: &reqwest::Url| {
                matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
            };
            let has_credentials = |url: &reqwest::Url| !url.username().is_empty() || url.password().is_some();
            if url.as_ref().is_some_and(has_credentials) {
                // The address is shown in the log, so it must not contain credentials.
                problems.push(
                    "`telemetry.otlp_endpoint` has a user or a password: use `telemetry.otlp_headers.authorization`"
                        .to_owned(),
                );
            } else if !url.as_ref().is_some_and(is_base) {
                problems.push(format!(
                    "`telemetry.otlp_endpoint` is `{endpoint}`: expected the URL of a collector, such as \
                     `http://127.0.0.1:4318`"
                ));
            }
        }
        for (name, value) in &self.otlp_headers {
            if HeaderName::try_from(name).is_err() {
                problems.push(format!(
                    "`telemetry.otlp_headers`: `{name}` is not the name of a header"
                ));
            } else if HeaderValue::try_from(value.reveal()).is_err() {
                problems.push(format!(
                    "`telemetry.otlp_headers.{name}`: expected a text without control characters"
                ));
            }
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            let ratio = self.sample_ratio;
            problems.push(format!(
                "`telemetry.sample_ratio` is {ratio}: it must be between 0 and 1"
            ));
        }
        for (key, value, min, max) in [
            ("otlp_timeout_seconds", self.otlp_timeout_seconds, 1, 60),
            ("queue_spans", self.queue_spans as u64, 512, 1 << 20),
        ] {
            if !(min..=max).contains(&value) {
                problems.push(format!(
                    "`telemetry.{key}` is {value}: it must be between {min} and {max}"
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn of(text: &str) -> Telemetry {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn traces_are_off_without_an_endpoint() {
        assert_eq!(of("").traces_url(), None);
        assert_eq!(of("").problems(), Vec::<String>::new());
        for endpoint in ["http://127.0.0.1:4318", "http://127.0.0.1:4318/"] {
            let telemetry = of(&format!("otlp_endpoint = \"{endpoint}\""));
            assert_eq!(telemetry.traces_url().unwrap(), "http://127.0.0.1:4318/v1/traces");
            assert!(telemetry.problems().is_empty());
        }
    }

    #[test]
    fn problems_name_the_key_and_the_expected_value() {
        for (text, expected) in [
            (
                "otlp_endpoint = \"127.0.0.1:4318\"",
                "`telemetry.otlp_endpoint` is `127.0.0.1:4318`: expected the URL",
            ),
            (
                "otlp_endpoint = \"http://u:secret@a:4317\"",
                "`telemetry.otlp_endpoint` has a user or a password",
            ),
            (
                "otlp_endpoint = \"grpc://a:4317\"",
                "`telemetry.otlp_endpoint` is `grpc://a:4317`",
            ),
            (
                "otlp_headers = {\"a b\" = \"c\"}",
                "`a b` is not the name of a header",
            ),
            (
                "otlp_headers = {a = \"secret\\n\"}",
                "`telemetry.otlp_headers.a`: expected a text",
            ),
            (
                "sample_ratio = 1.5",
                "`telemetry.sample_ratio` is 1.5: it must be between 0 and 1",
            ),
            ("sample_ratio = nan", "`telemetry.sample_ratio` is NaN"),
            (
                "otlp_timeout_seconds = 0",
                "`telemetry.otlp_timeout_seconds` is 0: it must be between 1 and 60",
            ),
            (
                "queue_spans = 1",
                "`telemetry.queue_spans` is 1: it must be between 512 and 1048576",
            ),
        ] {
            let problems = of(text).problems();
            assert!(
                problems.len() == 1 && problems[0].contains(expected),
                "{text}: {problems:?}"
            );
            assert!(!problems[0].contains("secret"), "{problems:?}");
        }
    }

    #[test]
    fn headers_are_masked() {
        let telemetry = of("otlp_headers = {authorization = \"Bearer opensesame\"}");
        let text = format!("{telemetry:?} {}", serde_json::to_string(&telemetry).unwrap());
        assert!(!text.contains("opensesame"), "{text}");
    }
}
