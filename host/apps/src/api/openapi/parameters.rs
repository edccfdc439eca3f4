//! The parameters and headers that operations refer to.

use serde_json::{Map, Value, json};

/// The parameters of every change, in addition to `force`.
pub(super) const CHANGE: [&str; 4] = ["deadline", "onDeadline", "canary", "canarySeconds"];

/// The values of a parameter.
enum Values {
    /// A boolean, with its default.
    Flag(bool),
    Text,
    /// A text with a pattern.
    Pattern(&'static str),
    /// A text, shown with examples.
    Examples(&'static [&'static str]),
    OneOf(&'static [&'static str]),
    /// A number, with its minimum.
    From(u32),
    /// The parameter may be repeated.
    List,
    /// A parameter that may be repeated, with its possible values.
    ListOf(&'static [&'static str]),
}

use Values::{Examples, Flag, From, List, ListOf, OneOf, Pattern, Text};

impl Values {
    fn schema(&self) -> Value {
        match self {
            Flag(default) => json!({"type": "boolean", "default": default}),
            Text => json!({"type": "string"}),
            Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            Examples(examples) => json!({"type": "string", "examples": examples}),
            OneOf(values) => json!({"type": "string", "enum": values}),
            From(least) => json!({"type": "integer", "minimum": least}),
            List => json!({"type": "array", "items": {"type": "string"}}),
            ListOf(values) => json!({"type": "array", "items": {"type": "string", "enum": values}}),
        }
    }
}

/// The parameters in paths, by their names.
const IN_PATHS: [(&str, &str); 5] = [
    (
        "id",
        "The id of an app, pod or group without its first slash. Further slashes are part of the path, not encoded.",
    ),
    ("task", "The id of a task."),
    ("instance", "The id of an instance."),
    ("deployment", "The id of a deployment."),
    (
        "version",
        "The time of a kept definition, such as `2015-09-29T15:59:51.164Z`.",
    ),
];

const FORCE: &str =
    "Also changes what running deployments lock; these are cancelled, and their instances left as they are.";

/// The parameters in queries: name in the components, name in the query, description and values. A
/// boolean is true for `true` in any case.
const IN_QUERIES: [(&str, &str, &str, Values); 28] = [
    ("force", "force", FORCE, Flag(false)),
    ("forceUnlessFalse", "force", FORCE, Flag(true)),
    (
        "stopOnly",
        "force",
        "The deployment stops, and nothing is reverted. Such a request is answered with 202.",
        Flag(false),
    ),
    (
        "partialUpdate",
        "partialUpdate",
        "Members that the document does not have keep their values; otherwise they get their defaults.",
        Flag(true),
    ),
    (
        "restart",
        "restart",
        "Replaces the instances even if the change needs no restart.",
        Flag(false),
    ),
    (
        "strict",
        "strict",
        "Rejects the document (422) if it has fields that the service does not know. Otherwise they are ignored, and \
         the header `X-Transom-Unknown-Fields` names them.",
        Flag(false),
    ),
    (
        "deadline",
        "deadline",
        "Seconds within which the deployment has to be done.",
        From(1),
    ),
    (
        "onDeadline",
        "onDeadline",
        "What happens to a deployment at its deadline, by default `rollback`. Needs `deadline`.",
        OneOf(&["rollback", "fail"]),
    ),
    (
        "canary",
        "canary",
        "How many instances of each app a restart replaces before it waits: a number, or a percentage \
         such as `10%`.",
        Pattern(r"^([1-9][0-9]*|[0-9]+(\.[0-9]+)?%)$"),
    ),
    (
        "canarySeconds",
        "canarySeconds",
        "How long new instances have to be healthy until the restart continues. Needs `canary`; without it the restart \
         waits for a call.",
        From(0),
    ),
    (
        "dryRun",
        "dryRun",
        "Answers with the steps of the deployment and changes nothing.",
        Flag(false),
    ),
    ("scale", "scale", "Reduces the number of instances.", Flag(false)),
    (
        "wipe",
        "wipe",
        "Destroys the persistent volumes of the killed instances. Not with `scale`.",
        Flag(false),
    ),
    (
        "host",
        "host",
        "Only tasks on the agent with this host name.",
        Text,
    ),
    ("idPart", "id", "Only apps whose id contains this text.", Text),
    ("cmd", "cmd", "Only apps whose command contains this text.", Text),
    (
        "label",
        "label",
        "A label selector: a list of `key`, `key==value`, `key!=value`, `key in (a, b)` and `key notin (a, b)`, joined \
         by commas. All of them have to match.",
        Text,
    ),
    (
        "embedApps",
        "embed",
        "Parts to add to apps: `tasks`, `lastTaskFailure`, `failures` (both), `readiness`, `taskStats`, `checkFailure`, \
         each with or without the prefix `apps.`, `app.` or `group.apps.`. Others are ignored.",
        List,
    ),
    (
        "embedGroups",
        "embed",
        "`group.groups`, `group.apps` and `group.pods` select these parts; without any of them all are sent. In \
         addition, the parts to add to apps.",
        List,
    ),
    (
        "embedTasks",
        "embed",
        "`checkFailure` adds why a check has no newer result.",
        List,
    ),
    (
        "embedDeployments",
        "embed",
        "`deadline` and `canary` add these.",
        List,
    ),
    (
        "embedQueue",
        "embed",
        "`lastUnusedOffers` adds the last offers that were not used, `reasons` the scheduler's own reasons.",
        List,
    ),
    (
        "status",
        "status",
        "Only tasks in one of these states. `status[]` is another name of the parameter.",
        ListOf(&["running", "staging"]),
    ),
    (
        "event_type",
        "event_type",
        "Only events of these types. Without it, all but those that are opt-in.",
        List,
    ),
    (
        "filter",
        "filter",
        "Only events that match this expression of CEL over `event` (the JSON of the event), `kind` and `subject`. An \
         event on which the evaluation fails, as for a field that it does not have, does not match. A wrong expression \
         is rejected with its line and column. This is the language of the component that is part of Transom; another \
         one may define its own.",
        Examples(&[
            r#"event.appId == "/shop/web""#,
            r#"subject.startsWith("/shop/") && event.taskStatus in ["TASK_FAILED", "TASK_LOST"]"#,
            r#"has(event.appDefinition) && event.appDefinition.labels.team == "ops""#,
        ]),
    ),
    (
        "plan-format",
        "plan-format",
        "`light` leaves definitions out of the plans in events of deployments.",
        OneOf(&["light"]),
    ),
    (
        "callbackUrl",
        "callbackUrl",
        "The URL that events are posted to.",
        Text,
    ),
    (
        "ids",
        "ids",
        "Gives frames an id, with which a client resumes (`Last-Event-ID`).",
        Flag(false),
    ),
];

/// The parameters, by their names in the components.
pub(super) fn parameters() -> Value {
    let in_paths = IN_PATHS.iter().map(|(name, description)| {
        let parameter = json!({
            "name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"},
        });
        ((*name).to_owned(), parameter)
    });
    let in_queries = IN_QUERIES.iter().map(|(component, name, description, values)| {
        let schema = values.schema();
        let parameter = json!({"name": name, "in": "query", "description": description, "schema": schema});
        ((*component).to_owned(), parameter)
    });
    let all: Map<String, Value> = in_paths.chain(in_queries).collect();
    all.into()
}

/// The headers of responses.
pub(super) fn headers() -> Value {
    let header = |description: &str, schema: Value| json!({"description": description, "schema": schema});
    json!({
        "Marathon-Deployment-Id": header("The id of the deployment that the request has started.", json!({"type": "string"})),
        "Location": header("The id of what was created, or of the deployment that deletes a pod.", json!({"type": "string"})),
        "X-Transom-Unknown-Fields": header(
            "The paths of at most 16 fields of the request that the service does not know, separated by `, `, such as \
             `/container/imgae`. `; more=N` counts further ones. Only if there are some. Characters other than visible \
             ASCII, and `,`, `;`, `%` and `\"`, are percent-encoded.",
            json!({"type": "string"}),
        ),
        "Retry-After": header("Seconds until the request may be sent again.", json!({"type": "integer"})),
        "Age": header(
            "Only while no leader answers, from a standby: the seconds since one last answered.",
            json!({"type": "integer"}),
        ),
    })
}
