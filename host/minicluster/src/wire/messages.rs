//! The tables of the clients' messages: scheduler calls, operator calls, agent calls.

use super::schema::{
    Kind::{Any, Bool, Bytes, Enum, Float, Int, Message as Sub, Text},
    Message, message, opt, rep, req,
};

static ID: Message = message(&[req("value", Text)]);
static DURATION: Message = message(&[req("nanoseconds", Int)]);
static TIME: Message = message(&[req("nanoseconds", Int)]);
static LABELS: Message = message(&[rep("labels", Sub(&LABEL))]);
static LABEL: Message = message(&[req("key", Text), opt("value", Text)]);
static CONTAINER_ID: Message = message(&[req("value", Text), opt("parent", Sub(&CONTAINER_ID))]);

static SCALAR: Message = message(&[req("value", Float)]);
static RANGE: Message = message(&[req("begin", Int), req("end", Int)]);
static RANGES: Message = message(&[rep("range", Sub(&RANGE))]);
static SET: Message = message(&[rep("item", Text)]);
static ALLOCATION: Message = message(&[opt("role", Text)]);
static RESOURCE: Message = message(&[
    req("name", Text),
    req("type", Enum(&["SCALAR", "RANGES", "SET", "TEXT"])),
    opt("scalar", Sub(&SCALAR)),
    opt("ranges", Sub(&RANGES)),
    opt("set", Sub(&SET)),
    opt("role", Text),
    opt("allocation_info", Sub(&ALLOCATION)),
    rep("reservations", Any),
    opt("reservation", Any),
    opt("disk", Any),
    opt("revocable", Any),
    opt("shared", Any),
]);

static VARIABLE: Message = message(&[
    req("name", Text),
    opt("type", Enum(&["UNKNOWN", "VALUE", "SECRET"])),
    opt("value", Text),
    opt("secret", Any),
]);
static ENVIRONMENT: Message = message(&[rep("variables", Sub(&VARIABLE))]);
static URI: Message = message(&[
    req("value", Text),
    opt("executable", Bool),
    opt("extract", Bool),
    opt("cache", Bool),
    opt("output_file", Text),
]);
static COMMAND: Message = message(&[
    rep("uris", Sub(&URI)),
    opt("environment", Sub(&ENVIRONMENT)),
    opt("shell", Bool),
    opt("value", Text),
    rep("arguments", Text),
    opt("user", Text),
]);
static CHECK: Message = message(&[
    opt("type", Enum(&["COMMAND", "HTTP", "TCP"])),
    opt("command", Sub(&CHECK_COMMAND)),
    opt("http", Sub(&HTTP_CHECK)),
    opt("tcp", Sub(&TCP_CHECK)),
    opt("delay_seconds", Float),
    opt("interval_seconds", Float),
    opt("timeout_seconds", Float),
]);
static CHECK_COMMAND: Message = message(&[req("command", Sub(&COMMAND))]);
static HTTP_CHECK: Message = message(&[
    req("port", Int),
    opt("path", Text),
    opt("scheme", Text),
    rep("statuses", Int),
    opt("protocol", Text),
]);
static TCP_CHECK: Message = message(&[req("port", Int), opt("protocol", Text)]);
static HEALTH_CHECK: Message = message(&[
    opt("type", Enum(&["COMMAND", "HTTP", "TCP"])),
    opt("command", Sub(&COMMAND)),
    opt("http", Sub(&HTTP_CHECK)),
    opt("tcp", Sub(&TCP_CHECK)),
    opt("delay_seconds", Float),
    opt("interval_seconds", Float),
    opt("timeout_seconds", Float),
    opt("consecutive_failures", Int),
    opt("grace_period_seconds", Float),
]);
static KILL_POLICY: Message = message(&[opt("grace_period", Sub(&DURATION))]);
static EXECUTOR: Message = message(&[
    opt("type", Enum(&["DEFAULT", "CUSTOM"])),
    req("executor_id", Sub(&ID)),
    opt("framework_id", Sub(&ID)),
    opt("command", Sub(&COMMAND)),
    opt("container", Any),
    rep("resources", Sub(&RESOURCE)),
    opt("name", Text),
    opt("source", Text),
    opt("data", Bytes),
    opt("discovery", Any),
    opt("shutdown_grace_period", Sub(&DURATION)),
    opt("labels", Sub(&LABELS)),
]);
static TASK: Message = message(&[
    req("name", Text),
    req("task_id", Sub(&ID)),
    req("agent_id", Sub(&ID)),
    rep("resources", Sub(&RESOURCE)),
    opt("executor", Sub(&EXECUTOR)),
    opt("command", Sub(&COMMAND)),
    opt("container", Any),
    opt("health_check", Sub(&HEALTH_CHECK)),
    opt("check", Sub(&CHECK)),
    opt("kill_policy", Sub(&KILL_POLICY)),
    opt("data", Bytes),
    opt("labels", Sub(&LABELS)),
    opt("discovery", Any),
    opt("max_completion_time", Sub(&DURATION)),
    opt("limits", Any),
]);
const TASK_STATES: &[&str] = &[
    "TASK_STAGING",
    "TASK_STARTING",
    "TASK_RUNNING",
    "TASK_KILLING",
    "TASK_FINISHED",
    "TASK_FAILED",
    "TASK_KILLED",
    "TASK_ERROR",
    "TASK_LOST",
    "TASK_DROPPED",
    "TASK_UNREACHABLE",
    "TASK_GONE",
    "TASK_GONE_BY_OPERATOR",
    "TASK_UNKNOWN",
];
const REASONS: &[&str] = &[
    "REASON_COMMAND_EXECUTOR_FAILED",
    "REASON_CONTAINER_LAUNCH_FAILED",
    "REASON_CONTAINER_LIMITATION",
    "REASON_CONTAINER_LIMITATION_DISK",
    "REASON_CONTAINER_LIMITATION_MEMORY",
    "REASON_CONTAINER_PREEMPTED",
    "REASON_CONTAINER_UPDATE_FAILED",
    "REASON_MAX_COMPLETION_TIME_REACHED",
    "REASON_EXECUTOR_REGISTRATION_TIMEOUT",
    "REASON_EXECUTOR_REREGISTRATION_TIMEOUT",
    "REASON_EXECUTOR_TERMINATED",
    "REASON_EXECUTOR_UNREGISTERED",
    "REASON_FRAMEWORK_REMOVED",
    "REASON_GC_ERROR",
    "REASON_INVALID_FRAMEWORKID",
    "REASON_INVALID_OFFERS",
    "REASON_IO_SWITCHBOARD_EXITED",
    "REASON_MASTER_DISCONNECTED",
    "REASON_RECONCILIATION",
    "REASON_RESOURCES_UNKNOWN",
    "REASON_AGENT_DISCONNECTED",
    "REASON_AGENT_DRAINING",
    "REASON_AGENT_REMOVED",
    "REASON_AGENT_REMOVED_BY_OPERATOR",
    "REASON_AGENT_REREGISTERED",
    "REASON_AGENT_RESTARTED",
    "REASON_AGENT_UNKNOWN",
    "REASON_TASK_CHECK_STATUS_UPDATED",
    "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED",
    "REASON_TASK_GROUP_INVALID",
    "REASON_TASK_GROUP_UNAUTHORIZED",
    "REASON_TASK_INVALID",
    "REASON_TASK_KILLED_DURING_LAUNCH",
    "REASON_TASK_UNAUTHORIZED",
    "REASON_TASK_UNKNOWN",
];
static TASK_STATUS: Message = message(&[
    req("task_id", Sub(&ID)),
    req("state", Enum(TASK_STATES)),
    opt("message", Text),
    opt(
        "source",
        Enum(&["SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_EXECUTOR"]),
    ),
    opt("reason", Enum(REASONS)),
    opt("data", Bytes),
    opt("agent_id", Sub(&ID)),
    opt("executor_id", Sub(&ID)),
    opt("timestamp", Float),
    opt("uuid", Bytes),
    opt("healthy", Bool),
    opt("check_status", Any),
    opt("labels", Sub(&LABELS)),
    opt("container_status", Any),
    opt("unreachable_time", Sub(&TIME)),
    opt("limitation", Any),
]);
static EXECUTOR_UPDATE: Message = message(&[req("status", Sub(&TASK_STATUS))]);
static EXECUTOR_MESSAGE: Message = message(&[req("data", Bytes)]);
static EXECUTOR_SUBSCRIBE: Message = message(&[
    rep("unacknowledged_tasks", Sub(&TASK)),
    rep("unacknowledged_updates", Sub(&EXECUTOR_UPDATE)),
]);

/// `POST /api/v1/executor` of an agent.
pub(crate) static EXECUTOR_CALL: Message = message(&[
    req("executor_id", Sub(&ID)),
    req("framework_id", Sub(&ID)),
    opt("type", Enum(&["SUBSCRIBE", "UPDATE", "MESSAGE", "HEARTBEAT"])),
    opt("subscribe", Sub(&EXECUTOR_SUBSCRIBE)),
    opt("update", Sub(&EXECUTOR_UPDATE)),
    opt("message", Sub(&EXECUTOR_MESSAGE)),
]);

static TASK_GROUP: Message = message(&[rep("tasks", Sub(&TASK))]);

const CAPABILITIES: &[&str] = &[
    "REVOCABLE_RESOURCES",
    "TASK_KILLING_STATE",
    "GPU_RESOURCES",
    "SHARED_RESOURCES",
    "PARTITION_AWARE",
    "MULTI_ROLE",
    "RESERVATION_REFINEMENT",
    "REGION_AWARE",
];
static CAPABILITY: Message = message(&[opt("type", Enum(CAPABILITIES))]);
static FRAMEWORK: Message = message(&[
    req("user", Text),
    req("name", Text),
    opt("id", Sub(&ID)),
    opt("failover_timeout", Float),
    opt("checkpoint", Bool),
    opt("role", Text),
    rep("roles", Text),
    opt("hostname", Text),
    opt("principal", Text),
    opt("webui_url", Text),
    rep("capabilities", Sub(&CAPABILITY)),
    opt("labels", Sub(&LABELS)),
    opt("offer_filters", Any),
]);
static FILTERS: Message = message(&[opt("refuse_seconds", Float)]);

const OPERATIONS: &[&str] = &[
    "LAUNCH",
    "LAUNCH_GROUP",
    "RESERVE",
    "UNRESERVE",
    "CREATE",
    "DESTROY",
    "GROW_VOLUME",
    "SHRINK_VOLUME",
    "CREATE_DISK",
    "DESTROY_DISK",
];
static LAUNCH: Message = message(&[rep("task_infos", Sub(&TASK))]);
static LAUNCH_GROUP: Message = message(&[
    req("executor", Sub(&EXECUTOR)),
    req("task_group", Sub(&TASK_GROUP)),
]);
static RESERVE: Message = message(&[rep("resources", Sub(&RESOURCE))]);
static VOLUMES: Message = message(&[rep("volumes", Sub(&RESOURCE))]);
static OPERATION: Message = message(&[
    opt("type", Enum(OPERATIONS)),
    opt("id", Sub(&ID)),
    opt("launch", Sub(&LAUNCH)),
    opt("launch_group", Sub(&LAUNCH_GROUP)),
    opt("reserve", Sub(&RESERVE)),
    opt("unreserve", Sub(&RESERVE)),
    opt("create", Sub(&VOLUMES)),
    opt("destroy", Sub(&VOLUMES)),
]);

static SUBSCRIBE: Message = message(&[
    req("framework_info", Sub(&FRAMEWORK)),
    rep("suppressed_roles", Text),
    opt("offer_constraints", Any),
    opt("force", Bool),
]);
static ACCEPT: Message = message(&[
    rep("offer_ids", Sub(&ID)),
    rep("operations", Sub(&OPERATION)),
    opt("filters", Sub(&FILTERS)),
]);
static DECLINE: Message = message(&[rep("offer_ids", Sub(&ID)), opt("filters", Sub(&FILTERS))]);
static INVERSE_OFFERS: Message =
    message(&[rep("inverse_offer_ids", Sub(&ID)), opt("filters", Sub(&FILTERS))]);
static ROLES: Message = message(&[opt("role", Text), rep("roles", Text)]);
static KILL: Message = message(&[
    req("task_id", Sub(&ID)),
    opt("agent_id", Sub(&ID)),
    opt("kill_policy", Sub(&KILL_POLICY)),
]);
static SHUTDOWN: Message = message(&[req("executor_id", Sub(&ID)), req("agent_id", Sub(&ID))]);
static ACKNOWLEDGE: Message = message(&[
    req("agent_id", Sub(&ID)),
    req("task_id", Sub(&ID)),
    req("uuid", Bytes),
]);
static ACKNOWLEDGE_OPERATION: Message = message(&[
    opt("agent_id", Sub(&ID)),
    opt("resource_provider_id", Sub(&ID)),
    req("uuid", Bytes),
    req("operation_id", Sub(&ID)),
]);
static RECONCILE_TASK: Message = message(&[req("task_id", Sub(&ID)), opt("agent_id", Sub(&ID))]);
static RECONCILE: Message = message(&[rep("tasks", Sub(&RECONCILE_TASK))]);
static RECONCILE_OPERATION: Message = message(&[
    req("operation_id", Sub(&ID)),
    opt("agent_id", Sub(&ID)),
    opt("resource_provider_id", Sub(&ID)),
]);
static RECONCILE_OPERATIONS: Message = message(&[rep("operations", Sub(&RECONCILE_OPERATION))]);
static MESSAGE: Message = message(&[
    req("agent_id", Sub(&ID)),
    req("executor_id", Sub(&ID)),
    req("data", Bytes),
]);
static REQUEST: Message = message(&[rep("requests", Any)]);
static UPDATE_FRAMEWORK: Message = message(&[
    req("framework_info", Sub(&FRAMEWORK)),
    rep("suppressed_roles", Text),
    opt("offer_constraints", Any),
]);

/// `POST /api/v1/scheduler`.
pub(crate) static SCHEDULER_CALL: Message = message(&[
    opt("framework_id", Sub(&ID)),
    opt(
        "type",
        Enum(&[
            "SUBSCRIBE",
            "TEARDOWN",
            "ACCEPT",
            "DECLINE",
            "ACCEPT_INVERSE_OFFERS",
            "DECLINE_INVERSE_OFFERS",
            "REVIVE",
            "KILL",
            "SHUTDOWN",
            "ACKNOWLEDGE",
            "ACKNOWLEDGE_OPERATION_STATUS",
            "RECONCILE",
            "RECONCILE_OPERATIONS",
            "MESSAGE",
            "REQUEST",
            "SUPPRESS",
            "UPDATE_FRAMEWORK",
        ]),
    ),
    opt("subscribe", Sub(&SUBSCRIBE)),
    opt("accept", Sub(&ACCEPT)),
    opt("decline", Sub(&DECLINE)),
    opt("accept_inverse_offers", Sub(&INVERSE_OFFERS)),
    opt("decline_inverse_offers", Sub(&INVERSE_OFFERS)),
    opt("revive", Sub(&ROLES)),
    opt("suppress", Sub(&ROLES)),
    opt("kill", Sub(&KILL)),
    opt("shutdown", Sub(&SHUTDOWN)),
    opt("acknowledge", Sub(&ACKNOWLEDGE)),
    opt("acknowledge_operation_status", Sub(&ACKNOWLEDGE_OPERATION)),
    opt("reconcile", Sub(&RECONCILE)),
    opt("reconcile_operations", Sub(&RECONCILE_OPERATIONS)),
    opt("message", Sub(&MESSAGE)),
    opt("request", Sub(&REQUEST)),
    opt("update_framework", Sub(&UPDATE_FRAMEWORK)),
]);

static AGENT_ONLY: Message = message(&[req("agent_id", Sub(&ID))]);
static DRAIN: Message = message(&[
    req("agent_id", Sub(&ID)),
    opt("max_grace_period", Any),
    opt("mark_gone", Bool),
]);

static UNAVAILABILITY: Message = message(&[req("start", Sub(&TIME)), opt("duration", Sub(&DURATION))]);
static WINDOW: Message = message(&[
    rep("machine_ids", Sub(&MACHINE)),
    req("unavailability", Sub(&UNAVAILABILITY)),
]);
static UPDATE_SCHEDULE: Message = message(&[req("schedule", Sub(&SCHEDULE))]);
static MACHINES: Message = message(&[rep("machines", Sub(&MACHINE))]);

/// One of the list that `POST /machine/down` and `POST /machine/up` take.
pub(crate) static MACHINE: Message = message(&[opt("hostname", Text), opt("ip", Text)]);

/// `POST /maintenance/schedule`.
pub(crate) static SCHEDULE: Message = message(&[rep("windows", Sub(&WINDOW))]);

/// `POST /api/v1` of the master.
pub(crate) static MASTER_CALL: Message = message(&[
    opt(
        "type",
        Enum(&[
            "GET_HEALTH",
            "GET_FLAGS",
            "GET_VERSION",
            "GET_METRICS",
            "GET_LOGGING_LEVEL",
            "GET_STATE",
            "GET_AGENTS",
            "GET_FRAMEWORKS",
            "GET_EXECUTORS",
            "GET_OPERATIONS",
            "GET_TASKS",
            "GET_ROLES",
            "GET_WEIGHTS",
            "GET_MASTER",
            "SUBSCRIBE",
            "GET_MAINTENANCE_STATUS",
            "GET_MAINTENANCE_SCHEDULE",
            "UPDATE_MAINTENANCE_SCHEDULE",
            "START_MAINTENANCE",
            "STOP_MAINTENANCE",
            "GET_QUOTA",
            "TEARDOWN",
            "DRAIN_AGENT",
            "DEACTIVATE_AGENT",
            "REACTIVATE_AGENT",
            "MARK_AGENT_GONE",
        ]),
    ),
    opt("drain_agent", Sub(&DRAIN)),
    opt("deactivate_agent", Sub(&AGENT_ONLY)),
    opt("reactivate_agent", Sub(&AGENT_ONLY)),
    opt("mark_agent_gone", Sub(&AGENT_ONLY)),
    opt("update_maintenance_schedule", Sub(&UPDATE_SCHEDULE)),
    opt("start_maintenance", Sub(&MACHINES)),
    opt("stop_maintenance", Sub(&MACHINES)),
    opt("teardown", Sub(&TEARDOWN)),
    opt("get_metrics", Any),
]);
static TEARDOWN: Message = message(&[req("framework_id", Sub(&ID))]);

static PATH: Message = message(&[req("path", Text)]);
static READ_FILE: Message = message(&[req("path", Text), req("offset", Int), opt("length", Int)]);
static SESSION: Message = message(&[
    req("container_id", Sub(&CONTAINER_ID)),
    opt("command", Sub(&COMMAND)),
    opt("container", Any),
]);
static CONTAINER: Message = message(&[req("container_id", Sub(&CONTAINER_ID)), opt("signal", Int)]);

/// `POST /api/v1` of an agent.
pub(crate) static AGENT_CALL: Message = message(&[
    opt(
        "type",
        Enum(&[
            "GET_HEALTH",
            "GET_FLAGS",
            "GET_VERSION",
            "GET_METRICS",
            "GET_LOGGING_LEVEL",
            "GET_STATE",
            "GET_CONTAINERS",
            "GET_FRAMEWORKS",
            "GET_EXECUTORS",
            "GET_OPERATIONS",
            "GET_TASKS",
            "GET_AGENT",
            "LIST_FILES",
            "READ_FILE",
            "LAUNCH_NESTED_CONTAINER",
            "WAIT_NESTED_CONTAINER",
            "KILL_NESTED_CONTAINER",
            "REMOVE_NESTED_CONTAINER",
            "LAUNCH_NESTED_CONTAINER_SESSION",
            "LAUNCH_CONTAINER",
            "WAIT_CONTAINER",
            "KILL_CONTAINER",
            "REMOVE_CONTAINER",
        ]),
    ),
    opt("list_files", Sub(&PATH)),
    opt("read_file", Sub(&READ_FILE)),
    opt("launch_nested_container", Sub(&SESSION)),
    opt("wait_nested_container", Sub(&CONTAINER)),
    opt("kill_nested_container", Sub(&CONTAINER)),
    opt("remove_nested_container", Sub(&CONTAINER)),
    opt("launch_nested_container_session", Sub(&SESSION)),
    opt("launch_container", Sub(&SESSION)),
    opt("wait_container", Sub(&CONTAINER)),
    opt("kill_container", Sub(&CONTAINER)),
    opt("remove_container", Sub(&CONTAINER)),
]);
