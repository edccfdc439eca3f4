//! The parameters and headers that operations refer to.

use transom_web::routes::Parameter;
use transom_web::routes::Values::{Examples, Flag, From, List, ListOf, OneOf, Pattern, Text};

/// The parameters of every change, in addition to `force`.
pub(super) const CHANGE: &[&str] = &["deadline", "onDeadline", "canary", "canarySeconds"];

const FORCE: &str =
    "Also changes what running deployments lock; these are cancelled, and their instances left as they are.";

/// The parameters. A boolean is true for `true` in any case.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::span(
        "id",
        "The id of an app, pod or group without its first slash. Further slashes are part of the path, not encoded.",
    ),
    Parameter::path("task", "The id of a task.", Text),
    Parameter::path("instance", "The id of an instance.", Text),
    Parameter::path("deployment", "The id of a deployment.", Text),
    Parameter::path("version", "The time of a kept definition, such as `2015-09-29T15:59:51.164Z`.", Text),
    Parameter::query("force", FORCE, Flag(false)),
    Parameter::query("force", FORCE, Flag(true)).keyed("forceUnlessFalse"),
    Parameter::query("force", "The deployment stops, and nothing is reverted. Such a request is answered with 202.",
        Flag(false)).keyed("stopOnly"),
    Parameter::query("partialUpdate", "Members that the document does not have keep their values; otherwise they get their defaults.",
        Flag(true)),
    Parameter::query("restart", "Replaces the instances even if the change needs no restart.",
        Flag(false)),
    Parameter::query("strict", "Rejects the document (422) if it has fields that the service does not know. Otherwise they are ignored, and \
         the header `X-Transom-Unknown-Fields` names them.",
        Flag(false)),
    Parameter::query("deadline", "Seconds within which the deployment has to be done.",
        From(1)),
    Parameter::query("onDeadline", "What happens to a deployment at its deadline, by default `rollback`. Needs `deadline`.",
        OneOf(&["rollback", "fail"])),
    Parameter::query("canary", "How many instances of each app a restart replaces before it waits: a number, or a percentage \
         such as `10%`.",
        Pattern(r"^([1-9][0-9]*|[0-9]+(\.[0-9]+)?%)$")),
    Parameter::query("canarySeconds", "How long new instances have to be healthy until the restart continues. Needs `canary`; without it the restart \
         waits for a call.",
        From(0)),
    Parameter::query("dryRun", "Answers with the steps of the deployment and changes nothing.",
        Flag(false)),
    Parameter::query("scale", "Reduces the number of instances.", Flag(false)),
    Parameter::query("wipe", "Destroys the persistent volumes of the killed instances. Not with `scale`.",
        Flag(false)),
    Parameter::query("host", "Only tasks on the agent with this host name.",
        Text),
    Parameter::query("id", "Only apps whose id contains this text.", Text).keyed("idPart"),
    Parameter::query("cmd", "Only apps whose command contains this text.", Text),
    Parameter::query("label", "A label selector: a list of `key`, `key==value`, `key!=value`, `key in (a, b)` and `key notin (a, b)`, joined \
         by commas. All of them have to match.",
        Text),
    Parameter::query("embed", "Parts to add to apps: `tasks`, `lastTaskFailure`, `failures` (both), `readiness`, `taskStats`, `checkFailure`, `failing`, \
         each with or without the prefix `apps.`, `app.` or `group.apps.`. Others are ignored.",
        List).keyed("embedApps"),
    Parameter::query("embed", "`group.groups`, `group.apps` and `group.pods` select these parts; without any of them all are sent. In \
         addition, the parts to add to apps.",
        List).keyed("embedGroups"),
    Parameter::query("embed", "`checkFailure` adds why a check has no newer result.",
        List).keyed("embedTasks"),
    Parameter::query("embed", "`failing` adds what fails of the pod, and why.",
        List).keyed("embedPod"),
    Parameter::query("embed", "`deadline` and `canary` add these.",
        List).keyed("embedDeployments"),
    Parameter::query("embed", "`lastUnusedOffers` adds the last offers that were not used, `reasons` the scheduler's own reasons.",
        List).keyed("embedQueue"),
    Parameter::query("status", "Only tasks in one of these states. `status[]` is another name of the parameter.",
        ListOf(&["running", "staging"])),
    Parameter::query("event_type", "Only events of these types. Without it, all but those that are opt-in.",
        List),
    Parameter::query("filter", "Only events that match this expression of CEL over `event` (the JSON of the event), `kind` and `subject`. An \
         event on which the evaluation fails, as for a field that it does not have, does not match. A wrong expression \
         is rejected with its line and column. This is the language of the component that is part of Transom; another \
         one may define its own.",
        Examples(&[
            r#"event.appId == "/shop/web""#,
            r#"subject.startsWith("/shop/") && event.taskStatus in ["TASK_FAILED", "TASK_LOST"]"#,
            r#"has(event.appDefinition) && event.appDefinition.labels.team == "ops""#,
        ])),
    Parameter::query("plan-format", "`light` leaves definitions out of the plans in events of deployments.",
        OneOf(&["light"])),
    Parameter::query("callbackUrl", "The URL that events are posted to.",
        Text),
    Parameter::query("ids", "Gives frames an id, with which a client resumes (`Last-Event-ID`).",
        Flag(false)),
];

/// The headers of responses.
pub(super) const HEADERS: &[(&str, &str, &str)] = &[
    (
        "Marathon-Deployment-Id",
        "The id of the deployment that the request has started.",
        "string",
    ),
    (
        "Location",
        "The id of what was created, or of the deployment that deletes a pod.",
        "string",
    ),
    (
        "X-Transom-Unknown-Fields",
        "The paths of at most 16 fields of the request that the service does not know, separated by `, `, such as \
         `/container/imgae`. `; more=N` counts further ones. Only if there are some. Characters other than visible \
         ASCII, and `,`, `;`, `%` and `\"`, are percent-encoded.",
        "string",
    ),
    (
        "Retry-After",
        "Seconds until the request may be sent again.",
        "integer",
    ),
    (
        "Age",
        "Only while no leader answers, from a standby: the seconds since one last answered.",
        "integer",
    ),
];
