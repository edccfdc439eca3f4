//! The routes about the service itself.

use serde_json::{Value, json};
use transom_web::routes::{Route, Schemas};

use super::operation::{delete, post};
use crate::api::callbacks::{self, Subscribers};
use crate::api::info::{self, LeaderInfo, MarathonInfo, Message};
use crate::api::plugins::{self, PluginList};
use crate::api::{Api, events};

fn document(_: &mut Schemas) -> Value {
    json!({"type": "object"})
}

fn pong(_: &mut Schemas) -> Value {
    json!({"type": "string", "const": "pong"})
}

pub(super) fn routes() -> Vec<Route<Api>> {
    let changed = "The event that is published about this change.";
    vec![
        Route::get("/v2/events", "getEvents", "The event stream", events::stream)
            .description("The header `Accept` must be exactly `text/event-stream`.")
            .parameters(&["event_type", "filter", "plan-format", "ids"])
            .text(
                "text/event-stream",
                "Frames with the type of the event and a JSON document.",
            )
            .empty(
                302,
                "From a standby: a redirect to the event stream of the leader.",
            )
            .errors(&[400, 405, 503]),
        Route::get(
            "/v2/eventSubscriptions",
            "listCallbacks",
            "The callback subscribers",
            callbacks::list,
        )
        .returns::<Subscribers>("Their URLs."),
        post(
            "/v2/eventSubscriptions",
            "addCallback",
            "Posts every event to a URL",
            callbacks::add,
        )
        .parameters(&["callbackUrl"])
        .response(200, changed, document)
        .errors(&[400, 403, 503]),
        delete(
            "/v2/eventSubscriptions",
            "removeCallback",
            "Posts no more events to a URL",
            callbacks::remove,
        )
        .parameters(&["callbackUrl"])
        .response(200, changed, document)
        .errors(&[400, 403, 404, 503]),
        Route::get(
            "/v2/info",
            "getInfo",
            "The framework and its settings",
            info::info,
        )
        .returns::<MarathonInfo<'_>>("The settings."),
        Route::get("/v2/leader", "getLeader", "The leading daemon", info::leader)
            .returns::<LeaderInfo>("Its address.")
            .errors(&[404]),
        delete(
            "/v2/leader",
            "abdicate",
            "The leader gives its lease back and stands by",
            info::abdicate,
        )
        .returns::<Message>("The leader has given its lease back.")
        .errors(&[400]),
        Route::get(
            "/v2/plugins",
            "listPlugins",
            "The loaded components",
            plugins::list,
        )
        .returns::<PluginList<'_>>("The components."),
        Route::get("/v2/openapi.json", "getOpenApi", "This document", super::get).response(
            200,
            "An OpenAPI 3.1 document.",
            document,
        ),
        Route::get(
            "/metrics",
            "getMetrics",
            "Metrics are at the admin port",
            info::metrics,
        )
        .errors(&[404]),
        Route::get("/ping", "ping", "Whether the daemon answers", info::ping)
            .empty(200, "JSON with the header `Accept: application/json`.")
            .content("text/plain", pong)
            .content("application/json", pong),
    ]
}
