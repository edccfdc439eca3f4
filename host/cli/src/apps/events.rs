//! `transom apps events`.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::sleep;
use transom_plugin_host::{printable, printable_json};

use super::api::{Daemon, Query};
use super::stream::{Frame, Stream};
use crate::exit::Unavailable;
use crate::output::{Output, print_note};

/// Follow the event stream: print each event as a line, until interrupted.
///
/// A lost connection is opened again, with the id of the last event, so that the daemon sends the
/// missed events. If it does not keep all of them, the first event is an `event_stream_gap`. Messages
/// on standard error report the lost connection and the new one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps events\n  \
    transom apps events --type status_update_event --type deployment_failed\n  \
    transom apps events --type deployment_success --count 1\n  \
    transom apps events --output json | jq -r 'select(.taskStatus == \"TASK_FAILED\") | .message'")]
pub(crate) struct Events {
    /// Only events of this kind, such as `status_update_event`; repeatable. Default: all kinds except
    /// those that the daemon sends only on request.
    #[arg(long = "type", value_name = "KIND")]
    kinds: Vec<String>,
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
    pub(super) async fn run(self) -> anyhow::Result<()> {
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
                    self.print(&frame)?;
                    last = frame.id.or(last);
                    remaining = remaining.map(|remaining| remaining - 1);
                    if remaining == Some(0) {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.is::<Unavailable>() => first_line(&error),
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

    fn print(&self, frame: &Frame) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let event: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        match self.daemon.output {
            // Serialized again, so that it is one line in any case.
            Output::Json => writeln!(out, "{}", printable_json(&event.to_string()))?,
            Output::Table => writeln!(out, "{}", printable(&line(frame, &event)))?,
        }
        out.flush()?;
        Ok(())
    }
}

fn first_line(error: &anyhow::Error) -> String {
    let messages = error.chain().map(ToString::to_string);
    let messages: Vec<String> = messages.filter(|text| !text.is_empty()).collect();
    messages.join(": ").lines().next().unwrap_or_default().to_owned()
}

/// One line about an event: time, kind, and the values of some common members.
fn line(frame: &Frame, event: &Value) -> String {
    const SUBJECT_MEMBERS: &[&str] = &[
        "appId",
        "runSpecId",
        "podId",
        "groupId",
        "uri",
        "id",
        "taskId",
        "instanceId",
        "taskStatus",
        "condition",
        "host",
        "alive",
    ];
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    };
    let mut parts = vec![
        text(&event["timestamp"]).unwrap_or_else(|| "-".to_owned()),
        frame.kind.clone(),
    ];
    parts.extend(
        SUBJECT_MEMBERS
            .iter()
            .filter_map(|name| Some(format!("{name}={}", text(&event[*name])?))),
    );
    for name in ["reason", "message"] {
        parts.extend(text(&event[name]).map(|text| format!("{name}={text:?}")));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_is_one_line_with_its_subject() {
        let event = json!({
            "eventType": "status_update_event", "timestamp": "2026-01-01T00:00:00.000Z", "appId": "/a", "taskId": "a.1",
            "taskStatus": "TASK_FAILED", "message": "exited\nwith 1", "ports": [1],
        });
        let frame = Frame {
            kind: "status_update_event".to_owned(),
            ..Frame::default()
        };
        assert_eq!(
            line(&frame, &event),
            r#"2026-01-01T00:00:00.000Z status_update_event appId=/a taskId=a.1 taskStatus=TASK_FAILED message="exited\nwith 1""#
        );
        assert_eq!(line(&frame, &Value::Null), "- status_update_event");
    }
}
