//! The paths about the service itself.

use serde_json::{Value, json};

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::callbacks::Subscribers;
use crate::api::info::{LeaderInfo, MarathonInfo, Message};
use crate::api::plugins::PluginList;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let document = json!({"type": "object"});
    let get_operation = |id: &str, summary: &str, description: &str, schema: &Value| {
        Operation::new("get", id, summary).with_response(200, description, schema)
    };
    add_events(paths, schemas);
    paths.add(
        "service",
        "/v2/info",
        [get_operation(
            "getInfo",
            "The framework and its settings",
            "The settings.",
            &schemas.of::<MarathonInfo<'_>>(),
        )],
    );
    paths.add(
        "service",
        "/v2/leader",
        [
            get_operation(
                "getLeader",
                "The leading daemon",
                "Its address.",
                &schemas.of::<LeaderInfo>(),
            )
            .with_errors(&[404]),
            Operation::new(
                "delete",
                "abdicate",
                "The leader gives its lease back and stands by",
            )
            .with_response(
                200,
                "The leader has given its lease back.",
                &schemas.of::<Message>(),
            )
            .with_errors(&[400]),
        ],
    );
    paths.add(
        "service",
        "/v2/plugins",
        [get_operation(
            "listPlugins",
            "The loaded components",
            "The components.",
            &schemas.of::<PluginList<'_>>(),
        )],
    );
    paths.add(
        "service",
        "/v2/openapi.json",
        [get_operation(
            "getOpenApi",
            "This document",
            "An OpenAPI 3.1 document.",
            &document,
        )],
    );
    paths.add(
        "service",
        "/metrics",
        [Operation::new("get", "getMetrics", "Metrics are at the admin port").with_errors(&[404])],
    );
    let pong = json!({"type": "string", "const": "pong"});
    let pong = json!({"text/plain": {"schema": pong}, "application/json": {"schema": pong}});
    paths.add(
        "service",
        "/ping",
        [
            Operation::new("get", "ping", "Whether the daemon answers").with_response_content(
                200,
                "JSON with the header `Accept: application/json`.",
                pong,
            ),
        ],
    );
}

/// The event stream and callback subscribers.
fn add_events(paths: &mut Paths, schemas: &mut Schemas) {
    let document = json!({"type": "object"});
    let event_stream = json!({"text/event-stream": {"schema": {"type": "string"}}});
    paths.add(
        "service",
        "/v2/events",
        [Operation::new("get", "getEvents", "The event stream")
            .description("The header `Accept` must be exactly `text/event-stream`.")
            .with_parameters(&["event_type", "filter", "plan-format", "ids"])
            .with_response_content(
                200,
                "Frames with the type of the event and a JSON document.",
                event_stream,
            )
            .with_empty_response(
                302,
                "From a standby: a redirect to the event stream of the leader.",
            )
            .with_errors(&[400, 405, 503])],
    );
    let callbacks = |method: &'static str, id: &str, summary: &str| {
        Operation::new(method, id, summary)
            .with_parameters(&["callbackUrl"])
            .with_response(200, "The event that is published about this change.", &document)
    };
    paths.add(
        "service",
        "/v2/eventSubscriptions",
        [
            Operation::new("get", "listCallbacks", "The callback subscribers").with_response(
                200,
                "Their URLs.",
                &schemas.of::<Subscribers>(),
            ),
            callbacks("post", "addCallback", "Posts every event to a URL").with_errors(&[400, 403, 503]),
            callbacks("delete", "removeCallback", "Posts no more events to a URL")
                .with_errors(&[400, 403, 404, 503]),
        ],
    );
}
