//! The table of calls: their routes, their access control, and their descriptions for the OpenAPI
//! document.
//!
//! Unknown paths and methods are answered without credentials, so the access rules need the table as
//! well.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use http::Method;
use schemars::JsonSchema;
use serde_json::json;
use transom_web::Requirement;
use transom_web::routes::{ErrorDocument, ErrorResponse, Info, Parameter, Route, Schemas, Table, Values};

use super::paths::{ALIAS, KIND_NAMES, NEUTRAL, RESOURCE_NAMES, SCOPE_NAMES, VERSION};
use super::{
    Api, JSON, backups, bootstrap, capabilities, change, client, credentials, explain, framework, is_alias,
    requested_path, scale, status, success,
};
use crate::secrets::Credentials;

/// All calls.
pub(super) static TABLE: LazyLock<Table<Api>> = LazyLock::new(|| {
    let mut calls = Calls::default();
    calls.add_reads();
    calls.add_writes();
    calls.add_backups();
    calls.add_downloads();
    Table {
        info: INFO,
        parameters: PARAMETERS,
        routes: calls.0,
    }
});

/// Serves the document. Below the path of an instance, that path is the document's server URL.
async fn openapi(request: Request) -> Response {
    let mut document = TABLE.document();
    let path = requested_path(&request).strip_suffix(request.uri().path());
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        document["servers"] = json!([{"url": path}]);
    }
    success(JSON, document.to_string())
}

const INFO: Info = Info {
    title: "Transom Kubernetes",
    version: VERSION,
    description: "Runs a Kubernetes distribution on the cluster. The paths below /api/m3s are those of the program that this \
        service replaces, with its shapes; their errors have no body. Every other error is a JSON document with a message. \
        Unknown paths (404) and methods (405, HEAD included) are answered without credentials. A standby forwards requests \
        to the leader.",
    error: Schemas::of::<ErrorDocument>,
    errors: ERRORS,
    headers: &[],
};

/// The common ones are those of the port, which have a body on the alias as well.
const ERRORS: &[ErrorResponse] = &[
    ErrorResponse::new(401, "Unauthorized", "Invalid or missing credentials."),
    ErrorResponse::new(
        403,
        "Forbidden",
        "The user may only read, the network is not trusted, or a web page of another site sent the request.",
    )
    .common(),
    ErrorResponse::new(404, "NotFound", "The resource does not exist."),
    ErrorResponse::new(
        406,
        "NotAcceptable",
        "A number is not a whole number or is negative, or the current state does not allow the request.",
    ),
    ErrorResponse::new(
        409,
        "Conflict",
        "Another backup or restore is under way, or the datastore is not healthy.",
    ),
    ErrorResponse::new(413, "PayloadTooLarge", "The body is too large.").common(),
    ErrorResponse::new(
        421,
        "MisdirectedRequest",
        "The host name of the request is not that of this port.",
    )
    .common(),
    ErrorResponse::new(
        422,
        "Unprocessable",
        "The count, the amount or the backup does not fit the settings or the datastore.",
    ),
    ErrorResponse::new(502, "BadGateway", "No leader is known, or it did not answer."),
    ErrorResponse::new(
        503,
        "Unavailable",
        "Not possible now; `Retry-After` says when to try again.",
    ),
    ErrorResponse::new(
        507,
        "InsufficientStorage",
        "The directory of backups cannot be used.",
    ),
];

const PARAMETERS: &[Parameter] = &[
    Parameter::path("kind", "A kind of tasks.", Values::OneOf(&KIND_NAMES)),
    Parameter::path("scope", "The tasks to restart.", Values::OneOf(&SCOPE_NAMES)),
    Parameter::path(
        "resource",
        "A resource, or its limit.",
        Values::OneOf(&RESOURCE_NAMES),
    ),
    Parameter::path("count", "The wanted count.", Values::From(0)),
    Parameter::path("amount", "The wanted amount.", Values::From(0)),
    Parameter::path("name", "The name of a backup.", Values::Text),
    Parameter::path("digest", "The digest of the data.", Values::Text),
    Parameter::path("token", "The secret that gives access to the data.", Values::Text),
];

/// The prefixes below which a call is served, and whether the version follows them.
type Prefixes = &'static [(&'static str, bool)];
const BOTH: Prefixes = &[(NEUTRAL, true), (ALIAS, true)];
const NEUTRAL_ONLY: Prefixes = &[(NEUTRAL, true)];
const ALIAS_ONLY: Prefixes = &[(ALIAS, true)];
const UNVERSIONED: Prefixes = &[(NEUTRAL, false), (ALIAS, false)];
const ROOT: Prefixes = &[("", false)];

/// The errors of a call that the leader answers.
const LEADER: &[u16] = &[401, 502, 503];
/// Upstream's content type of single words.
const WORD: &str = "application/json";
const READY: &str = "`ok` if every wanted server and agent is a ready node, otherwise `nok`";

fn document<T: JsonSchema + 'static>(route: Route<Api>) -> Route<Api> {
    let summary = route.summary();
    route.returns::<T>(summary)
}

fn text(content_type: &'static str) -> impl Fn(Route<Api>) -> Route<Api> {
    move |route| {
        let summary = route.summary();
        route.text(content_type, summary)
    }
}

fn empty(route: Route<Api>) -> Route<Api> {
    let summary = route.summary();
    route.empty(200, summary)
}

/// 202 with the name of the backup, before the call is carried out.
fn accepted(route: Route<Api>) -> Route<Api> {
    let summary = route.summary();
    route.response(202, summary, Schemas::of::<backups::Name<'_>>)
}

/// A whole number: JSON for servers and agents, text for the datastore, as in upstream.
fn number(route: Route<Api>) -> Route<Api> {
    let number = |_: &mut Schemas| json!({"type": "integer"});
    empty(route)
        .content("application/json", number)
        .content("text/plain", number)
}

#[derive(Default)]
struct Calls(Vec<Route<Api>>);

impl Calls {
    /// Adds a call with its description.
    #[expect(clippy::needless_pass_by_value, reason = "handlers are functions")]
    fn add<T: 'static>(
        &mut self,
        (prefixes, path): (Prefixes, &str),
        methods: &[Method],
        summary: &'static str,
        handler: impl Handler<T, Api>,
        described: impl Fn(Route<Api>) -> Route<Api>,
    ) {
        for (prefix, has_version) in prefixes {
            let path = if *has_version {
                format!("{prefix}/{VERSION}{path}")
            } else {
                format!("{prefix}{path}")
            };
            for method in methods {
                let id = format!("{} {path}", method.as_str().to_lowercase());
                let id = id.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
                let route = Route::new(method.clone(), path.clone(), id, summary, handler.clone());
                let route = described(route);
                self.0.push(if is_alias(&path) {
                    route.without_error_bodies()
                } else {
                    route
                });
            }
        }
    }

    /// Adds a call that the leader answers and that changes nothing.
    fn read<T: 'static>(
        &mut self,
        path: (Prefixes, &str),
        summary: &'static str,
        handler: impl Handler<T, Api>,
        body: impl Fn(Route<Api>) -> Route<Api>,
    ) {
        self.add(path, &[Method::GET], summary, handler, |route| {
            body(route).errors(LEADER)
        });
    }

    /// Adds a call that changes something, even with GET. `errors`: in addition to those of the leader.
    fn write<T: 'static>(
        &mut self,
        path: (Prefixes, &str),
        methods: &[Method],
        summary: &'static str,
        errors: &[u16],
        handler: impl Handler<T, Api>,
        body: impl Fn(Route<Api>) -> Route<Api>,
    ) {
        self.add(path, methods, summary, handler, |route| {
            body(route).errors(LEADER).errors(errors).changing()
        });
    }

    fn add_reads(&mut self) {
        let get = [Method::GET];
        let versions = "The prefix of the API's paths";
        self.add(
            (UNVERSIONED, "/versions"),
            &get,
            versions,
            framework::versions,
            |route| text("text/plain")(route).local().requires(Requirement::Nothing),
        );
        let capabilities = "The names, paths and methods of the calls";
        self.add(
            (BOTH, "/capabilities"),
            &get,
            capabilities,
            capabilities::get,
            |route| document::<Vec<String>>(route).errors(&[401]).local(),
        );
        self.add(
            (NEUTRAL_ONLY, "/openapi.json"),
            &get,
            "This document",
            openapi,
            |route| {
                let object =
                    |_: &mut Schemas| json!({"type": "object", "required": ["openapi", "info", "paths"]});
                route.response(200, "OpenAPI 3.1.", object).errors(&[401]).local()
            },
        );
        self.read(
            (NEUTRAL_ONLY, "/explain"),
            "The reasons why tasks wait, and the tasks with their hosts",
            explain::get,
            document::<explain::Explanation<'_>>,
        );
        self.read(
            (BOTH, "/status/fw"),
            "The state of each service in one word",
            status::flat,
            document::<status::Status<'_>>,
        );
        self.read(
            (BOTH, "/status/m3s"),
            "The state of each task",
            status::maps,
            document::<status::TaskStates<'_>>,
        );
        for path in ["/status/orch", "/status/k8s", "/status/k3s"] {
            self.read((BOTH, path), READY, status::orchestrator, text(WORD));
        }
        self.read(
            (BOTH, "/server/config"),
            "The client configuration of the orchestrator; empty on the alias while there is none",
            client::config,
            text("text/plain"),
        );
        let versions = "The versions of the orchestrator and of this program";
        let path = "/server/version";
        self.read(
            (NEUTRAL_ONLY, path),
            versions,
            client::version,
            document::<client::Versions<'_>>,
        );
        self.read(
            (ALIAS_ONLY, path),
            versions,
            client::version,
            document::<client::NodeVersions<'_>>,
        );
        self.read(
            (BOTH, "/{kind}/scale"),
            "The wanted count, and how many tasks run",
            scale::get,
            document::<scale::Scale>,
        );
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn add_writes(&mut self) {
        let put = [Method::PUT];
        self.write(
            (BOTH, "/{kind}/scale/{count}"),
            &[Method::GET, Method::PUT, Method::POST],
            "Sets the wanted count; the response is the difference to the former one",
            &[406, 422],
            scale::set,
            number,
        );
        self.write(
            (BOTH, "/agent/cordon"),
            &put,
            "Cordons the nodes of the agents, so that no new pods are scheduled on them",
            &[],
            change::cordon,
            text(WORD),
        );
        self.write(
            (BOTH, "/agent/uncordon"),
            &put,
            "Uncordons the nodes of the agents",
            &[],
            change::uncordon,
            text(WORD),
        );
        self.write(
            (BOTH, "/cluster/shutdown"),
            &put,
            "Sets all counts to 0 and keeps them for the next start",
            &[],
            change::stop,
            empty,
        );
        self.write(
            (BOTH, "/cluster/stop"),
            &put,
            "The same as `shutdown`",
            &[],
            change::stop,
            empty,
        );
        self.write(
            (BOTH, "/cluster/start"),
            &put,
            "Sets the counts to those before the last stop",
            &[406],
            change::start,
            empty,
        );
        self.write(
            (BOTH, "/{scope}/restart"),
            &put,
            "Replaces tasks one by one: `cluster` and `server` servers and agents, `agent` agents, the others all tasks",
            &[406],
            change::restart,
            text(WORD),
        );
        self.write(
            (NEUTRAL_ONLY, "/datastore/move"),
            &put,
            "Gives up the data of the only datastore on its agent, so that it starts on any agent without them",
            &[409, 422],
            change::move_datastore,
            empty,
        );
        self.write(
            (BOTH, "/{kind}/{resource}/{amount}"),
            &put,
            "Changes a resource of the tasks, or its limit; running tasks are replaced one by one",
            &[406, 422],
            change::adjust,
            text(WORD),
        );
        self.write(
            (BOTH, "/framework"),
            &[Method::DELETE],
            "Drops the framework's id if the master does not know it any more",
            &[406],
            framework::forget,
            empty,
        );
        let path = (NEUTRAL_ONLY, "/datastore/credentials");
        // It changes nothing, but the read-only user must not have it, and the audit log lists who did.
        self.write(
            path,
            &[Method::GET],
            "What a client of the datastore needs: user and password",
            &[],
            credentials::get,
            document::<Credentials>,
        );
        self.write(
            path,
            &put,
            "Uses the configured user and password, after they were changed in the SQL server",
            &[422],
            credentials::adopt,
            empty,
        );
        self.write(
            (NEUTRAL_ONLY, "/server/token"),
            &[Method::GET],
            "The token with which servers and agents join; the data in the datastore are encrypted with it",
            &[],
            credentials::token,
            text("text/plain"),
        );
    }

    fn add_backups(&mut self) {
        let all = (NEUTRAL_ONLY, "/datastore/backups");
        let (one, post) = ((NEUTRAL_ONLY, "/datastore/backups/{name}"), [Method::POST]);
        self.read(
            all,
            "The backups of the datastore, the oldest first, and what is under way",
            backups::list,
            |route| document::<backups::Backups<'_>>(route).errors(&[507]),
        );
        self.write(
            all,
            &post,
            "Begins a backup of the datastore; the response has its name",
            &[409, 422, 507],
            backups::create,
            accepted,
        );
        self.read(one, "A backup", backups::get, |route| {
            document::<backups::Backup<'_>>(route).errors(&[404, 507])
        });
        self.write(
            one,
            &[Method::DELETE],
            "Deletes a backup",
            &[404, 409, 422, 507],
            backups::delete,
            empty,
        );
        self.write(
            (NEUTRAL_ONLY, "/datastore/backups/{name}/restore"),
            &post,
            "Begins the restore of a backup, whose data is verified first",
            &[404, 409, 422, 507],
            backups::restore,
            accepted,
        );
    }

    /// What containers fetch, with a token in the path.
    fn add_downloads(&mut self) {
        let download = |content_type| {
            move |route: Route<Api>| {
                let route = text(content_type)(route).errors(&[404, 502, 503]);
                route.requires(Requirement::Nothing)
            }
        };
        self.add(
            (ROOT, "/backup/{digest}/{token}"),
            &[Method::GET],
            "The data of the backup that is being restored",
            backups::deliver,
            download("application/octet-stream"),
        );
        self.add(
            (ROOT, "/bootstrap/{digest}/{token}"),
            &[Method::GET],
            "The bootstrap script of a starting container",
            bootstrap::get,
            download("text/x-shellscript"),
        );
    }
}
