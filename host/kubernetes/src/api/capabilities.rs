//! `GET /capabilities`: the list of calls, each as a text `name, path, METHOD`.

use axum::response::Response;
use http::Uri;

use super::paths::{ALIAS, NEUTRAL, VERSION};
use super::{document, is_alias};

/// The neutral name and path, upstream's name and path, and the method. The order is upstream's.
const FIRST: &[(&str, &str, &str, &str, &str)] = &[
    (
        "cluster-restart",
        "cluster/restart",
        "cluster-restart",
        "cluster/restart",
        "PUT",
    ),
    (
        "server-restart",
        "server/restart",
        "server-restart",
        "server/restart",
        "PUT",
    ),
    (
        "agent-restart",
        "agent/restart",
        "agent-restart",
        "agent/restart",
        "PUT",
    ),
    (
        "kvstore-restart",
        "kvstore/restart",
        "ds-restart",
        "ds/restart",
        "PUT",
    ),
    (
        "cluster-start",
        "cluster/start",
        "cluster-start",
        "cluster/start",
        "PUT",
    ),
    (
        "cluster-shutdown",
        "cluster/shutdown",
        "cluster-shutdown",
        "cluster/shutdown",
        "PUT",
    ),
    (
        "count-agents",
        "agent/scale",
        "k3s-count-agents",
        "agent/scale",
        "GET",
    ),
    (
        "count-servers",
        "server/scale",
        "k3s-count-servers",
        "server/scale",
        "GET",
    ),
    (
        "get-orchconfig",
        "server/config",
        "get-kubeconfig",
        "server/config",
        "GET",
    ),
    (
        "get-orchversion",
        "server/version",
        "get-kubeversion",
        "server/version",
        "GET",
    ),
    (
        "scale-agent",
        "agent/scale/{count}",
        "scale-agent",
        "agent/scale/{count}",
        "GET",
    ),
    (
        "scale-server",
        "server/scale/{count}",
        "scale-server",
        "server/scale/{count}",
        "GET",
    ),
    (
        "scale-kvstore",
        "kvstore/scale/{count}",
        "scale-datastore",
        "datastore/scale/{count}",
        "GET",
    ),
    ("status-orch", "status/orch", "status-k3s", "status/k3s", "GET"),
    ("status-fw", "status/fw", "status-m3s", "status/m3s", "GET"),
];
const LAST: &[(&str, &str)] = &[
    ("cordon-agent-nodes", "agent/cordon"),
    ("uncordon-agent-nodes", "agent/uncordon"),
];

/// See the module.
pub(super) async fn get(uri: Uri) -> Response {
    document(&texts(is_alias(uri.path())))
}

fn texts(alias: bool) -> Vec<String> {
    let prefix = if alias { ALIAS } else { NEUTRAL };
    let text = |name: &str, path: &str, method: &str| format!("{name}, {prefix}/{VERSION}/{path}, {method}");
    let mut texts = Vec::new();
    for (neutral, path, theirs, their_path, method) in FIRST {
        texts.push(if alias {
            text(theirs, their_path, method)
        } else {
            text(neutral, path, method)
        });
    }
    let datastore = if alias { "ds" } else { "kvstore" };
    for resource in ["cpus", "memory", "disk"] {
        for kind in ["server", "agent", datastore] {
            // Upstream's list omits this call, although it exists.
            if alias && (kind, resource) == ("ds", "disk") {
                continue;
            }
            for (name, path) in [("", ""), ("-limit", "Limit")] {
                let name = format!("adjust-{kind}-{resource}{name}");
                let path = format!("{kind}/{resource}{path}/{{{resource}}}");
                texts.push(text(&name, &path, "PUT"));
            }
        }
    }
    texts.extend(LAST.iter().map(|(name, path)| text(name, path, "PUT")));
    texts
}
