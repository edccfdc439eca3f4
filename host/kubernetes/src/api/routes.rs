//! The table of calls: what is routed, who may call it, and what the OpenAPI document describes.
//!
//! Unknown paths and methods are answered without credentials, so the rules of access need the
//! table as well. [`find`] is the one place that compares a path with it.

use std::sync::LazyLock;

use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::{
    Api, backups, bootstrap, capabilities, change, client, explain, framework, openapi, scale, status,
};
use crate::core::command::Resource;
use crate::kind::Kind;

/// The prefix of the neutral paths.
pub(super) const NEUTRAL: &str = "/api/fw";
/// The prefix of the paths with upstream's names.
pub(super) const ALIAS: &str = "/api/m3s";
/// The version of the API, a part of its paths and the header `Api-Service`.
pub(super) const VERSION: &str = "v0";

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Below both prefixes with the version.
    Both,
    /// Below the neutral prefix with the version.
    Neutral,
    /// Below both prefixes without the version.
    Unversioned,
    /// Below no prefix.
    Root,
}

/// What a successful response has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A JSON document: the names of its schema on the neutral path and on the alias.
    Json(&'static str, &'static str),
    /// A text with this content type.
    Text(&'static str),
    /// A whole number: JSON for servers and agents, a text for the datastore, as upstream.
    Number,
    /// Nothing.
    Empty,
}

/// One path with its methods.
pub(super) struct Call {
    place: Place,
    path: &'static str,
    pub(super) methods: &'static [Method],
    handler: fn(MethodFilter) -> MethodRouter<Api>,
    /// Whether it changes something, also with GET.
    pub(super) changes: bool,
    /// Whether it needs no credentials.
    pub(super) open: bool,
    /// Whether a standby answers it.
    pub(super) local: bool,
    pub(super) summary: &'static str,
    pub(super) body: Body,
    /// The status of a successful response.
    pub(super) success: u16,
    /// The statuses of its errors, those of the whole port not included.
    pub(super) errors: &'static [u16],
}

const GET: &[Method] = &[Method::GET];
const PUT: &[Method] = &[Method::PUT];
/// The errors of a call that the leader answers.
const LED: &[u16] = &[502, 503];

impl Call {
    /// A call that reads.
    const fn read(path: &'static str, summary: &'static str, body: Body) -> Self {
        Self {
            place: Place::Both,
            path,
            methods: GET,
            handler: |filter| on(filter, openapi::get),
            changes: false,
            open: false,
            local: false,
            summary,
            body,
            success: 200,
            errors: LED,
        }
    }

    /// A call that changes something.
    const fn write(path: &'static str, summary: &'static str, body: Body, errors: &'static [u16]) -> Self {
        let read = Self::read(path, summary, body);
        Self {
            methods: PUT,
            changes: true,
            errors,
            ..read
        }
    }

    const fn with(self, handler: fn(MethodFilter) -> MethodRouter<Api>) -> Self {
        Self { handler, ..self }
    }

    const fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Answered by a standby.
    const fn local(self) -> Self {
        Self {
            local: true,
            errors: &[],
            ..self
        }
    }

    /// Answered before it is carried out.
    const fn accepted(self) -> Self {
        Self { success: 202, ..self }
    }

    const fn open(self) -> Self {
        Self { open: true, ..self }
    }

    const fn methods(self, methods: &'static [Method]) -> Self {
        Self { methods, ..self }
    }

    const fn errors(self, errors: &'static [u16]) -> Self {
        Self { errors, ..self }
    }

    /// The paths, with parameters in braces.
    pub(super) fn paths(&self) -> Vec<String> {
        let below = |prefix: &str| match self.place {
            Place::Both | Place::Neutral => format!("{prefix}/{VERSION}{}", self.path),
            Place::Unversioned => format!("{prefix}{}", self.path),
            Place::Root => self.path.to_owned(),
        };
        match self.place {
            Place::Both | Place::Unversioned => vec![below(NEUTRAL), below(ALIAS)],
            Place::Neutral | Place::Root => vec![below(NEUTRAL)],
        }
    }

    /// The handler for the methods.
    pub(super) fn routed(&self) -> MethodRouter<Api> {
        let filters = self.methods.iter().cloned().map(MethodFilter::try_from);
        let filter = filters.flatten().reduce(MethodFilter::or);
        filter.map_or_else(MethodRouter::new, self.handler)
    }
}

/// All calls.
pub(super) static CALLS: [Call; 28] = [
    Call::read("/versions", "The prefix of the API's paths", Body::Text("text/plain"))
        .with(|filter| on(filter, framework::versions))
        .at(Place::Unversioned)
        .local()
        .open(),
    Call::read("/capabilities", "The calls", Body::Json("Texts", "Texts"))
        .with(|filter| on(filter, capabilities::get))
        .local(),
    Call::read(
        "/openapi.json",
        "This document",
        Body::Json("Document", "Document"),
    )
    .with(|filter| on(filter, openapi::get))
    .at(Place::Neutral)
    .local(),
    Call::read(
        "/explain",
        "Why tasks wait, and the tasks with their places",
        Body::Json("Explanation", "Explanation"),
    )
    .with(|filter| on(filter, explain::get))
    .at(Place::Neutral),
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
        "Keeps new pods from the agents",
        Body::Text("application/json"),
        LED,
    )
    .with(|filter| on(filter, change::cordon)),
    Call::write(
        "/agent/uncordon",
        "Allows new pods on the agents",
        Body::Text("application/json"),
        LED,
    )
    .with(|filter| on(filter, change::uncordon)),
    Call::write(
        "/cluster/shutdown",
        "Sets all counts to 0 and keeps them for the next start",
        Body::Empty,
        LED,
    )
    .with(|filter| on(filter, change::stop)),
    Call::write(
        "/cluster/stop",
        "The same as `shutdown`",
        Body::Empty,
        LED,
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
    .at(Place::Neutral)
    .errors(&[502, 503, 507]),
    Call::write(
        "/datastore/backups",
        "Begins a backup of the datastore; the response has its name",
        Body::Json("Name", "Name"),
        &[409, 422, 502, 503, 507],
    )
    .methods(&[Method::POST])
    .with(|filter| on(filter, backups::create))
    .at(Place::Neutral)
    .accepted(),
    Call::read(
        "/datastore/backups/{name}",
        "A backup",
        Body::Json("Backup", "Backup"),
    )
    .with(|filter| on(filter, backups::get))
    .at(Place::Neutral)
    .errors(&[404, 502, 503, 507]),
    Call::write(
        "/datastore/backups/{name}",
        "Deletes a backup",
        Body::Empty,
        &[404, 409, 422, 502, 503, 507],
    )
    .methods(&[Method::DELETE])
    .with(|filter| on(filter, backups::delete))
    .at(Place::Neutral),
    Call::write(
        "/datastore/backups/{name}/restore",
        "Begins the restore of a backup, whose data is verified first",
        Body::Json("Name", "Name"),
        &[404, 409, 422, 502, 503, 507],
    )
    .methods(&[Method::POST])
    .with(|filter| on(filter, backups::restore))
    .at(Place::Neutral)
    .accepted(),
    Call::read(
        "/backup/{digest}/{token}",
        "The data of the backup that is being restored",
        Body::Text("application/octet-stream"),
    )
    .with(|filter| on(filter, backups::deliver))
    .at(Place::Root)
    .open()
    .errors(&[404, 502, 503]),
    Call::read(
        "/bootstrap/{digest}/{token}",
        "The script of a container that starts",
        Body::Text("text/x-shellscript"),
    )
    .with(|filter| on(filter, bootstrap::get))
    .at(Place::Root)
    .open()
    .errors(&[404, 502, 503]),
];

const READY: &str = "`ok` if every wanted server and agent is a ready node, otherwise `nok`";

/// The paths of all calls.
static PATHS: LazyLock<Vec<(String, &'static Call)>> = LazyLock::new(|| {
    let paths = |call: &'static Call| call.paths().into_iter().map(move |path| (path, call));
    CALLS.iter().flat_map(paths).collect()
});

/// What a method and a path name.
pub(super) enum Found {
    /// A call.
    Call(&'static Call),
    /// A call with other methods, the value of `Allow`.
    OtherMethod(String),
    /// Nothing.
    Nothing,
}

/// Compares a method and a path, percent signs not decoded, with the table.
pub(super) fn find(method: &Method, path: &str) -> Found {
    let calls = PATHS.iter().filter(|(template, _)| matches(template, path));
    let calls: Vec<&'static Call> = calls.map(|(_, call)| *call).collect();
    if let Some(call) = calls.iter().find(|call| call.methods.contains(method)) {
        return Found::Call(call);
    }
    let methods = calls.iter().flat_map(|call| call.methods);
    let methods: Vec<&str> = methods.map(Method::as_str).collect();
    if methods.is_empty() {
        Found::Nothing
    } else {
        Found::OtherMethod(methods.join(", "))
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

/// The names of the kinds in paths.
pub(super) const KINDS: [(&str, Kind); 6] = [
    ("server", Kind::Server),
    ("agent", Kind::Agent),
    ("kvstore", Kind::Datastore),
    ("datastore", Kind::Datastore),
    ("etcd", Kind::Datastore),
    ("ds", Kind::Datastore),
];

/// The names of the resources in paths, and whether it is the limit.
pub(super) const RESOURCES: [(&str, Resource, bool); 6] = [
    ("cpus", Resource::Cpus, false),
    ("cpusLimit", Resource::Cpus, true),
    ("memory", Resource::Memory, false),
    ("memoryLimit", Resource::Memory, true),
    ("disk", Resource::Disk, false),
    ("diskLimit", Resource::Disk, true),
];

/// The kind with a name.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind)
}

/// The resource with a name, and whether it is the limit.
pub(super) fn resource(name: &str) -> Option<(Resource, bool)> {
    let found = RESOURCES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, resource, limit)| (*resource, *limit))
}
