//! Ten thousand agents of a loaded agent set, evaluated by the component and by direct calls of the
//! same rules.

use std::time::Instant;

use attributes::Attributes;
use serde_json::{Value, json};
use transom_plugin_host::matcher::{Agent, Attribute, AttributeValue, Candidate, Constraint, Task};
use transom_sdk::matcher::{self as sdk, AgentSet as _, Matcher as _};
use transom_tests::plugin::Plugin;

use crate::{
    figures::{CallTimes, millis, ratio},
    site::Host,
};

const AGENTS: u32 = 10_000;
const QUESTIONS: usize = 101;

/// An agent with eight attributes.
pub(crate) fn agent(n: u32) -> Agent {
    let text = |name: &str, value: String| Attribute {
        name: name.to_owned(),
        value: AttributeValue::Text(value),
    };
    Agent {
        handle: n,
        id: format!("5f0c7d5e-3a5e-4c1e-9d5b-0f6a1c0d7e11-S{n}"),
        hostname: format!("node-{n}.cluster.example"),
        region: None,
        zone: None,
        attributes: vec![
            text("rack", format!("r{}", n % 200)),
            text("row", format!("w{}", n % 20)),
            text("class", ["web", "batch", "db", "web"][n as usize % 4].to_owned()),
            text("kernel", format!("6.{}.0", n % 5)),
            text("disk", ["ssd", "hdd"][n as usize % 2].to_owned()),
            text("owner", format!("team-{}", n % 30)),
            text("generation", (n % 7).to_string()),
            text("site", "east".to_owned()),
        ],
        extensions: Vec::new(),
    }
}

/// A task with two constraints.
pub(crate) fn task() -> Task {
    let constraint = |field: &str, operator: &str, operand: &str| Constraint::Field {
        field: field.to_owned(),
        operator: operator.to_owned(),
        operand: Some(operand.to_owned()),
    };
    Task {
        run_spec: "/bench".to_owned(),
        instances: 10,
        constraints: vec![
            constraint("class", "IS", "web"),
            constraint("rack", "LIKE", "r[0-9]*[02468]"),
        ],
        ..Task::default()
    }
}

pub(crate) fn candidates(count: u32) -> Vec<Candidate> {
    (0..count).map(|agent| Candidate { agent, capacity: 1 }).collect()
}

pub(crate) async fn measure() -> Value {
    eprintln!("agent_set: {AGENTS} agents evaluated");
    let host = Host::with(&[("attributes", &Plugin::first_party("attributes"))]).await;
    let mut agent_set = host.plugins.agent_set(None);
    let agents: Vec<Agent> = (0..AGENTS).map(agent).collect();
    agent_set.update(agents.clone(), Vec::new());
    let (task, candidates) = (task(), candidates(AGENTS));
    let start = Instant::now();
    let evaluated = agent_set.evaluate(&task, &candidates).await.unwrap();
    let first = start.elapsed();

    let mut question_times = CallTimes::default();
    for _ in 0..QUESTIONS {
        let start = Instant::now();
        agent_set.evaluate(&task, &candidates).await.unwrap();
        question_times.push(start.elapsed());
    }
    host.stop().await;
    let called = measure_native(agents, &task, &candidates, evaluated.len());
    json!({
        "agents": AGENTS,
        "first_with_loading_ms": millis(first),
        "component_ms": millis(question_times.median()),
        "native_ms": millis(called.median()),
        "ratio": ratio(question_times.median(), called.median()),
    })
}

/// Measures direct calls of the component's rules.
fn measure_native(agents: Vec<Agent>, task: &Task, candidates: &[Candidate], expected: usize) -> CallTimes {
    let plugin = transom_sdk::testing::plugin::<Attributes>("{}").unwrap();
    let mut agent_set = plugin.agent_set(None);
    agent_set.update(agents.into_iter().map(native_agent).collect(), Vec::new());
    let mut evaluate = || {
        let room = |it: &Candidate| sdk::Candidate {
            agent: it.agent,
            capacity: it.capacity,
        };
        let candidates: Vec<_> = candidates.iter().map(room).collect();
        agent_set.evaluate(&native_task(task), &candidates)
    };
    // As with the component, the first evaluation is not measured.
    assert_eq!(evaluate().len(), expected);
    let mut times = CallTimes::default();
    for _ in 0..QUESTIONS {
        let start = Instant::now();
        evaluate();
        times.push(start.elapsed());
    }
    times
}

fn native_agent(agent: Agent) -> sdk::Agent {
    let value = |value| match value {
        AttributeValue::Text(text) => sdk::Value::Text(text),
        other => panic!("{other:?}: the agents here have texts only"),
    };
    sdk::Agent {
        handle: agent.handle,
        id: agent.id,
        hostname: agent.hostname,
        region: agent.region,
        zone: agent.zone,
        attributes: agent
            .attributes
            .into_iter()
            .map(|it| sdk::Attribute {
                name: it.name,
                value: value(it.value),
            })
            .collect(),
        extensions: agent.extensions,
    }
}

fn native_task(task: &Task) -> sdk::Task {
    let constraint = |constraint: &Constraint| match constraint {
        Constraint::Expression(text) => sdk::Constraint::Expression(text.clone()),
        Constraint::Field {
            field,
            operator,
            operand,
        } => sdk::Constraint::Field(sdk::FieldConstraint {
            field: field.clone(),
            operator: operator.clone(),
            operand: operand.clone(),
        }),
    };
    sdk::Task {
        run_spec: task.run_spec.clone(),
        instances: task.instances,
        constraints: task.constraints.iter().map(constraint).collect(),
        placed: task.placed.clone(),
        extensions: task.extensions.clone(),
    }
}
