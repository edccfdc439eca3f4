//! Changes while discovery serves: the latency from an event to the answer that contains it, the
//! CPU time of a changed task, and the query throughput during changes.

use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval};

use crate::common::query;
use crate::load::{Load, UDP_ARGS};
use crate::site::{Site, named};
use transom_testkit::usage;

const EVENTS: u32 = 200;
/// Starts and ends of tasks per second.
const EVENTS_PER_SECOND: u32 = 1000;
/// Starts and ends of tasks in total.
const CHANGED: u32 = 5000;

pub(crate) async fn measure(site: &Site, load: &Load) -> Value {
    let mut waits: Vec<Duration> = Vec::new();
    for n in 0..EVENTS {
        waits.push(wait_until_answered(site, n).await);
    }
    waits.sort();
    let micros = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_micros() as u64;

    let before = usage::cpu(site.pid());
    add_and_remove_tasks(site, "cost", CHANGED).await;
    let used = usage::cpu(site.pid()).saturating_sub(before);

    let updating = add_and_remove_tasks(site, "beside", u32::MAX);
    let asked = load.queries("a", UDP_ARGS, site.dns(), site.pid());
    let beside = tokio::select! {
        () = updating => unreachable!("the changes outlast the load"),
        asked = asked => asked,
    };
    json!({
        "event_to_answer_us": {"p50": micros(0.5), "p99": micros(0.99), "max": micros(1.0)},
        "cpu_us_a_changed_task": (used / CHANGED).as_micros() as u64,
        "a_while_a_thousand_tasks_a_second_change": beside,
    })
}

/// The time from an event to the first answer that contains it.
async fn wait_until_answered(site: &Site, n: u32) -> Duration {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(site.dns()).await.unwrap();
    let name = format!("event-{n}");
    let asking = query(&format!("{name}.marathon.mesos."), RecordType::A)
        .to_vec()
        .unwrap();
    let start = Instant::now();
    site.master.send(&added(&name, n, "TASK_RUNNING")).await;
    let mut answer = [0; 512];
    loop {
        socket.send(&asking).await.unwrap();
        let length = socket.recv(&mut answer).await.unwrap();
        // The low byte of the header's answer count.
        if answer[..length][7] > 0 {
            return start.elapsed();
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Starts tasks one after the other at an even pace, and ends each half a second later.
async fn add_and_remove_tasks(site: &Site, name: &str, max_tasks: u32) {
    const TASK_LIFETIME_EVENTS: u32 = EVENTS_PER_SECOND / 2;
    let mut pace = interval(Duration::from_secs(1) / EVENTS_PER_SECOND);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for n in 0..max_tasks {
        pace.tick().await;
        if n % 2 == 0 {
            site.master
                .send(&added(&format!("{name}-{n}"), n, "TASK_RUNNING"))
                .await;
        } else if n > TASK_LIFETIME_EVENTS {
            let ended = n - TASK_LIFETIME_EVENTS - 1;
            site.master
                .send(&updated(&format!("{name}-{ended}"), ended))
                .await;
        }
    }
}

fn added(name: &str, n: u32, state: &str) -> Value {
    json!({"type": "TASK_ADDED", "task_added": {"task": named(name, n, state)}})
}

fn updated(name: &str, n: u32) -> Value {
    let id = format!("{name}.{n}");
    let status = json!({"task_id": {"value": id}, "state": "TASK_FINISHED", "timestamp": 2.0});
    json!({"type": "TASK_UPDATED", "task_updated": {"framework_id": {"value": "F"}, "status": status, "state": "TASK_FINISHED"}})
}
