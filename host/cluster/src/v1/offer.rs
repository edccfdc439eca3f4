//! Offers, the calls that accept them, and the results of operations.

use super::macros::{messages, names};
use super::{
    Address, AllocationInfo, Attribute, DomainInfo, DurationInfo, ExecutorInfo, Parameter, Resource,
    TaskGroupInfo, TaskInfo, TimeInfo,
};
use crate::ids::{AgentId, ExecutorId, FrameworkId, OfferId, OperationId};
use std::time::Duration;

names! {
    /// The type of an operation.
    OperationType {
        Unknown = "UNKNOWN",
        Launch = "LAUNCH",
        LaunchGroup = "LAUNCH_GROUP",
        Reserve = "RESERVE",
        Unreserve = "UNRESERVE",
        Create = "CREATE",
        Destroy = "DESTROY",
    }
}

messages! {
    /// The resources that one agent offers to one framework (and one of its roles).
    Offer {
        must { id: OfferId, framework_id: FrameworkId, agent_id: AgentId, hostname: String }
        may {
            url: Option<Url>,
            domain: Option<DomainInfo>,
            resources: Vec<Resource>,
            attributes: Vec<Attribute>,
            executor_ids: Vec<ExecutorId>,
            unavailability: Option<Unavailability>,
            allocation_info: Option<AllocationInfo>,
        }
    }
    /// An inverse offer: a request to return resources before maintenance.
    InverseOffer {
        must { id: OfferId, framework_id: FrameworkId, unavailability: Unavailability }
        may { url: Option<Url>, agent_id: Option<AgentId>, resources: Vec<Resource> }
    }
    /// Planned maintenance; without duration it does not end.
    Unavailability { must { start: TimeInfo } may { duration: Option<DurationInfo> } }
    /// An address in parts: an agent's own HTTP API, path included.
    Url {
        must { scheme: String, address: Address }
        may { path: Option<String>, query: Vec<Parameter>, fragment: Option<String> }
    }

    /// How long the declined or unused rest of an offer is not offered again; the master's default
    /// is 5 seconds.
    Filters { may { refuse_seconds: Option<f64> } }

    /// One operation on an offer; the field named like the type is set.
    Operation {
        must { r#type: OperationType }
        may {
            id: Option<OperationId>,
            launch: Option<Launch>,
            launch_group: Option<LaunchGroup>,
            reserve: Option<OperationResources>,
            unreserve: Option<OperationResources>,
            create: Option<OperationVolumes>,
            destroy: Option<OperationVolumes>,
        }
    }
    /// Tasks to run, each under its own executor.
    Launch { may { task_infos: Vec<TaskInfo> } }
    /// Tasks to run together under one executor.
    LaunchGroup { must { executor: ExecutorInfo, task_group: TaskGroupInfo } }
    /// Resources to reserve or to unreserve.
    OperationResources { may { resources: Vec<Resource> } }
    /// Volumes to create or to destroy.
    OperationVolumes { may { volumes: Vec<Resource> } }

    /// The status of an operation with an id. `state` is the cluster manager's name
    /// (`OPERATION_FINISHED`, ...).
    OperationStatus {
        must { state: String }
        may {
            operation_id: Option<OperationId>,
            message: Option<String>,
            converted_resources: Vec<Resource>,
            uuid: Option<OperationUuid>,
            agent_id: Option<AgentId>,
        }
    }
    /// 16 bytes in base64.
    OperationUuid { must { value: String } }
}

impl Operation {
    /// LAUNCH of these tasks.
    pub fn launch(task_infos: Vec<TaskInfo>) -> Self {
        Self {
            r#type: OperationType::Launch,
            launch: Some(Launch { task_infos }),
            ..Self::default()
        }
    }

    /// `LAUNCH_GROUP` of these tasks under that executor.
    pub fn launch_group(executor: ExecutorInfo, tasks: Vec<TaskInfo>) -> Self {
        let launch_group = Some(LaunchGroup {
            executor,
            task_group: TaskGroupInfo { tasks },
        });
        Self {
            r#type: OperationType::LaunchGroup,
            launch_group,
            ..Self::default()
        }
    }
}

impl Operation {
    /// RESERVE: `resources` as they are to become, each with one reservation more than offered.
    pub fn reserve(resources: Vec<Resource>) -> Self {
        Self {
            r#type: OperationType::Reserve,
            reserve: Some(OperationResources { resources }),
            ..Self::default()
        }
    }

    /// UNRESERVE: removes the last reservation of each of the resources, which are as offered and no
    /// volumes.
    pub fn unreserve(resources: Vec<Resource>) -> Self {
        Self {
            r#type: OperationType::Unreserve,
            unreserve: Some(OperationResources { resources }),
            ..Self::default()
        }
    }

    /// CREATE of persistent volumes on reserved disks.
    pub fn create(volumes: Vec<Resource>) -> Self {
        Self {
            r#type: OperationType::Create,
            create: Some(OperationVolumes { volumes }),
            ..Self::default()
        }
    }

    /// DESTROY of persistent volumes with their data; the disks stay reserved.
    pub fn destroy(volumes: Vec<Resource>) -> Self {
        Self {
            r#type: OperationType::Destroy,
            destroy: Some(OperationVolumes { volumes }),
            ..Self::default()
        }
    }
}

impl Filters {
    /// A filter for that duration.
    pub fn refuse(span: Duration) -> Self {
        Self {
            refuse_seconds: Some(span.as_secs_f64()),
        }
    }
}
