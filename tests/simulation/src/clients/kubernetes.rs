//! The client of the Kubernetes service, which scales and restarts the cluster.

use std::time::Duration;

use http::{Method, StatusCode};
use rand::Rng;
use serde_json::Value;
use transom_kubernetes::{Kind, PerKind};

use super::{ClientContext, Request};
use crate::http::Port;
use crate::services::{AGENTS, SERVERS};

/// The mean time between two changes.
const MEAN_INTERVAL: Duration = Duration::from_mins(2);
/// See the client of the apps.
const CAUTION: Duration = Duration::from_mins(4);
/// How long after the last fault, and the last change, the cluster may differ from what is wanted.
const CONVERGENCE: Duration = Duration::from_mins(15);
/// A count of agents for which a small cluster has no room.
const TOO_MANY: u32 = 8;

#[derive(Clone, Copy, Debug)]
enum Change {
    Scale(Kind, u32),
    /// Of this kind and those that use it.
    Restart(Kind),
}

#[derive(Debug)]
pub(super) struct Client {
    room: u32,
    wanted: PerKind<u32>,
    /// When the last restart of each kind was sent that was accepted.
    restarted: PerKind<Duration>,
    under_way: Option<(Change, Duration, Request)>,
    /// When the last change was accepted.
    changed: Duration,
    next: Duration,
    /// The looks at the result, with the expected answers.
    looks: Vec<(Request, String)>,
    is_checked: bool,
}

impl Client {
    /// Each of `room` agents of the cluster has room for one of Kubernetes.
    pub(super) fn new(room: u32) -> Self {
        Self {
            room,
            wanted: PerKind {
                datastore: 1,
                server: SERVERS,
                agent: AGENTS,
            },
            restarted: PerKind::default(),
            under_way: None,
            changed: Duration::ZERO,
            next: MEAN_INTERVAL,
            looks: Vec::new(),
            is_checked: false,
        }
    }

    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        let now = world.now;
        if let Some((change, sent, request)) = &mut self.under_way {
            if matches!(change, Change::Restart(Kind::Datastore)) {
                world.agents.orchestrator.restart_requested(now);
            }
            let Some((status, body)) = request.step(world)? else {
                return Ok(());
            };
            if status != StatusCode::OK {
                return Err(format!("{change:?} was answered by {status}: {body}"));
            }
            match *change {
                Change::Scale(kind, count) => *self.wanted.of_mut(kind) = count,
                Change::Restart(first) => {
                    for kind in Kind::ALL.into_iter().filter(|kind| *kind >= first) {
                        *self.restarted.of_mut(kind) = *sent;
                    }
                }
            }
            self.check_stored(world)?;
            let is_unsure = self
                .under_way
                .take()
                .is_some_and(|(.., request)| request.is_unsure);
            let pause = if is_unsure { CAUTION } else { Duration::ZERO };
            let idle = MEAN_INTERVAL.mul_f64(world.rng.random_range(0.0..2.0));
            (self.next, self.changed, self.is_checked) = (now + pause + idle, now + pause, false);
            return Ok(());
        }
        if world.is_stormy && self.next <= now {
            let change = change(world);
            let path = match change {
                Change::Scale(kind, count) => format!("{kind}/scale/{count}"),
                Change::Restart(kind) => format!("{kind}/restart"),
            };
            self.under_way = Some((change, now, request(Method::PUT, &path)));
            self.looks.clear();
        }
        self.check(world)
    }

    /// A change is stored before it is answered.
    fn check_stored(&self, world: &ClientContext<'_>) -> Result<(), String> {
        let stored = world
            .server
            .get("fw/wanted")
            .map(AsRef::as_ref)
            .unwrap_or_default();
        let stored: Value = serde_json::from_slice(stored).unwrap_or_default();
        for kind in Kind::ALL {
            let (wanted, stored) = (self.wanted.of(kind), &stored["counts"][kind.as_str()]);
            if stored != wanted {
                return Err(format!(
                    "the count of {kind}s, {wanted}, was answered, and {stored} is stored"
                ));
            }
        }
        Ok(())
    }

    /// Checks the cluster when the last change has had its time.
    fn check(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        let settled = self.changed + CONVERGENCE <= world.now && world.calm >= CONVERGENCE;
        if !settled || self.under_way.is_some() || !world.now.as_millis().is_multiple_of(1_000) {
            return Ok(());
        }
        let orchestrator = &world.agents.orchestrator;
        let (members, mut running) = (orchestrator.members(), PerKind::<u32>::default());
        for (task, member, ready) in members {
            let kind = member.kind;
            *running.of_mut(kind) += 1;
            if kind != Kind::Datastore && !ready {
                return Err(format!("the node of {kind} {task} is not ready"));
            }
            if member.launched < *self.restarted.of(kind) {
                return Err(format!("{kind} {task} was not restarted"));
            }
        }
        let most = PerKind {
            agent: self.wanted.agent.min(self.room),
            ..self.wanted
        };
        if running != most {
            return Err(format!("{most:?} can run, and {running:?} do"));
        }
        if let Some(task) = orchestrator.orphan() {
            return Err(format!("the node of {task}, which has ended, is still there"));
        }
        if self.is_checked {
            return Ok(());
        }
        if self.looks.is_empty() {
            let counts = Kind::ALL.map(|kind| {
                let (wanted, running) = (self.wanted.of(kind), most.of(kind));
                let answer = format!(r#"{{"Scale":{wanted},"Running":{running}}}"#);
                (request(Method::GET, &format!("{kind}/scale")), answer)
            });
            self.looks.extend(counts);
            let status = if most == self.wanted { "ok" } else { "nok" };
            let look = request(Method::GET, "status/orch");
            self.looks.push((look, status.to_owned()));
        }
        let Some((look, expected)) = self.looks.last_mut() else {
            return Ok(());
        };
        if let Some((_, body)) = look.step(world)? {
            if body != *expected {
                return Err(format!("{}: {body}, and not {expected}", look.path));
            }
            self.looks.pop();
            self.is_checked = self.looks.is_empty();
        }
        Ok(())
    }
}

fn change(world: &mut ClientContext<'_>) -> Change {
    match world.rng.random_range(0..12) {
        0 => Change::Restart(Kind::Datastore),
        1..=3 => Change::Restart(Kind::Server),
        4 => Change::Restart(Kind::Agent),
        5 | 6 => Change::Scale(Kind::Agent, TOO_MANY),
        7..=9 => Change::Scale(Kind::Server, world.rng.random_range(1..=3)),
        _ => Change::Scale(Kind::Agent, world.rng.random_range(1..=3)),
    }
}

fn request(method: Method, path: &str) -> Request {
    Request::new(
        method,
        Port::Kubernetes,
        format!("/api/fw/v0/{path}"),
        String::new(),
    )
}
