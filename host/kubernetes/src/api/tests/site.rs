//! A router with a scripted core.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;
use transom_framework::{InstalledHandles, Leader};
use transom_scheduler::AgentLocation;
use transom_store::Leadership;
use transom_testkit::ScriptedScheduler;
use transom_web::{Credentials, Forwarder, PortConfig, RequestMetrics};

use crate::Kind;
use crate::api::{Api, Shared, access_rules, router};
use crate::autoscale::Autoscaled;
use crate::backup::directory::Directory;
use crate::bootstrap::scripts::Scripts;
use crate::core::command::{Command, Rejection};
use crate::core::term::Handles;
use crate::testing::config;
use crate::view::{AutoscaleView, NodeView, OrchestratorView, TaskView, View, Views};

/// Both prefixes.
pub(super) const PREFIXES: &[&str] = &["/api/fw/v0", "/api/m3s/v0"];

/// The commands that the scripted core has received, and its next answer.
#[derive(Default)]
pub(super) struct Core {
    /// The received commands, in words.
    pub(super) received_commands: Vec<String>,
    /// Why the next restart waits.
    pub(super) waits: Option<String>,
    /// The rejection of the next command.
    pub(super) rejection: Option<Rejection>,
}

pub(super) struct Site {
    pub(super) router: Router,
    /// The routes without the access control of the port.
    pub(super) routes: Router,
    pub(super) views: Arc<Views>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) delivery: Arc<crate::backup::delivery::Delivery>,
    pub(super) core: Arc<Mutex<Core>>,
    pub(super) registry: Registry,
    _elected: watch::Sender<Leadership>,
    _installed: Option<InstalledHandles<Handles>>,
}

impl Site {
    /// A leader without credentials.
    pub(super) fn start() -> Self {
        Self::with(&config().port)
    }

    /// A leader.
    pub(super) fn with(port: &PortConfig) -> Self {
        Self::with_leadership(port, Leadership::Leader)
    }

    /// A leader, or a standby of another daemon.
    pub(super) fn with_leadership(port: &PortConfig, leadership: Leadership) -> Self {
        Self::of(port, leadership, None)
    }

    /// A leader with a directory of backups.
    pub(super) fn with_backups(directory: Directory) -> Self {
        Self::of(&config().port, Leadership::Leader, Some(directory))
    }

    fn of(port: &PortConfig, leadership: Leadership, backups: Option<Directory>) -> Self {
        let leads = leadership == Leadership::Leader;
        let (elected, election) = watch::channel(leadership);
        let leader = Leader::new("localhost:1", election);
        let (core, views, scripts) = (
            Arc::<Mutex<Core>>::default(),
            Arc::<Views>::default(),
            Arc::<Scripts>::default(),
        );
        let delivery = Arc::<crate::backup::delivery::Delivery>::default();
        let (commands, received) = mpsc::channel(16);
        tokio::spawn(answer(received, Arc::clone(&core), Arc::clone(&views)));
        let installed = leads.then(|| {
            let handles = Handles {
                core: commands,
                scheduler: ScriptedScheduler::new(agent()),
            };
            leader.install(handles, None)
        });
        let api = Api(Arc::new(Shared {
            max_scale: 100,
            credentials: port.credentials.clone(),
            views: Arc::clone(&views),
            scripts: Arc::clone(&scripts),
            delivery: Arc::clone(&delivery),
            backups,
            leader,
        }));
        let via = "x-transom-kubernetes-via".parse().unwrap();
        let forwarder = Forwarder::new(via, "localhost:1").unwrap();
        let mut registry = Registry::default();
        let metrics = RequestMetrics::register(&mut registry, "transom_kubernetes");
        let routes = router(&api, forwarder, metrics);
        Self {
            router: port.protect(routes.clone(), access_rules()),
            routes,
            views,
            scripts,
            delivery,
            core,
            registry,
            _elected: elected,
            _installed: installed,
        }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).await
    }

    pub(super) async fn put(&self, path: &str) -> Answer {
        self.ask(Method::PUT, path).await
    }

    pub(super) async fn ask(&self, method: Method, path: &str) -> Answer {
        self.ask_with(method, path, &[]).await
    }

    /// Sends a request from the loopback address.
    pub(super) async fn ask_with(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let request = request.extension(ConnectInfo(peer)).body(Body::empty()).unwrap();
        let (head, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// The commands that the core has received since the last call of this function.
    pub(super) fn received_commands(&self) -> Vec<String> {
        std::mem::take(&mut self.core.lock().unwrap().received_commands)
    }

    pub(super) fn reject(&self, rejection: Rejection) {
        self.core.lock().unwrap().rejection = Some(rejection);
    }
}

/// Records each command and answers it. A new count is published in the view before the answer.
async fn answer(mut received: mpsc::Receiver<Command>, core: Arc<Mutex<Core>>, views: Arc<Views>) {
    while let Some(command) = received.recv().await {
        let mut core = core.lock().unwrap();
        let (rejection, waits) = (core.rejection.take(), core.waits.take());
        let reply = |reply: crate::core::command::Reply<()>| {
            let _ = reply.send(rejection.clone().map_or(Ok(()), Err));
        };
        core.received_commands.push(match command {
            Command::Scale {
                kind,
                count,
                reply: difference,
            } => {
                let mut view = (*views.get()).clone();
                let former = std::mem::replace(view.wanted.of_mut(kind), count);
                views.publish(view);
                let answer = i64::from(count) - i64::from(former);
                let _ = difference.send(rejection.map_or(Ok(answer), Err));
                format!("scale {kind} {count}")
            }
            Command::Cordon { cordoned, reply: to } => {
                reply(to);
                format!("cordon {cordoned}")
            }
            Command::Stop { reply: to } => {
                reply(to);
                "stop".to_owned()
            }
            Command::Start { reply: to } => {
                reply(to);
                "start".to_owned()
            }
            Command::Restart { scope, reply: to } => {
                let _ = to.send(rejection.map_or(Ok(waits), Err));
                format!("restart {scope:?}")
            }
            Command::Adjust {
                kind,
                resource,
                limit,
                amount,
                reply: to,
            } => {
                reply(to);
                format!("adjust {kind} {resource:?} {limit} {amount}")
            }
            Command::BackUp { reply: name } => {
                let _ = name.send(rejection.map_or(Ok("fw-1".to_owned()), Err));
                "back up".to_owned()
            }
            Command::Restore { manifest, reply: to } => {
                reply(to);
                format!("restore {}", manifest.name)
            }
            Command::Credentials { reply: credentials } => {
                let _ = credentials
                    .send(rejection.map_or(Ok(crate::testing::secrets().credentials(&config())), Err));
                "credentials".to_owned()
            }
            Command::Token { reply: token } => {
                let _ = token.send(rejection.map_or(Ok(crate::testing::secrets().token.clone()), Err));
                "token".to_owned()
            }
            Command::AdoptPassword { reply: to } => {
                reply(to);
                "adopt".to_owned()
            }
            Command::MoveDatastore { reply: to } => {
                reply(to);
                "move".to_owned()
            }
            Command::ForgetFramework { reply: to } => {
                reply(to);
                "forget".to_owned()
            }
        });
    }
}

fn agent() -> AgentLocation {
    AgentLocation {
        id: "a1".into(),
        hostname: "h1".to_owned(),
        region: None,
        zone: None,
        endpoint: None,
    }
}

/// A port with credentials, and a second user who may only read.
pub(super) fn with_credentials() -> PortConfig {
    let user = |name: &str| {
        Some(Credentials {
            username: name.to_owned(),
            password: "pass".into(),
        })
    };
    PortConfig {
        credentials: user("user"),
        reader: user("reader"),
        ..config().port
    }
}

/// The header with the credentials of a user.
pub(super) fn authorization(user: &str) -> String {
    Credentials {
        username: user.to_owned(),
        password: "pass".into(),
    }
    .authorization()
}

/// A task of a view.
pub(super) fn task(kind: Kind, number: u32, state: Option<&str>) -> TaskView {
    TaskView {
        id: format!("{kind}-{number}"),
        number,
        state: state.map(str::to_owned),
        node: state.map(|_| format!("{kind}{number}.local")),
        host: state.map(|_| "h1".to_owned()),
        ports: state.map(|_| vec![31000]).unwrap_or_default(),
    }
}

/// A view of a running cluster with a pending agent.
pub(super) fn running() -> View {
    let mut view = View {
        ready: true,
        client_config: Some("server: https://h1:31000\n".into()),
        orchestrator: Some(Arc::new(OrchestratorView {
            version: "v1.31.5+k3s1".to_owned(),
            nodes: vec![NodeView {
                name: "server0.local".to_owned(),
                info: json!({"machineID": "m", "kubeletVersion": "v1.31.5+k3s1"}),
                ready: true,
                cordoned: false,
            }],
        })),
        ..View::default()
    };
    view.wanted = crate::PerKind::from_fn(|_| 1);
    view.wanted.agent = 2;
    view.tasks = crate::PerKind::from_fn(|kind| vec![task(kind, 0, Some("TASK_RUNNING"))]);
    view.tasks.agent.push(task(Kind::Agent, 1, None));
    view
}

/// An autoscaler that has added an agent and needs another one.
pub(super) fn autoscale() -> AutoscaleView {
    AutoscaleView {
        min: 1,
        max: 4,
        unschedulable_pods: 2,
        idle_agents: 0,
        notes: vec!["the count is `max`, 4".to_owned()],
        last: Some(Autoscaled {
            at: "2026-04-07T10:00:00Z".parse().unwrap(),
            from: 3,
            to: 4,
            reason: "pods unschedulable for 30s: d/a".to_owned(),
            leaving: Vec::new(),
        }),
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts that it is a success with this body and content type.
    pub(super) fn is(&self, content_type: &str, text: &str) {
        assert_eq!(
            (self.status, self.text.as_str()),
            (StatusCode::OK, text),
            "{self:?}"
        );
        assert_eq!(self.header("api-service"), Some("v0"), "{self:?}");
        let expected = format!("{content_type}; charset=utf-8");
        assert_eq!(self.header("content-type"), Some(expected.as_str()), "{self:?}");
    }

    /// Asserts that it is an error to a request for a path, in the format of the path's prefix.
    pub(super) fn is_error(&self, path: &str, status: u16) {
        assert_eq!(self.status.as_u16(), status, "{path}: {self:?}");
        assert_eq!(self.header("api-service"), None, "{path}: {self:?}");
        if path.starts_with("/api/m3s") {
            assert_eq!(self.text, "", "{path}: {self:?}");
        } else {
            assert!(!self.json()["message"].as_str().unwrap().is_empty(), "{path}");
        }
        let challenged = self.headers.contains_key(header::WWW_AUTHENTICATE);
        assert_eq!(challenged, status == 401, "{path}: {self:?}");
    }
}
