//! The messages that are read, with the fields that are read; all others are skipped.
//!
//! Fields whose names begin with `obsolete` are those that Marathon 1.5 and its migration replaced.
//! A definition with one of them is rejected rather than read without it.

/// Declares messages: each field with its type here, its number, and its type in protobuf.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$note:meta])* $field:ident: $type:ty = $number:tt [$($kind:tt)+];)*
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct $name {
            $($(#[$note])* #[prost($($kind)+, tag = $number)] pub(super) $field: $type,)*
        }
    )* };
}

messages! {
    StoreEntry {
        value: Vec<u8> = 3 [bytes = "vec", required];
    }

    StorageVersion {
        major: u32 = 1 [uint32, required];
        minor: u32 = 2 [uint32, required];
        patch: u32 = 3 [uint32, required];
        /// 0: the format before 1.4, 1: the present one.
        format: Option<i32> = 4 [int32, optional];
    }

    /// `mesos.FrameworkID`, `mesos.TaskID` and `mesos.SlaveID`.
    Id {
        value: String = 1 [string, required];
    }

    Group {
        id: String = 1 [string, required];
        version: String = 2 [string, required];
        groups: Vec<Group> = 4 [message, repeated];
        dependencies: Vec<String> = 5 [string, repeated];
        apps: Vec<Reference> = 6 [message, repeated];
        pods: Vec<Reference> = 7 [message, repeated];
        enforce_role: Option<bool> = 9 [bool, optional];
    }

    Reference {
        id: String = 1 [string, required];
        version: String = 2 [string, required];
    }

    Deployment {
        id: String = 1 [string, required];
    }

    TaskFailure {
        app_id: String = 1 [string, required];
        task_id: Id = 2 [message, required];
        state: i32 = 3 [int32, required];
        message: Option<String> = 4 [string, optional];
        host: Option<String> = 5 [string, optional];
        version: String = 6 [string, required];
        timestamp: String = 7 [string, required];
        agent_id: Option<Id> = 8 [message, optional];
    }

    Service {
        id: String = 1 [string, required];
        cmd: Command = 2 [message, required];
        instances: u32 = 3 [uint32, required];
        resources: Vec<Resource> = 4 [message, repeated];
        obsolete_ports: Vec<u32> = 6 [uint32, repeated, packed = "false"];
        constraints: Vec<Constraint> = 7 [message, repeated];
        executor: String = 8 [string, required];
        obsolete_container: Option<Vec<u8>> = 10 [bytes = "vec", optional];
        version: Option<String> = 11 [string, optional];
        health_checks: Vec<HealthCheck> = 12 [message, repeated];
        backoff: Option<i64> = 13 [int64, optional];
        backoff_factor: Option<f64> = 14 [double, optional];
        upgrade_strategy: Option<UpgradeStrategy> = 15 [message, optional];
        dependencies: Vec<String> = 16 [string, repeated];
        store_urls: Vec<String> = 17 [string, repeated];
        require_ports: Option<bool> = 18 [bool, optional];
        container: Option<Container> = 19 [message, optional];
        labels: Vec<Pair> = 20 [message, repeated];
        max_launch_delay: Option<i64> = 21 [int64, optional];
        accepted_resource_roles: Option<Roles> = 22 [message, optional];
        last_scaling_at: Option<i64> = 23 [int64, optional];
        last_config_change_at: Option<i64> = 24 [int64, optional];
        obsolete_ip_address: Option<Vec<u8>> = 25 [bytes = "vec", optional];
        residency: Option<Residency> = 26 [message, optional];
        port_definitions: Vec<Port> = 27 [message, repeated];
        readiness_checks: Vec<ReadinessCheck> = 28 [message, repeated];
        secrets: Vec<Secret> = 29 [message, repeated];
        env_references: Vec<EnvReference> = 30 [message, repeated];
        task_kill_grace_period: Option<i64> = 31 [int64, optional];
        unreachable_strategy: Option<UnreachableStrategy> = 32 [message, optional];
        kill_selection: Option<i32> = 33 [int32, optional];
        networks: Vec<Network> = 34 [message, repeated];
        tty: Option<Vec<u8>> = 35 [bytes = "vec", optional];
        executor_resources: Vec<Resource> = 36 [message, repeated];
        check: Option<Check> = 37 [message, optional];
        role: Option<String> = 38 [string, optional];
        resource_limits: Option<Limits> = 39 [message, optional];
    }

    /// `mesos.CommandInfo`.
    Command {
        uris: Vec<Uri> = 1 [message, repeated];
        environment: Option<Environment> = 2 [message, optional];
        value: Option<String> = 3 [string, optional];
        user: Option<String> = 5 [string, optional];
        shell: Option<bool> = 6 [bool, optional];
        arguments: Vec<String> = 7 [string, repeated];
    }

    Uri {
        value: String = 1 [string, required];
        executable: Option<bool> = 2 [bool, optional];
        extract: Option<bool> = 3 [bool, optional];
        cache: Option<bool> = 4 [bool, optional];
        output_file: Option<String> = 5 [string, optional];
    }

    Environment {
        variables: Vec<Pair> = 1 [message, repeated];
    }

    /// `mesos.Parameter`, `mesos.Label` and `mesos.Environment.Variable`.
    Pair {
        key: String = 1 [string, required];
        value: Option<String> = 2 [string, optional];
    }

    Resource {
        name: String = 1 [string, required];
        scalar: Option<Scalar> = 3 [message, optional];
    }

    Scalar {
        value: f64 = 1 [double, required];
    }

    Constraint {
        field: String = 1 [string, required];
        operator: i32 = 2 [int32, required];
        value: Option<String> = 3 [string, optional];
    }

    UpgradeStrategy {
        minimum_health_capacity: f64 = 1 [double, required];
        maximum_over_capacity: Option<f64> = 2 [double, optional];
    }

    Roles {
        role: Vec<String> = 1 [string, repeated];
    }

    Residency {
        relaunch_escalation_timeout_seconds: Option<i64> = 1 [int64, optional];
        task_lost_behavior: Option<i32> = 2 [int32, optional];
    }

    /// `mesos.Port`.
    Port {
        number: u32 = 1 [uint32, required];
        name: Option<String> = 2 [string, optional];
        protocol: Option<String> = 3 [string, optional];
        labels: Option<Labels> = 5 [message, optional];
    }

    /// `mesos.Labels`.
    Labels {
        labels: Vec<Pair> = 1 [message, repeated];
    }

    Secret {
        id: String = 1 [string, required];
        source: String = 2 [string, required];
    }

    EnvReference {
        kind: i32 = 1 [int32, required];
        name: String = 2 [string, required];
        secret: Option<Id> = 3 [message, optional];
    }

    UnreachableStrategy {
        inactive_after_seconds: Option<u64> = 1 [uint64, optional];
        expunge_after_seconds: Option<u64> = 2 [uint64, optional];
    }

    Network {
        mode: Option<i32> = 1 [int32, optional];
        name: Option<String> = 2 [string, optional];
        labels: Vec<Pair> = 3 [message, repeated];
    }

    Limits {
        cpus: Option<f64> = 1 [double, optional];
        mem: Option<f64> = 2 [double, optional];
    }

    HealthCheck {
        protocol: i32 = 1 [int32, required];
        port_index: Option<u32> = 2 [uint32, optional];
        grace_period_seconds: Option<u32> = 3 [uint32, optional];
        interval_seconds: Option<u32> = 4 [uint32, optional];
        timeout_seconds: Option<u32> = 5 [uint32, optional];
        path: Option<String> = 6 [string, optional];
        max_consecutive_failures: Option<u32> = 7 [uint32, optional];
        command: Option<Command> = 8 [message, optional];
        ignore_http_1xx: Option<bool> = 9 [bool, optional];
        port: Option<u32> = 10 [uint32, optional];
        delay_seconds: Option<u32> = 11 [uint32, optional];
        port_name: Option<String> = 12 [string, optional];
        ip_protocol: Option<i32> = 13 [int32, optional];
    }

    Check {
        protocol: i32 = 1 [int32, required];
        interval_seconds: Option<u32> = 2 [uint32, optional];
        timeout_seconds: Option<u32> = 3 [uint32, optional];
        delay_seconds: Option<u32> = 4 [uint32, optional];
        port_index: Option<u32> = 5 [uint32, optional];
        port: Option<u32> = 6 [uint32, optional];
        path: Option<String> = 7 [string, optional];
        command: Option<Command> = 8 [message, optional];
    }

    ReadinessCheck {
        name: Option<String> = 1 [string, optional];
        protocol: Option<i32> = 2 [int32, optional];
        path: Option<String> = 3 [string, optional];
        port_name: Option<String> = 4 [string, optional];
        interval_millis: Option<u64> = 5 [uint64, optional];
        timeout_millis: Option<u64> = 6 [uint64, optional];
        http_status_codes: Vec<u32> = 7 [uint32, repeated, packed = "false"];
        preserve_last_response: Option<bool> = 8 [bool, optional];
    }

    Container {
        kind: i32 = 1 [int32, required];
        volumes: Vec<Volume> = 2 [message, repeated];
        docker: Option<Docker> = 3 [message, optional];
        mesos_docker: Option<MesosDocker> = 4 [message, optional];
        app_c: Option<Vec<u8>> = 5 [bytes = "vec", optional];
        port_mappings: Vec<PortMapping> = 6 [message, repeated];
        linux_info: Option<LinuxInfo> = 7 [message, optional];
    }

    Docker {
        image: String = 1 [string, required];
        obsolete_network: Option<i32> = 2 [int32, optional];
        obsolete_port_mappings: Vec<Vec<u8>> = 3 [bytes = "vec", repeated];
        privileged: Option<bool> = 4 [bool, optional];
        parameters: Vec<Pair> = 5 [message, repeated];
        force_pull_image: Option<bool> = 6 [bool, optional];
    }

    MesosDocker {
        image: String = 1 [string, required];
        obsolete_credential: Option<Vec<u8>> = 2 [bytes = "vec", optional];
        force_pull_image: Option<bool> = 3 [bool, optional];
        pull_config: Option<PullConfig> = 4 [message, optional];
    }

    PullConfig {
        secret: Option<PullSecret> = 2 [message, optional];
    }

    /// `mesos.Secret`.
    PullSecret {
        /// `mesos.Secret.Reference`, whose first field is the name.
        reference: Option<Id> = 2 [message, optional];
    }

    PortMapping {
        host_port: Option<u32> = 1 [uint32, optional];
        container_port: u32 = 2 [uint32, required];
        protocol: Option<String> = 3 [string, optional];
        name: Option<String> = 4 [string, optional];
        labels: Vec<Pair> = 5 [message, repeated];
        service_port: Option<u32> = 6 [uint32, optional];
        network_names: Vec<String> = 7 [string, repeated];
    }

    LinuxInfo {
        seccomp: Option<Seccomp> = 1 [message, optional];
        ipc: Option<Ipc> = 2 [message, optional];
    }

    Seccomp {
        profile_name: Option<String> = 1 [string, optional];
        unconfined: Option<bool> = 2 [bool, optional];
    }

    Ipc {
        mode: i32 = 1 [int32, required];
        shm_size: Option<u32> = 2 [uint32, optional];
    }

    Volume {
        container_path: String = 1 [string, required];
        host_path: Option<String> = 2 [string, optional];
        mode: i32 = 3 [int32, required];
        image: Option<Vec<u8>> = 4 [bytes = "vec", optional];
        persistent: Option<Persistent> = 5 [message, optional];
        external: Option<External> = 6 [message, optional];
        secret: Option<Id> = 7 [message, optional];
        csi: Option<Vec<u8>> = 8 [bytes = "vec", optional];
    }

    Persistent {
        size: u64 = 1 [uint64, required];
    }

    External {
        size: Option<u64> = 1 [uint64, optional];
        name: String = 2 [string, required];
        provider: String = 3 [string, required];
        options: Vec<Pair> = 4 [message, repeated];
        shared: Option<bool> = 5 [bool, optional];
    }
}
