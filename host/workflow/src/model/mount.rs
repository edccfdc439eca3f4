//! Volumes of a job.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field_reader::{NUL, has_nul, kind};

/// A host path or a named volume, mounted in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// A path of the host (it begins with `/`), or the name of a volume.
    pub(crate) source: String,
    /// The driver of a named volume; `None`: the configured one.
    #[serde(default)]
    pub(crate) driver: Option<String>,
    /// An absolute path.
    pub(crate) container_path: String,
    #[serde(default)]
    pub(crate) read_only: bool,
}

const EXPECTED: &str = "expected a string such as \"/data:/mnt/data:ro\" or \"name:/mnt/data\", or an object with source, \
                        container_path, mode (RW or RO) and driver";

impl Mount {
    /// Whether the source is a path of the host.
    pub(crate) fn is_path(&self) -> bool {
        self.source.starts_with('/')
    }

    /// Parses `source:target[:mode]`, or an object in the format of our clients or of Mesos.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) => Self::of_text(text),
            Value::Object(_) => Self::of_object(value),
            other => Err(format!("is {}; {EXPECTED}", kind(other))),
        }
    }

    fn of_text(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
            return Err(format!("is {text:?}; {EXPECTED}"));
        };
        let mode = parts.next();
        if parts.next().is_some() {
            return Err(format!("is {text:?}, which has too many colons; {EXPECTED}"));
        }
        Self::new(source, target, mode, None)
    }

    fn of_object(value: &Value) -> Result<Self, String> {
        let text = |paths: &[&str]| paths.iter().find_map(|path| value.pointer(path)?.as_str());
        let source = text(&[
            "/source",
            "/host_path",
            "/name",
            "/source/docker_volume/name",
            "/source/host_path/path",
        ]);
        let target = text(&["/container_path", "/target"]);
        let (Some(source), Some(target)) = (source, target) else {
            return Err(format!("has no source or no container_path; {EXPECTED}"));
        };
        let read_only = value.get("read_only").and_then(Value::as_bool) == Some(true);
        let mode = text(&["/mode"]).or(read_only.then_some("ro"));
        let driver = text(&["/driver", "/source/docker_volume/driver"]);
        Self::new(source, target, mode, driver)
    }

    fn new(source: &str, target: &str, mode: Option<&str>, driver: Option<&str>) -> Result<Self, String> {
        let read_only = match mode.map(str::to_ascii_lowercase).as_deref() {
            None | Some("rw" | "") => false,
            Some("ro") => true,
            Some(other) => return Err(format!("has the mode {other:?}; expected rw or ro")),
        };
        if has_nul(source) || has_nul(target) {
            return Err(NUL.to_owned());
        }
        if source.is_empty() {
            return Err(format!("has an empty source; {EXPECTED}"));
        }
        if !target.starts_with('/') {
            return Err(format!(
                "has the container path {target:?}; expected an absolute path"
            ));
        }
        Ok(Self {
            source: source.to_owned(),
            driver: driver.map(str::to_owned),
            container_path: target.to_owned(),
            read_only,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn valid_mounts_are_parsed() {
        for (value, source, target, read_only, driver) in [
            (json!("/data:/mnt"), "/data", "/mnt", false, None),
            (json!("/data:/mnt:ro"), "/data", "/mnt", true, None),
            (json!("vol:/mnt:RW"), "vol", "/mnt", false, None),
            (
                json!({"source": "vol", "container_path": "/mnt", "mode": "RO", "driver": "nfs"}),
                "vol",
                "/mnt",
                true,
                Some("nfs"),
            ),
            (
                json!({"host_path": "/d", "target": "/m"}),
                "/d",
                "/m",
                false,
                None,
            ),
            (
                json!({"name": "v", "container_path": "/m", "read_only": true}),
                "v",
                "/m",
                true,
                None,
            ),
            (
                json!({"container_path": "/m", "mode": "RW",
                       "source": {"type": "DOCKER_VOLUME", "docker_volume": {"driver": "d", "name": "n"}}}),
                "n",
                "/m",
                false,
                Some("d"),
            ),
        ] {
            let mount = Mount::read(&value).unwrap();
            assert_eq!(
                (
                    &*mount.source,
                    &*mount.container_path,
                    mount.read_only,
                    mount.driver.as_deref()
                ),
                (source, target, read_only, driver),
                "{value}"
            );
            assert_eq!(mount.is_path(), source.starts_with('/'));
        }
    }

    #[test]
    fn invalid_mounts_are_rejected() {
        for (value, expected) in [
            (json!(1), "is a number"),
            (json!("/data"), "expected a string such as"),
            (json!("/data:mnt"), "an absolute path"),
            (json!("/data:/mnt:rx"), "expected rw or ro"),
            (json!("/a:/b:ro:z"), "too many colons"),
            (json!(":/b"), "empty source"),
            (json!({"source": "/a"}), "no container_path"),
            (json!("/a\u{0}:/b"), "NUL"),
        ] {
            let error = Mount::read(&value).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }
}
