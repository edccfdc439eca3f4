//! The cost of recording a call, and the number of recorded calls that are replayed per second.
//!
//! Hosts with and without a log are called alternately, so that the ratio does not depend on the
//! machine as the times do. The log's writer shares the cores with the calls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Handle;
use transom_plugin_host::{
    RecordedCalls, Recording, Signatures,
    events::{Query, View},
    matcher::AgentSet,
    trial::{ComponentFiles, ReplayReport, TrialHost},
};
use transom_tests::plugin::Plugin;

use crate::{
    agent_set::{agent, candidates, task},
    events::batch,
    figures::{CallTimes, ratio, rounded},
    site::Host,
};

/// Number of turns of each host.
const ROUNDS: u32 = 20;
/// Number of calls in a turn.
const QUESTIONS: u32 = 1_000;
const BATCHES: u64 = 50;
const AGENTS: u32 = 100;
/// Recorded percentages of the calls: off, the default, all.
const SAMPLES: &[u64] = &[0, 10, 100];

/// Selects one kind of times of a host.
type Chosen = fn(&Site) -> &CallTimes;

struct Site {
    host: Host,
    agents: AgentSet,
    view: View,
    questions: CallTimes,
    batches: CallTimes,
}

impl Site {
    async fn new(sample: u64) -> Site {
        let installed = ["attributes", "events"].map(|name| (name, Plugin::first_party(name)));
        let installed: Vec<_> = installed.iter().map(|(name, plugin)| (*name, plugin)).collect();
        let host = Host::configured(&installed, |config| {
            config.recording = (sample > 0).then(|| Recording {
                sample_percent: sample,
                ..Recording::new(config.dir.join(".calls"))
            });
        })
        .await;
        let mut agents = host.plugins.agent_set(None);
        agents.update((0..AGENTS).map(agent).collect(), Vec::new());
        let view = host.plugins.open_view(Query::default()).await.unwrap();
        Site {
            host,
            agents,
            view,
            questions: CallTimes::default(),
            batches: CallTimes::default(),
        }
    }

    async fn run_round(&mut self, round: u32) {
        let (task, some) = (task(), candidates(16));
        for _ in 0..QUESTIONS {
            let start = Instant::now();
            self.agents.evaluate(&task, &some).await.unwrap();
            self.questions.push(start.elapsed());
        }
        for number in 0..BATCHES {
            let events = batch((u64::from(round) * BATCHES + number) * 100);
            let start = Instant::now();
            self.view.decide(&events).await.unwrap();
            self.batches.push(start.elapsed());
        }
    }

    async fn calls(&self, name: &str) -> RecordedCalls {
        let hour = Duration::from_hours(1);
        self.host.plugins.recorded_calls(name, hour, 5_000).await.unwrap()
    }
}

pub(crate) async fn measure() -> Value {
    eprintln!("recording");
    let mut sites = Vec::new();
    for &sample in SAMPLES {
        sites.push(Site::new(sample).await);
    }
    for round in 0..ROUNDS {
        for site in &mut sites {
            site.run_round(round).await;
        }
    }
    let [off, default, all] = sites.as_slice() else {
        unreachable!("as many as samples");
    };
    let cost = |site: &Site, of: Chosen| {
        json!({
            "times": of(site).to_json(),
            "ratio_of_means": ratio(of(site).mean(), of(off).mean()),
            "ratio_of_medians": ratio(of(site).median(), of(off).median()),
        })
    };
    let (questions, batches): (Chosen, Chosen) = (|it| &it.questions, |it| &it.batches);
    let figures = json!({
        "agents": AGENTS,
        "question": { "off": off.questions.to_json(), "10_percent": cost(default, questions), "all": cost(all, questions) },
        "batch_of_100_events": { "off": off.batches.to_json(), "10_percent": cost(default, batches), "all": cost(all, batches) },
        "recorded_of_all": { "attributes": all.calls("attributes").await.calls.len(), "events": all.calls("events").await.calls.len() },
        "replay": { "attributes": measure_replay(all, "attributes").await, "events": measure_replay(all, "events").await },
    });
    for site in sites {
        site.host.stop().await;
    }
    figures
}

async fn measure_replay(site: &Site, name: &str) -> Value {
    let recorded = site.calls(name).await;
    let (report, time) = tokio::task::block_in_place(|| Handle::current().block_on(replay(name, &recorded)));
    assert_eq!(report.same, report.compared, "{report:?}");
    json!({
        "calls": report.compared,
        "calls_per_second": rounded(report.compared as f64 / time.as_secs_f64()),
    })
}

async fn replay(name: &str, recorded: &RecordedCalls) -> (ReplayReport, Duration) {
    let plugin = Plugin::first_party(name);
    let files = ComponentFiles::new(name, plugin.wasm, plugin.manifest);
    let component = TrialHost::new(&Signatures::default())
        .unwrap()
        .admit(&files)
        .await;
    let component = component.unwrap_or_else(|rejected| panic!("{}", rejected.reason));
    let start = Instant::now();
    let report = component.replay(recorded).await;
    (report, start.elapsed())
}
