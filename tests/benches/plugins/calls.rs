//! The cost of a call: into a warm instance, into a new instance, and through the host's queue.

use std::time::Instant;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use transom_plugin_host::{
    Signatures,
    trial::{ComponentFiles, DirectMatcher, TrialHost},
};
use transom_tests::plugin::Plugin;

use crate::{
    agent_set::{agent, candidates, task},
    figures::{CallTimes, micros},
    site::{Host, limited},
};

const CALLS: u32 = 20_000;
const NEW_INSTANCES: u32 = 5_000;

pub(crate) async fn measure() -> Value {
    eprintln!("calls");
    let attributes = Plugin::first_party("attributes");
    let mut direct = tokio::task::block_in_place(|| Handle::current().block_on(direct(&attributes)));
    let (task, one) = (task(), candidates(1));
    direct.update(agent(0));
    direct.evaluate(&task, &one).await.unwrap();

    let mut warm = CallTimes::default();
    for _ in 0..CALLS {
        let start = Instant::now();
        direct.evaluate(&task, &one).await.unwrap();
        warm.push(start.elapsed());
    }
    // Two calls: the update of an agent with eight attributes, and the evaluation.
    let mut combined = CallTimes::default();
    for n in 0..CALLS {
        let changed = transom_plugin_host::matcher::Agent {
            handle: 0,
            ..agent(n)
        };
        direct.update(changed);
        let start = Instant::now();
        direct.evaluate(&task, &one).await.unwrap();
        combined.push(start.elapsed());
    }
    let mut fresh = CallTimes::default();
    for _ in 0..NEW_INSTANCES {
        let start = Instant::now();
        direct.validate_once(&task.constraints).await.unwrap();
        fresh.push(start.elapsed());
    }
    let carrying = combined.median().saturating_sub(warm.median());
    json!({
        "question_of_a_warm_instance": warm.to_json(),
        "agent_of_8_attributes_and_question": combined.to_json(),
        "call_that_carries_8_attributes_us": micros(carrying),
        "instance_made_configured_asked_dropped": fresh.to_json(),
        "through_the_host": measure_through_host(&attributes).await,
        "through_the_host_per_call": measure_through_host(&limited(attributes, "instances = \"per-call\"")).await,
    })
}

/// A warm instance without the host's queue.
async fn direct(plugin: &Plugin) -> DirectMatcher {
    let files = ComponentFiles::new("attributes", plugin.wasm.clone(), plugin.manifest.clone());
    let component = TrialHost::new(&Signatures::default())
        .unwrap()
        .admit(&files)
        .await;
    let component = component.unwrap_or_else(|rejected| panic!("{}", rejected.reason));
    component.direct_matcher().await.unwrap()
}

/// Measures the same evaluation as a scheduler calls it: another tokio task owns the instance.
async fn measure_through_host(plugin: &Plugin) -> Value {
    let host = Host::with(&[("attributes", plugin)]).await;
    let mut agent_set = host.plugins.agent_set(None);
    agent_set.update(vec![agent(0)], Vec::new());
    let (task, one) = (task(), candidates(1));
    let mut times = CallTimes::default();
    for _ in 0..NEW_INSTANCES {
        let start = Instant::now();
        agent_set.evaluate(&task, &one).await.unwrap();
        times.push(start.elapsed());
    }
    host.stop().await;
    times.to_json()
}
