//! Documents of offers that were not used for an app or pod.

use schemars::JsonSchema;
use serde::Serialize;
use transom_cluster::v1;

use crate::time::Moment;

/// An offer in which no instance was launched.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct UnusedOffer<'a> {
    offer: Offer<'a>,
    timestamp: Moment,
    /// Why it was not used; the names are those of the summaries.
    reason: Vec<&'static str>,
}

/// An offer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Offer<'a> {
    id: &'a str,
    hostname: &'a str,
    agent_id: &'a str,
    resources: Vec<OfferResource<'a>>,
    attributes: Vec<AgentAttribute<'a>>,
}

/// An offered resource, with the value of its type.
#[derive(Debug, Serialize, JsonSchema)]
struct OfferResource<'a> {
    name: &'a str,
    /// The role for which it is reserved; `*`: none.
    role: &'a str,
    #[serde(flatten)]
    value: Value<'a>,
}

/// An attribute of the agent, with the value of its type.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentAttribute<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(flatten)]
    value: Value<'a>,
}

/// At most one of the values.
#[derive(Debug, Serialize, JsonSchema)]
struct Value<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    scalar: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<NumberRange>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<&'a [String]>,
}

/// Whole numbers, both ends included.
#[derive(Debug, Serialize, JsonSchema)]
struct NumberRange {
    begin: u64,
    end: u64,
}

impl<'a> UnusedOffer<'a> {
    pub(super) fn new(unused: &'a transom_scheduler::UnusedOffer) -> Self {
        let resources = unused.resources.iter().map(|resource| OfferResource {
            name: &resource.name,
            role: role(resource),
            value: Value::new(
                resource.scalar.as_ref(),
                resource.ranges.as_ref(),
                resource.set.as_ref(),
            ),
        });
        let attributes = unused.attributes.iter().map(|attribute| AgentAttribute {
            name: &attribute.name,
            text: attribute.text.as_ref().map(|text| text.value.as_str()),
            value: Value::new(
                attribute.scalar.as_ref(),
                attribute.ranges.as_ref(),
                attribute.set.as_ref(),
            ),
        });
        Self {
            offer: Offer {
                id: unused.offer.as_str(),
                hostname: &unused.agent.hostname,
                agent_id: unused.agent.id.as_str(),
                resources: resources.collect(),
                attributes: attributes.collect(),
            },
            timestamp: Moment::from(unused.at),
            reason: unused.reasons.iter().map(|reason| reason.as_str()).collect(),
        }
    }
}

impl<'a> Value<'a> {
    fn new(scalar: Option<&v1::Scalar>, ranges: Option<&v1::Ranges>, set: Option<&'a v1::Set>) -> Self {
        let range = |range: &v1::Range| NumberRange {
            begin: range.begin,
            end: range.end,
        };
        Self {
            // JSON has no infinite number.
            scalar: scalar
                .map(|scalar| scalar.value)
                .filter(|value| value.is_finite()),
            ranges: ranges.map(|ranges| ranges.range.iter().map(range).collect()),
            set: set.map(|set| set.item.as_slice()),
        }
    }
}

/// The role of the innermost reservation.
fn role(resource: &v1::Resource) -> &str {
    let reserved = resource.reservations.last().and_then(|one| one.role.as_deref());
    reserved.or(resource.role.as_deref()).unwrap_or("*")
}
