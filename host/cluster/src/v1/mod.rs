//! The cluster manager's v1 messages, as far as this project uses them.
//!
//! Types and fields are named as in the cluster manager's protobuf files, in the JSON form: field
//! names in `snake_case`, names of enumerations in capitals, bytes in base64, times in seconds or
//! nanoseconds as each field's name says. Where a message is nested in another one, its name
//! carries the outer one's (`CheckInfo.Http` is [`CheckHttp`]). Fields that the cluster manager
//! requires must be present; every other field is an `Option` or a `Vec` and is not written when
//! empty. Fields and names from other versions are ignored or kept as text, never an error.
//!
//! Nothing here does I/O; see [`crate::Client`].

pub(crate) mod macros;

mod agent;
mod check;
mod container;
mod framework;
mod offer;
mod task;
mod value;

pub use agent::{AgentInfo, MasterAddress, MasterInfo, TypeOnly};
pub use check::{
    CheckCommand, CheckHttp, CheckInfo, CheckStatusCommand, CheckStatusHttp, CheckStatusInfo, CheckStatusTcp,
    CheckTcp, CheckType, HealthCheck, HealthHttp, HealthTcp,
};
pub use container::{
    CommandInfo, ContainerInfo, ContainerStatus, ContainerType, DockerImage, DockerInfo, DockerNetwork,
    DockerVolume, Environment, Image, ImageType, IpAddress, MesosInfo, NetworkInfo, NetworkPortMapping,
    Parameter, Parameters, PortMapping, Uri, Variable, Volume, VolumeHostPath, VolumeMode, VolumeSandboxPath,
    VolumeSource,
};
pub use framework::{Capability, CapabilityType, FrameworkInfo};
pub use offer::{
    Filters, InverseOffer, Launch, LaunchGroup, Offer, Operation, OperationResources, OperationStatus,
    OperationType, OperationUuid, OperationVolumes, Unavailability, Url,
};
pub use task::{
    DiscoveryInfo, ExecutorInfo, ExecutorType, KillPolicy, Port, Ports, Task, TaskGroupInfo, TaskInfo,
    TaskState, TaskStatus, Visibility,
};
pub use value::{
    Address, AllocationInfo, Attribute, DiskInfo, DiskPersistence, DomainInfo, DomainName, DurationInfo,
    Empty, FaultDomain, Label, Labels, Range, Ranges, ReservationInfo, Resource, Scalar, Secret,
    SecretReference, SecretValue, Set, Text, TimeInfo, ValueType,
};
