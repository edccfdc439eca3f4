//! Identifiers of the cluster manager: one type each, so that an agent's id cannot be passed for a
//! task's.
//!
//! On the wire every id is an object, `{"value": "..."}`; the state document writes the same ids as
//! plain strings, which [`plain`] reads and writes. Cloning is cheap (the text is shared). The text is
//! opaque: nothing is checked here.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The wire form of all ids.
#[derive(Deserialize)]
struct Wire {
    value: Arc<str>,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text from the cluster manager.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Default for $name {
            /// The empty text, which is no valid id.
            fn default() -> Self {
                Self(Arc::from(""))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = serializer.serialize_struct(stringify!($name), 1)?;
                object.serialize_field("value", &*self.0)?;
                object.end()
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Wire::deserialize(deserializer).map(|wire| Self(wire.value))
            }
        }
    )*};
}

ids! {
    /// An agent; assigned by the master at registration, kept over restarts of the agent.
    AgentId
    /// A framework; assigned by the master at the first subscription, and sent again at each later
    /// one.
    FrameworkId
    /// A task; chosen by the framework, unique within it.
    TaskId
    /// An offer; valid for one ACCEPT or DECLINE, or until it is rescinded.
    OfferId
    /// An executor, chosen by the framework (a command task's executor has the task's id).
    ExecutorId
    /// An offer operation with feedback; chosen by the framework.
    OperationId
    /// A resource provider on an agent.
    ResourceProviderId
}

/// A container on an agent; assigned by the agent. A nested container (a task of a task group, a
/// session in a running task) has a parent; [`Display`](fmt::Display) joins the chain with dots, as
/// agents do.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct ContainerId {
    /// The id within the parent.
    pub value: Arc<str>,
    /// The parent container; none for a top-level container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<ContainerId>>,
}

impl ContainerId {
    /// The last part of the id, without its parents.
    pub fn as_str(&self) -> &str {
        &self.value
    }

    /// The container with this id inside this one.
    pub fn child(&self, value: impl Into<Arc<str>>) -> Self {
        Self {
            value: value.into(),
            parent: Some(Arc::new(self.clone())),
        }
    }
}

impl From<&str> for ContainerId {
    fn from(text: &str) -> Self {
        Self {
            value: Arc::from(text),
            parent: None,
        }
    }
}

impl From<String> for ContainerId {
    fn from(text: String) -> Self {
        Self {
            value: Arc::from(text),
            parent: None,
        }
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = &self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(&self.value)
    }
}

/// Ids as plain strings, as in the state document: `#[serde(with =
/// "transom_cluster::ids::plain")]`.
pub mod plain {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the bare text.
    pub fn serialize<T: AsRef<str>, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(id.as_ref())
    }

    /// Reads the bare text.
    pub fn deserialize<'de, T: From<String>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        String::deserialize(deserializer).map(T::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_objects_on_the_wire() {
        let id: TaskId = serde_json::from_str(r#"{"value":"a.b","extra":1}"#).unwrap();
        assert_eq!(id, TaskId::from("a.b"));
        assert_eq!(serde_json::to_string(&id).unwrap(), r#"{"value":"a.b"}"#);
        assert_eq!(format!("{id} {id:?}"), r#"a.b TaskId("a.b")"#);
        assert!(serde_json::from_str::<TaskId>(r#""a.b""#).is_err());
        assert!(serde_json::from_str::<TaskId>("{}").is_err());
    }

    #[test]
    fn containers_carry_their_parents() {
        let wire = r#"{"value":"inner","parent":{"value":"outer"}}"#;
        let id: ContainerId = serde_json::from_str(wire).unwrap();
        assert_eq!(id, ContainerId::from("outer").child("inner"));
        assert_eq!(id.to_string(), "outer.inner");
        assert_eq!(serde_json::to_string(&id).unwrap(), wire);
    }

    #[test]
    fn plain_ids_are_strings() {
        #[derive(Serialize, Deserialize)]
        struct Slave {
            #[serde(with = "plain")]
            id: AgentId,
        }
        let slave: Slave = serde_json::from_str(r#"{"id":"S0"}"#).unwrap();
        assert_eq!(slave.id, AgentId::from("S0"));
        assert_eq!(serde_json::to_string(&slave).unwrap(), r#"{"id":"S0"}"#);
    }
}
