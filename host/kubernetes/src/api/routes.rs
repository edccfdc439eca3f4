//! The table of calls: their routes, their access control, and their descriptions for the OpenAPI
//! document.
//!
//! Unknown paths and methods are answered without credentials, so the access rules need the table as
//! well. Only [`find`] compares a path with the table.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::routing::on;
use http::Method;

use super::call::{Body, Call, LEADER_ERRORS, PathPrefix};
use super::paths::{kind, resource};
use super::{
    backups, bootstrap, capabilities, change, client, credentials, explain, framework, openapi, scale, status,
};

/// All calls.
pub(super) static CALLS: [Call; 32] = [
    Call::read("/versions", "The prefix of the API's paths", Body::Text("text/plain"))
        .with(|filter| on(filter, framework::versions))
        .at(PathPrefix::Unversioned)
        .local()
        .open(),
    Call::read("/capabilities", "The names, paths and methods of the calls", Body::Json("Texts", "Texts"))
        .with(|filter| on(filter, capabilities::get))
        .local(),
    Call::read(
        "/openapi.json",
        "This document",
        Body::Json("Document", "Document"),
    )
    .with(|filter| on(filter, async |request: Request| openapi::get(&CALLS, &request)))
    .at(PathPrefix::Neutral)
    .local(),
    Call::read(
        "/explain",
        "The reasons why tasks wait, and the tasks with their hosts",
        Body::Json("Explanation", "Explanation"),
    )
    .with(|filter| on(filter, explain::get))
    .at(PathPrefix::Neutral),
    Call::read(
        "/status/fw",
        "The state of each service in one word",
        Body::Json("Status", "Status"),
    )
    .with(|filter| on(filter, status::flat)),
    Call::read(
        "/status/m3s",
        "The state of each task",
        Body::Json("TaskStates", "TaskStates"),
    )
    .with(|filter| on(filter, status::maps)),
    Call::read("/status/orch", READY, Body::Text("application/json"))
        .with(|filter| on(filter, status::orchestrator)),
    Call::read("/status/k8s", READY, Body::Text("application/json"))
        .with(|filter| on(filter, status::orchestrator)),
    Call::read("/status/k3s", READY, Body::Text("application/json"))
        .with(|filter| on(filter, status::orchestrator)),
    Call::read(
        "/server/config",
        "The client configuration of the orchestrator; empty on the alias while there is none",
        Body::Text("text/plain"),
    )
    .with(|filter| on(filter, client::config)),
    Call::read(
        "/server/version",
        "The versions of the orchestrator and of this program",
        Body::Json("Version", "NodeVersions"),
    )
    .with(|filter| on(filter, client::version)),
    Call::read(
        "/{kind}/scale",
        "The wanted count, and how many tasks run",
        Body::Json("Scale", "Scale"),
    )
    .with(|filter| on(filter, scale::get)),
    Call::write(
        "/{kind}/scale/{count}",
        "Sets the wanted count; the response is the difference to the former one",
        Body::Number,
        &[406, 422, 502, 503],
    )
    .methods(&[Method::GET, Method::PUT, Method::POST])
    .with(|filter| on(filter, scale::set)),
    Call::write(
        "/agent/cordon",
        "Cordons the nodes of the agents, so that no new pods are scheduled on them",
        Body::Text("application/json"),
        LEADER_ERRORS,
    )
    .with(|filter| on(filter, change::cordon)),
    Call::write(
        "/agent/uncordon",
        "Uncordons the nodes of the agents",
        Body::Text("application/json"),
        LEADER_ERRORS,
    )
    .with(|filter| on(filter, change::uncordon)),
    Call::write(
        "/cluster/shutdown",
        "Sets all counts to 0 and keeps them for the next start",
        Body::Empty,
        LEADER_ERRORS,
    )
    .with(|filter| on(filter, change::stop)),
    Call::write(
        "/cluster/stop",
        "The same as `shutdown`",
        Body::Empty,
        LEADER_ERRORS,
    )
    .with(|filter| on(filter, change::stop)),
    Call::write(
        "/cluster/start",
        "Sets the counts to those before the last stop",
        Body::Empty,
        &[406, 502, 503],
    )
    .with(|filter| on(filter, change::start)),
    Call::write(
        "/{scope}/restart",
        "Replaces tasks one by one: `cluster` and `server` servers and agents, `agent` agents, the others all tasks",
        Body::Text("application/json"),
        &[406, 502, 503],
    )
    .with(|filter| on(filter, change::restart)),
    Call::write(
        "/datastore/move",
        "Gives up the data of the only datastore on its agent, so that it starts on any agent without them",
        Body::Empty,
        &[409, 422, 502, 503],
    )
    .with(|filter| on(filter, change::move_datastore))
    .at(PathPrefix::Neutral),
    Call::write(
        "/{kind}/{resource}/{amount}",
        "Changes a resource of the tasks, or its limit; running tasks are replaced one by one",
        Body::Text("application/json"),
        &[406, 422, 502, 503],
    )
    .with(|filter| on(filter, change::adjust)),
    Call::write(
        "/framework",
        "Drops the framework's id if the master does not know it any more",
        Body::Empty,
        &[406, 502, 503],
    )
    .methods(&[Method::DELETE])
    .with(|filter| on(filter, framework::forget)),
    Call::read(
        "/datastore/backups",
        "The backups of the datastore, the oldest first, and what is under way",
        Body::Json("Backups", "Backups"),
    )
    .with(|filter| on(filter, backups::list))
    .at(PathPrefix::Neutral)
    .errors(&[502, 503, 507]),
    Call::write(
        "/datastore/backups",
        "Begins a backup of the datastore; the response has its name",
        Body::Json("Name", "Name"),
        &[409, 422, 502, 503, 507],
    )
    .methods(&[Method::POST])
    .with(|filter| on(filter, backups::create))
    .at(PathPrefix::Neutral)
    .accepted(),
    Call::read(
        "/datastore/backups/{name}",
        "A backup",
        Body::Json("Backup", "Backup"),
    )
    .with(|filter| on(filter, backups::get))
    .at(PathPrefix::Neutral)
    .errors(&[404, 502, 503, 507]),
    Call::write(
        "/datastore/backups/{name}",
        "Deletes a backup",
        Body::Empty,
        &[404, 409, 422, 502, 503, 507],
    )
    .methods(&[Method::DELETE])
    .with(|filter| on(filter, backups::delete))
    .at(PathPrefix::Neutral),
    Call::write(
        "/datastore/backups/{name}/restore",
        "Begins the restore of a backup, whose data is verified first",
        Body::Json("Name", "Name"),
        &[404, 409, 422, 502, 503, 507],
    )
    .methods(&[Method::POST])
    .with(|filter| on(filter, backups::restore))
    .at(PathPrefix::Neutral)
    .accepted(),
    // It changes nothing, but the read-only user must not have it, and the audit log lists who did.
    Call::write(
        "/datastore/credentials",
        "What a client of the datastore needs: user and password",
        Body::Json("Credentials", "Credentials"),
        LEADER_ERRORS,
    )
    .methods(&[Method::GET])
    .with(|filter| on(filter, credentials::get))
    .at(PathPrefix::Neutral),
    Call::write(
        "/server/token",
        "The token with which servers and agents join; the data in the datastore are encrypted with it",
        Body::Text("text/plain"),
        LEADER_ERRORS,
    )
    .methods(&[Method::GET])
    .with(|filter| on(filter, credentials::token))
    .at(PathPrefix::Neutral),
    Call::write(
        "/datastore/credentials",
        "Uses the configured user and password, after they were changed in the SQL server",
        Body::Empty,
        &[422, 502, 503],
    )
    .with(|filter| on(filter, credentials::adopt))
    .at(PathPrefix::Neutral),
    Call::read(
        "/backup/{digest}/{token}",
        "The data of the backup that is being restored",
        Body::Text("application/octet-stream"),
    )
    .with(|filter| on(filter, backups::deliver))
    .at(PathPrefix::Root)
    .open()
    .errors(&[404, 502, 503]),
    Call::read(
        "/bootstrap/{digest}/{token}",
        "The bootstrap script of a starting container",
        Body::Text("text/x-shellscript"),
    )
    .with(|filter| on(filter, bootstrap::get))
    .at(PathPrefix::Root)
    .open()
    .errors(&[404, 502, 503]),
];

const READY: &str = "`ok` if every wanted server and agent is a ready node, otherwise `nok`";

/// The paths of all calls.
static PATHS: LazyLock<Vec<(String, &'static Call)>> = LazyLock::new(|| {
    let paths = |call: &'static Call| call.paths().into_iter().map(move |path| (path, call));
    CALLS.iter().flat_map(paths).collect()
});

/// The result of looking up a method and a path.
pub(super) enum RouteMatch {
    /// A call.
    Call(&'static Call),
    /// The path has calls with other methods, the value of `Allow`.
    OtherMethod(String),
    /// The path has no call.
    Nothing,
}

/// Looks a method and a path up in the table. The path is still percent-encoded.
pub(super) fn find(method: &Method, path: &str) -> RouteMatch {
    let calls = PATHS.iter().filter(|(template, _)| matches(template, path));
    let calls: Vec<&'static Call> = calls.map(|(_, call)| *call).collect();
    if let Some(call) = calls.iter().find(|call| call.methods.contains(method)) {
        return RouteMatch::Call(call);
    }
    let methods = calls.iter().flat_map(|call| call.methods);
    let methods: Vec<&str> = methods.map(Method::as_str).collect();
    if methods.is_empty() {
        RouteMatch::Nothing
    } else {
        RouteMatch::OtherMethod(methods.join(", "))
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(expected), Some(found)) if segment_matches(expected, found) => {}
            _ => return false,
        }
    }
}

fn segment_matches(expected: &str, found: &str) -> bool {
    match expected {
        "{kind}" => kind(found).is_some(),
        "{scope}" => found == "cluster" || kind(found).is_some(),
        "{resource}" => resource(found).is_some(),
        _ if expected.starts_with('{') => !found.is_empty(),
        _ => expected == found,
    }
}
