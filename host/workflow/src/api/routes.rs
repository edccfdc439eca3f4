//! The table of routes: the router, the access rules and the OpenAPI document.

use std::sync::LazyLock;

use axum::response::Response;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use transom_web::Requirement;
use transom_web::routes::{
    self, ErrorDocument, ErrorResponse, Info, Parameter, Route, Schemas, Table, Values,
};

use super::documents::{Agent, Dag, Killed, Queue, Task};
use super::{Api, agent, events, json, log, queue, queue_command, task};
use crate::model;

/// All routes.
pub(crate) static TABLE: LazyLock<Table<Api>> = LazyLock::new(|| Table {
    info: INFO,
    parameters: PARAMETERS,
    routes: routes(),
});

/// The document as text.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut document = TABLE.document();
    // It is of no type, because a job is read field by field.
    document["components"]["schemas"]["Job"] = model::schema();
    routes::text(&document).into()
});

async fn openapi() -> Response {
    json(DOCUMENT.clone())
}

const INFO: Info = Info {
    title: "Transom workflow",
    version: "0",
    description: "Runs the tasks of a workflow engine as containers on the cluster, each once. Trusted networks may queue \
        jobs and look them up without credentials. Every rejection but 401 and the text of a body without a command is a \
        JSON document with a message.",
    error: Schemas::of::<ErrorDocument>,
    errors: ERRORS,
    headers: &[(
        "Transom-Next-Offset",
        "The offset of the next chunk; only with `stream`.",
        "integer",
    )],
};

const ERRORS: &[ErrorResponse] = &[
    ErrorResponse::new(400, "BadRequest", "A parameter is invalid."),
    ErrorResponse::new(401, "Unauthorized", "Invalid or missing credentials, and not a trusted network.")
        .of_types(&["text/html"])
        .common(),
    ErrorResponse::new(
        403,
        "Forbidden",
        "A web page of another site sent the request, and its origin is not among `allowed_origins`; or the user may only \
         read.",
    )
    .common(),
    ErrorResponse::new(404, "NotFound", "No such job."),
    ErrorResponse::new(
        409,
        "Conflict",
        "A job with this id is active, and the request is `unique`.",
    ),
    ErrorResponse::new(413, "PayloadTooLarge", "The body is too large."),
    ErrorResponse::new(415, "UnsupportedMediaType", "The content type of the body is not JSON."),
    ErrorResponse::new(
        421,
        "MisdirectedRequest",
        "The host name of the request is not that of this port and not among `allowed_hosts`.",
    )
    .common(),
    ErrorResponse::new(422, "Unprocessable", "Invalid fields: `details` lists each with its path."),
    ErrorResponse::new(429, "TooManyRequests", "The queue is full (`max_jobs`, `max_jobs_bytes`)."),
    ErrorResponse::new(502, "BadGateway", "No leader is elected, or it is unreachable. Try again later.").common(),
    ErrorResponse::new(
        503,
        "Unavailable",
        "The store, the cluster manager or an agent is unavailable, or this daemon is stopping. Try again later.",
    ),
];
const INVALID_ID: &str = "The id in the path is not UTF-8.";

const PARAMETERS: &[Parameter] = &[
    Parameter::path(
        "id",
        "The id of a job, percent-encoded where necessary, or the cluster's id of an agent.",
        Values::Text,
    ),
    Parameter::query(
        "stream",
        "The stream; default: the ends of both.",
        Values::OneOf(&["stdout", "stderr"]),
    ),
    Parameter::query("offset", "The offset of the first byte.", Values::From(0)),
    Parameter::query(
        "tail",
        "With `stream` and without `offset`: the end of the stream.",
        Values::Flag(false),
    ),
    Parameter::query(
        "length",
        "Maximum bytes of each stream.",
        Values::UpTo(log::DEFAULT_LENGTH, log::MAX_LENGTH),
    ),
    Parameter::query(
        "since",
        "The `next` of an earlier response; `last` returns only the current position.",
        Values::Schema(|| json!({"oneOf": [{"type": "integer"}, {"const": "last"}]})),
    ),
    Parameter::query(
        "wait",
        "Maximum seconds to wait for a change.",
        Values::UpTo(events::DEFAULT_WAIT_SECONDS, events::MAX_WAIT_SECONDS),
    ),
    Parameter::query(
        "limit",
        "Maximum changes.",
        Values::UpTo(events::DEFAULT_LIMIT, events::MAX_LIMIT),
    )
    .keyed("changes"),
    Parameter::query("task_id", "Only this job.", Values::Text),
    Parameter::query("limit", "Maximum jobs.", Values::UpTo(1_000, 100_000)).keyed("jobs"),
];

fn routes() -> Vec<Route<Api>> {
    vec![
        Route::new(
            Method::POST,
            "/v0/queue_command",
            "queueCommand",
            "Queues a job",
            queue_command::post,
        )
        .body(|_| json!({"$ref": "#/components/schemas/Job"}))
        .text("text/html", "`Ok`: the job is stored.")
        .empty(
            400,
            "The body is not JSON, or has no `command`: the response is then one sentence and not JSON.",
        )
        .content("application/json", Schemas::of::<ErrorDocument>)
        .content("text/html", |_| json!({"type": "string"}))
        .errors(&[409, 413, 415, 422, 429, 503]),
        Route::get(
            "/v0/task/{id}",
            "task",
            "The state of a job's newest run",
            task::get,
        )
        .returns::<Option<Task>>("The task status object; `null` for an unknown id.")
        .error(400, INVALID_ID),
        Route::new(
            Method::DELETE,
            "/v0/task/{id}",
            "kill",
            "Kills a job's newest run",
            task::delete,
        )
        .returns::<Killed>("Its present state; a completed run stays as it is.")
        .error(400, INVALID_ID)
        .errors(&[404, 503])
        .requires(Requirement::Credentials),
        Route::get(
            "/v0/task/{id}/log",
            "log",
            "The output of a job, byte for byte",
            log::get,
        )
        .parameters(&["stream", "offset", "tail", "length"])
        .text(
            "text/plain",
            "The bytes: of one stream, or the ends of both one after the other.",
        )
        .headers(&["Transom-Next-Offset"])
        .error(404, "No such job, or it was not launched.")
        .errors(&[400, 503]),
        Route::get("/v0/events", "events", "The feed of state changes", events::get)
            .parameters(&["since", "wait", "changes"])
            .returns::<events::Events<'_>>(
                "Each job once, with its last state. Empty if nothing changed in time.",
            )
            .errors(&[400]),
        Route::get(
            "/v0/queue",
            "queue",
            "Pending jobs, and why they are pending",
            queue::queue,
        )
        .parameters(&["task_id", "jobs"])
        .returns::<Queue>("Jobs in the order in which they are matched.")
        .errors(&[400, 503]),
        Route::get(
            "/v0/dags",
            "dags",
            "Pending tasks of DAGs, for autoscalers",
            queue::dags,
        )
        .returns::<Vec<Dag>>("The tasks.")
        .errors(&[503])
        .requires(Requirement::CredentialsAlways),
        Route::get("/v0/agent/{id}", "agent", "The address of an agent", agent::get)
            .returns::<Agent>("Host name and port; an empty body for an unknown agent.")
            .error(400, INVALID_ID)
            .errors(&[503]),
        Route::get("/v0/openapi.json", "openapi", "This document", openapi).response(
            200,
            "OpenAPI 3.1.",
            |_| json!({"type": "object"}),
        ),
    ]
}
