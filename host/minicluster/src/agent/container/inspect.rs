//! Parses the output of the runtime's `inspect`. Does no I/O.

use crate::wire::json as doc;
use serde_json::Value;

/// The start time of a container that has never started.
const NEVER_STARTED: &str = "0001-01-01";

/// A container as the runtime describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inspection {
    pub(super) id: String,
    pub(super) running: bool,
    /// Whether it ever ran.
    pub(super) started: bool,
    /// Whether the runtime reports that the kernel's OOM killer ended it.
    pub(super) out_of_memory: bool,
    /// Its address in the default network, otherwise in the first network that gave it one.
    pub(super) ip: Option<String>,
    /// The unparsed output of `inspect`.
    pub(super) text: String,
}

/// Parses the output for one container.
pub(super) fn container(text: &str) -> Option<Inspection> {
    let document: Value = serde_json::from_str(text).ok()?;
    let container = document.as_array()?.first()?;
    let state = &container["State"];
    let started_at = doc::text(state, &["StartedAt"]).unwrap_or(NEVER_STARTED);
    Some(Inspection {
        id: doc::text(container, &["Id"])?.to_owned(),
        running: state["Running"] == true,
        started: !started_at.is_empty() && !started_at.starts_with(NEVER_STARTED),
        out_of_memory: state["OOMKilled"] == true,
        ip: address(&container["NetworkSettings"]),
        text: text.to_owned(),
    })
}

/// The address in the default network, otherwise in the first network that gave one.
fn address(settings: &Value) -> Option<String> {
    let non_empty = |value: Option<&str>| value.filter(|ip| !ip.is_empty()).map(str::to_owned);
    non_empty(doc::text(settings, &["IPAddress"])).or_else(|| {
        let networks = settings["Networks"].as_object()?;
        networks
            .values()
            .find_map(|network| non_empty(doc::text(network, &["IPAddress"])))
    })
}

/// The settings of an image for its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageConfig {
    /// The signal that stops its containers, by name or number; SIGTERM if `None`.
    pub(super) stop_signal: Option<String>,
    /// The working directory; the root directory if `None`.
    pub(super) workdir: Option<String>,
}

/// Parses the output for one image.
pub(super) fn image(text: &str) -> Option<ImageConfig> {
    let document: Value = serde_json::from_str(text).ok()?;
    let config = &document.as_array()?.first()?["Config"];
    let non_empty = |key: &str| {
        doc::text(config, &[key])
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    };
    Some(ImageConfig {
        stop_signal: non_empty("StopSignal"),
        workdir: non_empty("WorkingDir"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn state_and_address_are_read_from_both_runtimes() {
        let cases = [
            (
                "Podman, on its bridge",
                json!([{"Id": "c1", "State": {"Running": true, "OOMKilled": false, "StartedAt": "2026-11-23T02:29:00.65Z"},
                    "NetworkSettings": {"IPAddress": "10.88.0.8", "Networks": {"podman": {"IPAddress": "10.88.0.8"}}}}]),
                (true, true, false, Some("10.88.0.8")),
            ),
            (
                "Docker, in a named network",
                json!([{"Id": "c1", "State": {"Running": true, "StartedAt": "2026-11-23T02:29:00.65Z"},
                    "NetworkSettings": {"IPAddress": "", "Networks": {"web": {"IPAddress": "172.18.0.2"}}}}]),
                (true, true, false, Some("172.18.0.2")),
            ),
            (
                "in the agent's network",
                json!([{"Id": "c1", "State": {"Running": true, "StartedAt": "2026-11-23T02:29:00.65Z"},
                    "NetworkSettings": {"IPAddress": "", "Networks": {"host": {"IPAddress": ""}}}}]),
                (true, true, false, None),
            ),
            (
                "could not start",
                json!([{"Id": "c1", "State": {"Running": false, "StartedAt": "0001-01-01T00:00:00Z"}, "NetworkSettings": {}}]),
                (false, false, false, None),
            ),
            (
                "ended by the kernel",
                json!([{"Id": "c1", "State": {"Running": false, "OOMKilled": true, "StartedAt": "2026-11-23T02:29:00.65Z"}}]),
                (false, true, true, None),
            ),
        ];
        for (what, document, (running, started, out_of_memory, ip)) in cases {
            let text = document.to_string();
            let expected = Inspection {
                id: "c1".to_owned(),
                running,
                started,
                out_of_memory,
                ip: ip.map(str::to_owned),
                text: text.clone(),
            };
            assert_eq!(container(&text), Some(expected), "{what}");
        }
        for text in ["", "[]", "{}", "[{}]"] {
            assert_eq!(container(text), None, "{text}");
        }
    }

    #[test]
    fn stop_signal_and_directory_are_read_from_an_image_that_sets_them() {
        let full = r#"[{"Config": {"StopSignal": "SIGQUIT", "WorkingDir": "/srv"}}]"#;
        let expected = ImageConfig {
            stop_signal: Some("SIGQUIT".to_owned()),
            workdir: Some("/srv".to_owned()),
        };
        assert_eq!(image(full), Some(expected));
        assert_eq!(
            image(r#"[{"Config": {"WorkingDir": ""}}]"#),
            Some(ImageConfig::default())
        );
        assert_eq!(image("[{}]"), Some(ImageConfig::default()));
        assert_eq!(image("[]"), None);
    }
}
