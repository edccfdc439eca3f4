//! A client that changes all apps of a group with one request.

use std::time::Duration;

use http::{Method, StatusCode};
use rand::Rng;
use serde_json::{Value, json};

use super::{ClientContext, Request};
use crate::http::Port;

/// The mean time between two changes.
const MEAN_INTERVAL: Duration = Duration::from_mins(2);
/// See the client of the apps.
const CAUTION: Duration = Duration::from_mins(4);
/// The number of apps. They have no instances.
const APPS: usize = 12;
/// The keys of the apps in the store.
const KEYS: &str = "marathon/apps/group/";

#[derive(Debug, Default)]
pub(super) struct Client {
    /// The number of the last change that was sent, which is part of the apps' commands.
    sent: u64,
    /// That of the last one that was accepted.
    accepted: u64,
    under_way: Option<Request>,
    look: Option<Request>,
    next: Duration,
}

impl Client {
    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        if let Some(request) = &mut self.under_way
            && let Some((status, body)) = request.step(world)?
        {
            if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
                return Err(format!(
                    "the change of the group was answered by {status}: {body}"
                ));
            }
            let pause = if request.is_unsure {
                CAUTION
            } else {
                Duration::ZERO
            };
            let idle = MEAN_INTERVAL.mul_f64(world.rng.random_range(0.0..2.0));
            (self.accepted, self.under_way, self.next) = (self.sent, None, world.now + pause + idle);
            self.check_stored(world)?;
            let path = "/v2/groups/group".to_owned();
            self.look = Some(Request::new(Method::GET, Port::Apps, path, String::new()));
        } else if self.under_way.is_none() && world.is_stormy && self.next <= world.now {
            self.sent += 1;
            self.under_way = Some(change(self.sent));
        }
        if world.now.as_millis().is_multiple_of(1_000) {
            self.check_stored(world)?;
        }
        if let Some((_, body)) = self.look.as_mut().map_or(Ok(None), |look| look.step(world))? {
            self.look = None;
            let answer: Value = serde_json::from_str(&body).unwrap_or_default();
            let apps = answer["apps"].as_array().into_iter().flatten();
            let commands = apps.map(|app| app["cmd"].as_str().unwrap_or_default().to_owned());
            // A standby may show an earlier change.
            self.check(commands, 0, "clients see")?;
        }
        Ok(())
    }

    /// All changes of a request are stored, or none.
    fn check_stored(&self, world: &ClientContext<'_>) -> Result<(), String> {
        let stored = world.server.values(KEYS).map(|value| {
            let record = String::from_utf8_lossy(value);
            let command = record
                .split_once(r#""cmd":""#)
                .and_then(|(_, rest)| rest.split('"').next());
            command.unwrap_or_default().to_owned()
        });
        self.check(stored, self.accepted, "the store has")
    }

    /// Checks that the commands are those of one change, from `first` on.
    fn check(&self, commands: impl Iterator<Item = String>, first: u64, who: &str) -> Result<(), String> {
        let commands: Vec<String> = commands.collect();
        let last = commands.first().cloned().unwrap_or_default();
        let is_whole = commands.len() == APPS && commands.iter().all(|command| *command == last);
        let is_possible = (first..=self.sent).any(|number| command(number) == last);
        if is_whole && is_possible || first == 0 && commands.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{who} {commands:?} of the group, whose change {} was accepted",
            self.accepted
        ))
    }
}

fn command(number: u64) -> String {
    format!("change {number}")
}

fn change(number: u64) -> Request {
    let app = |app| json!({"id": format!("part-{app}"), "cmd": command(number), "instances": 0});
    let apps: Vec<Value> = (0..APPS).map(app).collect();
    Request::new(
        Method::PUT,
        Port::Apps,
        "/v2/groups/group?force=true".to_owned(),
        json!({ "apps": apps }).to_string(),
    )
}
