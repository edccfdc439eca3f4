//! The agents of a matcher's case.

use serde::{Deserialize, Serialize};

use crate::{
    self_test::forms::Pairs,
    worlds::matcher::{Agent, Attribute, AttributeValue},
};

/// An agent in the form of a case.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenAgent {
    /// The cluster's id. Needed if two agents have the same host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    attributes: Pairs<GivenValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<(String, String)>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum GivenValue {
    Text(String),
    Scalar(f64),
    Ranges(Vec<(u64, u64)>),
    Set(Vec<String>),
    /// An empty set needs this form, because an empty list would be read as ranges.
    EmptySet {
        set: [String; 0],
    },
}

impl GivenAgent {
    /// The agent's name in a case: its id if it has one, otherwise its host name.
    pub(super) fn name(&self) -> &str {
        self.id.as_ref().unwrap_or(&self.hostname)
    }

    /// The name of a recorded call's agent in a case.
    pub(super) fn name_of(agent: &Agent) -> &str {
        &agent.id
    }

    pub(crate) fn of(agent: &Agent) -> GivenAgent {
        let attributes = agent
            .attributes
            .iter()
            .map(|it| (it.name.clone(), GivenValue::of(&it.value)));
        GivenAgent {
            id: Some(agent.id.clone()),
            hostname: agent.hostname.clone(),
            region: agent.region.clone(),
            zone: agent.zone.clone(),
            attributes: Pairs::of(attributes.collect()),
            extensions: agent.extensions.clone(),
        }
    }

    pub(super) fn into_agent(self, handle: u32) -> Agent {
        let attributes = self.attributes.into_pairs().into_iter();
        let attributes = attributes.map(|(name, value)| Attribute {
            name,
            value: value.into_value(),
        });
        Agent {
            handle,
            id: self.id.unwrap_or_else(|| format!("self-test-{handle}")),
            hostname: self.hostname,
            region: self.region,
            zone: self.zone,
            attributes: attributes.collect(),
            extensions: self.extensions,
        }
    }
}

impl GivenValue {
    fn of(value: &AttributeValue) -> GivenValue {
        match value {
            AttributeValue::Text(text) => GivenValue::Text(text.clone()),
            AttributeValue::Scalar(number) => GivenValue::Scalar(*number),
            AttributeValue::Ranges(ranges) => GivenValue::Ranges(ranges.clone()),
            AttributeValue::Set(set) if set.is_empty() => GivenValue::EmptySet { set: [] },
            AttributeValue::Set(set) => GivenValue::Set(set.clone()),
        }
    }

    fn into_value(self) -> AttributeValue {
        match self {
            GivenValue::Text(text) => AttributeValue::Text(text),
            GivenValue::Scalar(number) => AttributeValue::Scalar(number),
            GivenValue::Ranges(ranges) => AttributeValue::Ranges(ranges),
            GivenValue::Set(set) => AttributeValue::Set(set),
            GivenValue::EmptySet { .. } => AttributeValue::Set(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_agents_are_the_same_when_they_are_read_again() {
        let attribute = |name: &str, value| Attribute {
            name: name.to_owned(),
            value,
        };
        let agent = Agent {
            handle: 7,
            id: "agent-7".to_owned(),
            hostname: "node".to_owned(),
            region: Some("eu".to_owned()),
            zone: None,
            attributes: vec![
                attribute("rack", AttributeValue::Text("r1".to_owned())),
                attribute("cores", AttributeValue::Scalar(8.0)),
                attribute("rack", AttributeValue::Text("r2".to_owned())),
                attribute("ports", AttributeValue::Ranges(vec![(1, 2)])),
                attribute("none", AttributeValue::Ranges(Vec::new())),
                attribute("tags", AttributeValue::Set(vec!["a".to_owned()])),
                attribute("empty", AttributeValue::Set(Vec::new())),
            ],
            extensions: vec![("a".to_owned(), "b".to_owned())],
        };
        let case = serde_json::to_string(&GivenAgent::of(&agent)).unwrap();
        let read: GivenAgent = serde_json::from_str(&case).unwrap();
        assert_eq!(read.into_agent(7), agent, "{case}");
    }
}
