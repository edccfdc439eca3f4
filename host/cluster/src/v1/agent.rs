//! The machines of the cluster: masters and agents.

use super::macros::messages;
use super::{Address, Attribute, DomainInfo, Resource};
use crate::ids::AgentId;

/// A master's address: the same parts as any other.
pub type MasterAddress = Address;

messages! {
    /// A master, as described to its frameworks. `ip` is the address's four bytes in network order
    /// read as a little-endian number; use `address`.
    MasterInfo {
        must { id: String }
        may {
            ip: Option<u32>,
            port: Option<u16>,
            pid: Option<String>,
            hostname: Option<String>,
            version: Option<String>,
            address: Option<MasterAddress>,
            domain: Option<DomainInfo>,
            capabilities: Vec<TypeOnly>,
        }
    }
    /// A capability of a master or an agent: a name.
    TypeOnly { may { r#type: Option<String> } }

    /// An agent, as it registered.
    AgentInfo {
        must { hostname: String }
        may {
            port: Option<u16>,
            resources: Vec<Resource>,
            attributes: Vec<Attribute>,
            id: Option<AgentId>,
            domain: Option<DomainInfo>,
            checkpoint: Option<bool>,
        }
    }
}
