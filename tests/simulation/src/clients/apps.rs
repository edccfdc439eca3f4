//! Clients of the apps service: each owns an app, which it creates, changes, restarts and deletes.

use std::time::Duration;

use http::{Method, StatusCode};
use rand::Rng;
use serde_json::{Value, json};

use super::{ClientContext, Request};
use crate::http::Port;

/// The mean time between two changes of an app.
const MEAN_INTERVAL: Duration = Duration::from_mins(4);
/// How long a client waits after a request that may have been sent twice: longer than a daemon is
/// paused, and a leader is waited for.
const CAUTION: Duration = Duration::from_mins(4);
/// How long after the last fault, and the last change, an app may differ from its definition.
const CONVERGENCE: Duration = Duration::from_mins(15);

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Put {
        instances: u32,
        tag: u64,
    },
    Restart,
    Delete,
    /// Of a definition that no daemon may accept.
    Reject,
}

#[derive(Debug)]
struct App {
    id: String,
    /// Instances and tag; `None`: there is no app.
    wanted: Option<(u32, u64)>,
    under_way: Option<(Change, Request)>,
    /// When the last change was accepted.
    changed: Duration,
    next: Duration,
    tags: u64,
    /// The look at the result.
    look: Option<Request>,
    is_checked: bool,
}

#[derive(Debug)]
pub(super) struct Clients {
    apps: Vec<App>,
    /// The largest number of instances of an app.
    instances: u32,
    pub(super) changes: u64,
}

impl Clients {
    /// One client for each app.
    pub(super) fn new(apps: u32, instances: u32) -> Self {
        let apps = (0..apps).map(|number| App {
            id: format!("app-{number}"),
            wanted: None,
            under_way: None,
            changed: Duration::ZERO,
            next: Duration::ZERO,
            tags: 0,
            look: None,
            is_checked: false,
        });
        Self {
            apps: apps.collect(),
            instances,
            changes: 0,
        }
    }

    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        for app in &mut self.apps {
            self.changes += u64::from(app.step(self.instances, world)?);
            app.check(world)?;
        }
        Ok(())
    }
}

impl App {
    /// Whether a change was accepted.
    fn step(&mut self, instances: u32, world: &mut ClientContext<'_>) -> Result<bool, String> {
        if let Some((change, request)) = &mut self.under_way {
            let Some((status, body)) = request.step(world)? else {
                return Ok(false);
            };
            let is_done = match (&change, status) {
                (Change::Put { instances, tag }, StatusCode::OK | StatusCode::CREATED) => {
                    self.wanted = Some((*instances, *tag));
                    true
                }
                (Change::Restart, StatusCode::OK) => true,
                // An earlier attempt may have deleted it.
                (Change::Delete, StatusCode::OK | StatusCode::NOT_FOUND) => {
                    self.wanted = None;
                    true
                }
                (Change::Reject, StatusCode::UNPROCESSABLE_ENTITY) => false,
                _ => {
                    return Err(format!(
                        "{}: {change:?} was answered by {status}: {body}",
                        self.id
                    ));
                }
            };
            let pause = if request.is_unsure {
                CAUTION
            } else {
                Duration::ZERO
            };
            let idle = MEAN_INTERVAL.mul_f64(world.rng.random_range(0.0..2.0));
            (self.next, self.under_way) = (world.now + pause + idle, None);
            (self.changed, self.is_checked) = (world.now + pause, false);
            return Ok(is_done);
        }
        if world.is_stormy && self.next <= world.now {
            self.look = None;
            let change = match (world.rng.random_range(0..10), self.wanted) {
                (0, _) => Change::Reject,
                (1, Some(_)) => Change::Delete,
                (2, Some(_)) => Change::Restart,
                _ => {
                    self.tags += 1;
                    let instances = world.rng.random_range(0..=instances);
                    Change::Put {
                        instances,
                        tag: self.tags,
                    }
                }
            };
            let request = self.request(&change);
            self.under_way = Some((change, request));
        }
        Ok(false)
    }

    fn request(&self, change: &Change) -> Request {
        let id = &self.id;
        let (method, path, body) = match change {
            Change::Put { instances, tag } => (
                Method::PUT,
                format!("/v2/apps/{id}?force=true"),
                json!({
                    "cmd": "serve", "cpus": 0.3, "mem": 64, "instances": instances,
                    "env": {"TAG": tag.to_string()},
                    "healthChecks": [{
                        "protocol": "HTTP", "path": "/", "gracePeriodSeconds": 30, "intervalSeconds": 10,
                        "maxConsecutiveFailures": 3,
                    }],
                })
                .to_string(),
            ),
            Change::Reject => (
                Method::PUT,
                format!("/v2/apps/{id}?force=true"),
                json!({"cmd": "serve", "instances": -1}).to_string(),
            ),
            Change::Restart => (
                Method::POST,
                format!("/v2/apps/{id}/restart?force=true"),
                String::new(),
            ),
            Change::Delete => (Method::DELETE, format!("/v2/apps/{id}?force=true"), String::new()),
        };
        Request::new(method, Port::Apps, path, body)
    }

    /// Checks the result of the last change when it has had its time.
    fn check(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        let settled = self.changed + CONVERGENCE <= world.now && world.calm >= CONVERGENCE;
        if !settled || self.is_checked || self.under_way.is_some() {
            return Ok(());
        }
        let id = &self.id;
        let running = world.agents.instances(id).count();
        let wanted = self.wanted.map_or(0, |(instances, _)| instances as usize);
        if running != wanted {
            return Err(format!(
                "{id} has {running} tasks, and {wanted} instances were accepted"
            ));
        }
        let tag = self.wanted.map(|(_, tag)| tag.to_string()).unwrap_or_default();
        let mut instances = world.agents.instances(id);
        if let Some(outdated) = instances.find(|process| process.tag != tag) {
            return Err(format!(
                "an instance of {id} has the tag {}, and that of the app is {tag}",
                outdated.tag
            ));
        }
        let look = self.look.get_or_insert_with(|| {
            Request::new(Method::GET, Port::Apps, format!("/v2/apps/{id}"), String::new())
        });
        let Some((status, body)) = look.step(world)? else {
            return Ok(());
        };
        (self.look, self.is_checked) = (None, true);
        let Some((instances, tag)) = self.wanted else {
            return match status {
                StatusCode::NOT_FOUND => Ok(()),
                _ => Err(format!("{id} was deleted, and is answered by {status}: {body}")),
            };
        };
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        let (app, shown_tag) = (&answer["app"], tag.to_string());
        let is_as_wanted = app["instances"] == instances
            && app["tasksRunning"] == instances
            && app["tasksHealthy"] == instances
            && app["env"]["TAG"] == *shown_tag
            && app["deployments"].as_array().is_some_and(Vec::is_empty);
        if is_as_wanted {
            return Ok(());
        }
        Err(format!(
            "{id} should have {instances} instances with tag {tag}, and is answered by {status}: {body}"
        ))
    }
}
