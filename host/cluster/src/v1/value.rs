//! Values, resources, attributes, labels, times and places: the parts of larger messages.

use super::Volume;
use super::macros::{messages, names};
use crate::ids::ResourceProviderId;
use std::time::Duration;

names! {
    /// The type of a resource's or attribute's value.
    ValueType { Scalar = "SCALAR", Ranges = "RANGES", Set = "SET", Text = "TEXT" }
}

messages! {
    /// A number. An unbounded one is infinite, which is the text `Infinity` on the wire.
    Scalar { must { #[serde(with = "unbounded")] value: f64 } }
    /// Whole numbers from `begin` to `end`, both included.
    Range { must { begin: u64, end: u64 } }
    /// Several ranges.
    Ranges { may { range: Vec<Range> } }
    /// A set of texts.
    Set { may { item: Vec<String> } }
    /// A text.
    Text { must { value: String } }
    /// A message without content; only its presence matters.
    Empty {}

    /// An attribute of an agent, set by its operator.
    Attribute {
        must { name: String, r#type: ValueType }
        may { scalar: Option<Scalar>, ranges: Option<Ranges>, set: Option<Set>, text: Option<Text> }
    }

    /// An amount of an agent's resource. A task that uses it must return all fields on its
    /// ownership (`role`, `allocation_info`, `reservations`, `disk`, ...) as they were offered.
    Resource {
        must { name: String, r#type: ValueType }
        may {
            provider_id: Option<ResourceProviderId>,
            scalar: Option<Scalar>,
            ranges: Option<Ranges>,
            set: Option<Set>,
            role: Option<String>,
            allocation_info: Option<AllocationInfo>,
            reservation: Option<ReservationInfo>,
            reservations: Vec<ReservationInfo>,
            disk: Option<DiskInfo>,
            revocable: Option<Empty>,
            shared: Option<Empty>,
        }
    }
    /// The role to which it was allocated.
    AllocationInfo { may { role: Option<String> } }
    /// The reservation of a resource.
    ReservationInfo {
        may { r#type: Option<String>, role: Option<String>, principal: Option<String>, labels: Option<Labels> }
    }
    /// Further properties of a disk resource.
    DiskInfo {
        may { persistence: Option<DiskPersistence>, volume: Option<Volume>, source: Option<serde_json::Value> }
    }
    /// A volume that outlives its task.
    DiskPersistence { must { id: String } may { principal: Option<String> } }

    /// A key with or without a value.
    Label { must { key: String } may { value: Option<String> } }
    /// Labels, in order; a key may come more than once.
    Labels { may { labels: Vec<Label> } }

    /// A point in time, in nanoseconds since 1970.
    TimeInfo { must { nanoseconds: i64 } }
    /// A duration, in nanoseconds.
    DurationInfo { must { nanoseconds: i64 } }

    /// The location of an agent.
    DomainInfo { may { fault_domain: Option<FaultDomain> } }
    /// A region and a zone in it.
    FaultDomain { must { region: DomainName, zone: DomainName } }
    /// The name of a region or zone.
    DomainName { must { name: String } }

    /// A secret: by value (base64) or by its name in the cluster's secret store.
    Secret { may { r#type: Option<String>, reference: Option<SecretReference>, value: Option<SecretValue> } }
    /// A secret's name and the key in it.
    SecretReference { must { name: String } may { key: Option<String> } }
    /// A secret's bytes, in base64.
    SecretValue { must { data: String } }

    /// Host and port.
    Address { must { port: u16 } may { hostname: Option<String>, ip: Option<String> } }
}

/// Numbers that may be infinite. JSON has no such number, so the cluster manager uses a text.
mod unbounded {
    use serde::de::{self, Deserializer, Visitor};
    use serde::ser::Serializer;

    const INFINITY: &str = "Infinity";

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if *value == f64::INFINITY {
            serializer.serialize_str(INFINITY)
        } else {
            serializer.serialize_f64(*value)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_any(Number)
    }

    struct Number;

    impl Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a number or \"Infinity\"")
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
            match text {
                INFINITY => Ok(f64::INFINITY),
                _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use crate::v1::Scalar;

        #[test]
        fn infinite_number_is_a_text_on_the_wire() {
            for (text, value) in [
                (r#"{"value":1.5}"#, 1.5),
                (r#"{"value":2.0}"#, 2.0),
                (r#"{"value":"Infinity"}"#, f64::INFINITY),
            ] {
                let scalar = Scalar { value };
                assert_eq!(serde_json::to_string(&scalar).unwrap(), text);
                assert_eq!(serde_json::from_str::<Scalar>(text).unwrap(), scalar);
            }
            let whole = serde_json::from_str::<Scalar>(r#"{"value":-2}"#).unwrap();
            assert_eq!(whole, Scalar { value: -2.0 });
            let error = serde_json::from_str::<Scalar>(r#"{"value":"much"}"#).unwrap_err();
            assert!(error.to_string().contains("a number"), "{error}");
        }
    }
}

impl Resource {
    /// An amount of `name`, without a role.
    pub fn scalar(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            r#type: ValueType::Scalar,
            scalar: Some(Scalar { value }),
            ..Self::default()
        }
    }

    /// Ranges of `name`, each from first to last inclusive, without a role.
    pub fn ranges(name: impl Into<String>, ranges: &[(u64, u64)]) -> Self {
        let range = ranges.iter().map(|&(begin, end)| Range { begin, end }).collect();
        Self {
            name: name.into(),
            r#type: ValueType::Ranges,
            ranges: Some(Ranges { range }),
            ..Self::default()
        }
    }

    /// The amount, when this is a scalar.
    pub fn scalar_value(&self) -> Option<f64> {
        self.scalar.as_ref().map(|scalar| scalar.value)
    }

    /// The ranges, each from first to last inclusive; none for another type.
    pub fn port_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges
            .iter()
            .flat_map(|ranges| &ranges.range)
            .map(|range| (range.begin, range.end))
    }
}

impl DiskInfo {
    /// The type of the disk, such as `PATH` or `MOUNT`; none for the agent's own file system.
    pub fn source_type(&self) -> Option<&str> {
        self.source.as_ref()?.get("type")?.as_str()
    }

    /// The directory of a `PATH` or `MOUNT` disk, if it is known.
    pub fn root(&self) -> Option<&str> {
        let source = self.source.as_ref()?;
        let part = match self.source_type()? {
            "PATH" => source.get("path")?,
            "MOUNT" => source.get("mount")?,
            _ => return None,
        };
        part.get("root")?.as_str()
    }

    /// The profile of the disk, which a storage provider assigned.
    pub fn profile(&self) -> Option<&str> {
        self.source.as_ref()?.get("profile")?.as_str()
    }
}

impl Attribute {
    /// A text attribute.
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        let text = Some(Text { value: value.into() });
        Self {
            name: name.into(),
            r#type: ValueType::Text,
            text,
            ..Self::default()
        }
    }
}

impl Labels {
    /// The value of the first label with that key; an empty text when the label has none.
    pub fn get(&self, key: &str) -> Option<&str> {
        let label = self.labels.iter().find(|label| label.key == key)?;
        Some(label.value.as_deref().unwrap_or_default())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let label = |(key, value): (K, V)| Label {
            key: key.into(),
            value: Some(value.into()),
        };
        Self {
            labels: pairs.into_iter().map(label).collect(),
        }
    }
}

impl From<Duration> for DurationInfo {
    /// Durations above 292 years are truncated to that.
    fn from(span: Duration) -> Self {
        Self {
            nanoseconds: i64::try_from(span.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

impl DurationInfo {
    /// The duration; a negative one becomes zero.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanoseconds).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DiskInfo;

    #[test]
    fn disk_source_is_read_by_type() {
        let disk = |source: serde_json::Value| DiskInfo {
            source: Some(source),
            ..DiskInfo::default()
        };
        let path = disk(json!({"type": "PATH", "path": {"root": "/mnt/p"}, "profile": "fast"}));
        assert_eq!(
            (path.source_type(), path.root(), path.profile()),
            (Some("PATH"), Some("/mnt/p"), Some("fast"))
        );
        let mount = disk(json!({"type": "MOUNT", "mount": {"root": "/mnt/m"}}));
        assert_eq!((mount.root(), mount.profile()), (Some("/mnt/m"), None));
        let block = disk(json!({"type": "BLOCK", "id": "b", "mount": {"root": "/mnt/m"}}));
        assert_eq!((block.source_type(), block.root()), (Some("BLOCK"), None));
        assert_eq!(DiskInfo::default().source_type(), None);
    }
}
