//! `transom events`, which `transom apps events` is too.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;
use transom_plugin_host::{printable, printable_json};

use super::api::{Daemon, Query};
use super::complete;
use super::stream::{Frame, Stream};
use super::{event_text, id};
use crate::exit::{self, Unavailable};
use crate::output::{Output, print_note};

/// Follow the event stream: print each event as a sentence, until interrupted.
///
/// With `--output json` each event is one line of JSON.
/// A lost connection is opened again, with the id of the last event, so that the daemon sends the
/// missed events. If it does not keep all of them, the first event is an `event_stream_gap`. Messages
/// on standard error report the lost connection and the new one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom events\n  \
    transom events --app /shop --type status_update_event --type deployment_failed\n  \
    transom events --type deployment_success --count 1\n  \
    transom events --output json | jq -r 'select(.taskStatus == \"TASK_FAILED\") | .message'")]
pub struct Events {
    /// Only events of this kind, such as `status_update_event`; repeatable. Default: all kinds except
    /// those that the daemon sends only on request.
    #[arg(long = "type", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only events about this app or pod, or about those in this group.
    #[arg(long, value_name = "ID", value_parser = id::parse, add = complete::apps())]
    app: Option<String>,
    /// Only events for which this expression is true; the daemon's events component defines its syntax.
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// End after this many events.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    daemon: Daemon,
}

/// The initial and the maximum backoff before a reconnect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

impl Events {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let mut query = Query::from([("ids", "true".to_owned()), ("plan-format", "light".to_owned())]);
        query.extend(self.kinds.iter().map(|kind| ("event_type", kind.clone())));
        query.extend(self.filter.clone().map(|filter| ("filter", filter)));
        let mut stream = Stream::open(&api, &query, None).await?;
        let mut last: Option<String> = None;
        let mut remaining = self.count;
        loop {
            let reason = match stream.next().await {
                Ok(frame) => {
                    let is_printed = self.print(&frame)?;
                    last = frame.id.or(last);
                    if !is_printed {
                        continue;
                    }
                    remaining = remaining.map(|remaining| remaining - 1);
                    if remaining == Some(0) {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.is::<Unavailable>() => exit::first_line(&error),
                Err(error) => return Err(error),
            };
            let position = last
                .as_deref()
                .map(|id| format!(" after event {id}"))
                .unwrap_or_default();
            print_note(format_args!(
                "connection lost{position}: {}; reconnecting",
                printable(&reason)
            ));
            let mut pause = BACKOFF.0;
            stream = loop {
                sleep(pause).await;
                match Stream::open(&api, &query, last.as_deref()).await {
                    Ok(stream) => break stream,
                    Err(error) if error.is::<Unavailable>() => pause = (pause * 2).min(BACKOFF.1),
                    Err(error) => return Err(error),
                }
            };
            match &last {
                Some(id) => print_note(format_args!(
                    "reconnected; resuming after event {id} (an event_stream_gap reports missing events)"
                )),
                None => print_note("reconnected; events sent while disconnected are missing"),
            }
        }
    }

    /// Prints an event, if it is about the chosen app. Returns whether it is.
    fn print(&self, frame: &Frame) -> anyhow::Result<bool> {
        let mut out = std::io::stdout().lock();
        let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        let is_gap = frame.kind == "event_stream_gap";
        if let Some(id) = &self.app
            && !is_gap
            && !event_text::is_about(&event, id)
        {
            return Ok(false);
        }
        match self.daemon.output {
            // Serialized again, so that it is one line in any case.
            Output::Json => writeln!(out, "{}", printable_json(&event.to_string()))?,
            Output::Table => writeln!(out, "{}", printable(&line(&frame.kind, &event)))?,
        }
        out.flush()?;
        Ok(true)
    }
}

/// One line about an event: its time, and a sentence.
fn line(kind: &str, event: &Value) -> String {
    let time = event["timestamp"].as_str().unwrap_or("-");
    format!("{time} {}", event_text::sentence(kind, event))
}
