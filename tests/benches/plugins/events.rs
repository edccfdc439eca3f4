//! Events filtered per second, by the component and by direct calls of the same rules.

use std::time::{Duration, Instant};

use events::Events;
use serde_json::{Value, json};
use transom_plugin_host::{
    Plugins,
    events::{Event, Query},
};
use transom_sdk::events as sdk;
use transom_sdk::events::{Filter as _, View as _};
use transom_tests::plugin::Plugin;

use crate::{
    figures::{CallTimes, rounded},
    site::Host,
};

const BATCH: u64 = 100;
const BATCHES: u64 = 2_000;

pub(crate) fn batch(first: u64) -> Vec<Event> {
    (first..first + BATCH)
        .map(|sequence| Event {
            sequence,
            kind: [
                "status_update_event",
                "deployment_step_success",
                "plugin_admitted_event",
                "app_terminated_event",
            ][(sequence % 4) as usize]
                .to_owned(),
            subject: Some(format!("/shop/web-{}", sequence % 50)),
            body: body(sequence),
        })
        .collect()
}

/// About as long as a status update.
fn body(sequence: u64) -> String {
    json!({
        "eventType": "status_update_event", "timestamp": "2026-11-20T10:00:00.000Z", "slaveId": "5f0c7d5e-3a5e-4c1e-9d5b-0f6a1c0d7e11-S7",
        "taskId": format!("shop_web.instance-7a1f{sequence:08x}-c0de-11f1-9e2a-0242ac110002._app.1"), "taskStatus": "TASK_RUNNING",
        "appId": "/shop/web", "host": "node-7.cluster.example", "ports": [31_000], "version": "2026-11-20T09:00:00.000Z",
        "ipAddresses": [{"ipAddress": "10.1.2.3", "protocol": "IPv4"}], "message": "",
    })
    .to_string()
}

pub(crate) async fn measure() -> Value {
    eprintln!("events");
    let host = Host::with(&[("events", &Plugin::first_party("events"))]).await;
    let (component, component_times) = component(&host.plugins).await;
    host.stop().await;
    let native = native();
    json!({
        "events_in_a_batch": BATCH,
        "bytes_of_an_event": body(1).len(),
        "component_per_second": per_second(component),
        "native_per_second": per_second(native),
        "ratio": rounded(component.as_secs_f64() / native.as_secs_f64()),
        "component_batches": component_times.to_json(),
    })
}

async fn component(plugins: &Plugins) -> (Duration, CallTimes) {
    let view = plugins.open_view(Query::default()).await.unwrap();
    let mut times = CallTimes::default();
    let mut passed = 0;
    let start = Instant::now();
    for number in 0..BATCHES {
        let events = batch(number * BATCH);
        let start = Instant::now();
        passed += view.decide(&events).await.unwrap().len();
        times.push(start.elapsed());
    }
    assert_eq!(passed as u64, BATCH * BATCHES);
    (start.elapsed(), times)
}

fn native() -> Duration {
    let plugin = transom_sdk::testing::plugin::<Events>("{}").unwrap();
    let query = sdk::Query {
        event_types: Vec::new(),
        expression: None,
        principal: None,
        extensions: Vec::new(),
    };
    let mut view = plugin.open(query).unwrap();
    let mut passed = 0;
    let start = Instant::now();
    for number in 0..BATCHES {
        let events: Vec<sdk::Event> = batch(number * BATCH)
            .into_iter()
            .map(|event| sdk::Event {
                sequence: event.sequence,
                kind: event.kind,
                subject: event.subject,
                body: event.body,
            })
            .collect();
        passed += view.decide(&events).len();
    }
    assert_eq!(passed as u64, BATCH * BATCHES);
    start.elapsed()
}

fn per_second(time: Duration) -> u64 {
    ((BATCH * BATCHES) as f64 / time.as_secs_f64()) as u64
}
