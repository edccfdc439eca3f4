//! A client of the event stream of apps, which resumes after the last event that it has received.

use std::time::Duration;

use rand::Rng;

use super::ClientContext;
use crate::http::{Port, Stream};

/// How long the client waits before it connects again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the events of a time in which plugins trapped are on their way.
const LATE: Duration = Duration::from_mins(1);
/// One of so many steps cuts the connection, while faults happen.
const CUT_STEPS: u32 = 10_000;

/// The id of an event: the number of the term, and that of the event.
type Id = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Client {
    stream: Option<Stream>,
    /// The end of what has been received, without a complete frame.
    rest: String,
    last: Option<Id>,
    /// The address of the leader, to which a daemon has sent the client.
    leader: Option<String>,
    next: Duration,
    /// When plugins last trapped.
    trapped: Option<Duration>,
    pub(super) received: u64,
}

impl Client {
    pub(super) fn step(&mut self, world: &mut ClientContext<'_>) -> Result<(), String> {
        if world.do_plugins_trap {
            self.trapped = Some(world.now);
        }
        let Some(stream) = &self.stream else {
            if self.next <= world.now {
                let hosts = world.hosts;
                let host = world.rng.random_range(0..hosts.len());
                let to = self.leader.take().unwrap_or_else(|| Port::Apps.of(&hosts[host]));
                let last = self.last.map(|(term, number)| format!("{term}-{number}"));
                (world.trace)(&format!("a client opens /v2/events at {to} after {last:?}"));
                let opened = world.http.open(&to, "/v2/events?ids=true", last.as_deref());
                self.stream = Some(opened.map_err(|error| error.to_string())?);
                self.rest.clear();
            }
            return Ok(());
        };
        let received = stream.take();
        self.rest.push_str(&received.text);
        if received.has_ended || (world.is_stormy && world.rng.random_ratio(1, CUT_STEPS)) {
            self.stream = None;
            self.next = world.now + PAUSE;
            if let Some(leader) = received.location.as_deref().and_then(host_and_port) {
                (self.leader, self.next) = (Some(leader), world.now);
            }
        }
        while let Some(end) = self.rest.find("\r\n\r\n") {
            let frame: String = self.rest.drain(..end + 4).collect();
            self.received(&frame, world.now)?;
        }
        Ok(())
    }

    /// Within a term every event follows the one before, unless a gap is reported, or the filter has
    /// failed on an event, which is then not sent.
    fn received(&mut self, frame: &str, now: Duration) -> Result<(), String> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        let (Some(id), Some(kind)) = (field("id: "), field("event: ")) else {
            return Ok(());
        };
        let id = id.split_once('-');
        let id: Option<Id> = id.and_then(|(term, number)| Some((term.parse().ok()?, number.parse().ok()?)));
        let id = id.ok_or_else(|| format!("an event has the id {id:?}"))?;
        self.received += 1;
        let may_lack = self.trapped.is_some_and(|at| at + LATE >= now);
        let is_next = match self.last {
            Some((term, number)) if term == id.0 => id.1 == number + 1 || may_lack && id.1 > number,
            Some((term, _)) => term < id.0,
            None => true,
        };
        if !is_next && kind != "event_stream_gap" {
            return Err(format!(
                "event {id:?}, {kind}, follows {:?} on the stream",
                self.last
            ));
        }
        self.last = Some(id);
        Ok(())
    }
}

fn host_and_port(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    Some(uri.authority()?.to_string())
}
