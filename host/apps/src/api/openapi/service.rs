//! The paths about the service itself.

use serde_json::{Value, json};

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::callbacks::Subscribers;
use crate::api::info::{LeaderInfo, MarathonInfo, Message};
use crate::api::plugins::PluginList;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let document = json!({"type": "object"});
    let found = |id: &str, summary: &str, description: &str, schema: &Value| {
        Operation::new("get", id, summary).answers(200, description, schema)
    };
    add_events(paths, schemas);
    paths.add(
        "service",
        "/v2/info",
        [found(
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
            found(
                "getLeader",
                "The leading daemon",
                "Its address.",
                &schemas.of::<LeaderInfo>(),
            )
            .rejects(&[404]),
            Operation::new(
                "delete",
                "abdicate",
                "The leader gives its lease back and stands by",
            )
            .answers(200, "It does.", &schemas.of::<Message>())
            .rejects(&[400]),
        ],
    );
    paths.add(
        "service",
        "/v2/plugins",
        [found(
            "listPlugins",
            "The loaded components",
            "The components.",
            &schemas.of::<PluginList<'_>>(),
        )],
    );
    paths.add(
        "service",
        "/v2/openapi.json",
        [found(
            "getOpenApi",
            "This document",
            "An OpenAPI 3.1 document.",
            &document,
        )],
    );
    paths.add(
        "service",
        "/metrics",
        [Operation::new("get", "getMetrics", "Metrics are at the admin port").rejects(&[404])],
    );
    let pong = json!({"type": "string", "const": "pong"});
    let pong = json!({"text/plain": {"schema": pong}, "application/json": {"schema": pong}});
    paths.add(
        "service",
        "/ping",
        [
            Operation::new("get", "ping", "Whether the daemon answers").answers_with(
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
            .description("Needs the header `Accept: text/event-stream`, and nothing else in it.")
            .with(&["event_type", "filter", "plan-format", "ids"])
            .answers_with(
                200,
                "Frames with the type of the event and a JSON document.",
                event_stream,
            )
            .answers_empty(302, "From a standby: the same at the leader.")
            .rejects(&[400, 405, 503])],
    );
    let callbacks = |method: &'static str, id: &str, summary: &str| {
        Operation::new(method, id, summary)
            .with(&["callbackUrl"])
            .answers(200, "The event that others are sent.", &document)
    };
    paths.add(
        "service",
        "/v2/eventSubscriptions",
        [
            Operation::new("get", "listCallbacks", "The callback subscribers").answers(
                200,
                "Their URLs.",
                &schemas.of::<Subscribers>(),
            ),
            callbacks("post", "addCallback", "Posts every event to a URL").rejects(&[400, 403, 503]),
            callbacks("delete", "removeCallback", "Posts no more events to a URL")
                .rejects(&[400, 403, 404, 503]),
        ],
    );
}
