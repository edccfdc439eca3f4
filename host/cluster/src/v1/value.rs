//! Values, resources, attributes, labels, times and places: what the larger messages are made of.

use super::Volume;
use super::macros::{messages, names};
use crate::ids::ResourceProviderId;
use std::time::Duration;

names! {
    /// What kind of value a resource or attribute has.
    ValueType { Scalar = "SCALAR", Ranges = "RANGES", Set = "SET", Text = "TEXT" }
}

messages! {
    /// A number.
    Scalar { must { value: f64 } }
    /// Whole numbers from `begin` to `end`, both included.
    Range { must { begin: u64, end: u64 } }
    /// Several ranges.
    Ranges { may { range: Vec<Range> } }
    /// A set of texts.
    Set { may { item: Vec<String> } }
    /// A text.
    Text { must { value: String } }
    /// A message without content that is kept for being there or not.
    Empty {}

    /// A fact about an agent, set by its operator.
    Attribute {
        must { name: String, r#type: ValueType }
        may { scalar: Option<Scalar>, ranges: Option<Ranges>, set: Option<Set>, text: Option<Text> }
    }

    /// An amount of something an agent has. All that says whose it is (`role`, `allocation_info`, `reservations`,
    /// `disk`, ...) must be handed back as it was offered when a task uses it.
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
    /// The role on whose behalf something was offered.
    AllocationInfo { may { role: Option<String> } }
    /// For whom a resource is set aside.
    ReservationInfo {
        may { r#type: Option<String>, role: Option<String>, principal: Option<String>, labels: Option<Labels> }
    }
    /// A disk that is more than bytes.
    DiskInfo {
        may { persistence: Option<DiskPersistence>, volume: Option<Volume>, source: Option<serde_json::Value> }
    }
    /// A volume that outlives its task.
    DiskPersistence { must { id: String } may { principal: Option<String> } }

    /// A key with or without a value.
    Label { must { key: String } may { value: Option<String> } }
    /// Labels, in order; a key may come more than once.
    Labels { may { labels: Vec<Label> } }

    /// A moment, in nanoseconds since 1970.
    TimeInfo { must { nanoseconds: i64 } }
    /// A span, in nanoseconds.
    DurationInfo { must { nanoseconds: i64 } }

    /// Where an agent stands.
    DomainInfo { may { fault_domain: Option<FaultDomain> } }
    /// A region and a zone in it.
    FaultDomain { must { region: DomainName, zone: DomainName } }
    /// The name of a region or zone.
    DomainName { must { name: String } }

    /// Something that is not shown: by value (base64) or by the name under which the cluster keeps it.
    Secret { may { r#type: Option<String>, reference: Option<SecretReference>, value: Option<SecretValue> } }
    /// A secret's name and the key in it.
    SecretReference { must { name: String } may { key: Option<String> } }
    /// A secret's bytes, in base64.
    SecretValue { must { data: String } }

    /// Host and port.
    Address { must { port: u16 } may { hostname: Option<String>, ip: Option<String> } }
}

impl Resource {
    /// So much of `name`, for no role in particular.
    pub fn scalar(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            r#type: ValueType::Scalar,
            scalar: Some(Scalar { value }),
            ..Self::default()
        }
    }

    /// Ranges of `name`, each from first to last included, for no role in particular.
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

    /// The ranges, each from first to last included; none when this is something else.
    pub fn port_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges
            .iter()
            .flat_map(|ranges| &ranges.range)
            .map(|range| (range.begin, range.end))
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
    /// Spans beyond 292 years are cut to that.
    fn from(span: Duration) -> Self {
        Self {
            nanoseconds: i64::try_from(span.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

impl DurationInfo {
    /// The span; a negative one is zero.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanoseconds).unwrap_or(0))
    }
}
