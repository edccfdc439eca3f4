//! Recorded messages of a real master and a recorded task record, as templates for any number of
//! agents and tasks. Names have the same length for every number, so that the length of a list is
//! known before it is written.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

/// Differs between updates, as with a real agent.
const UUID: &str = "AAAAAAAAAAAAAA~number~==";

/// Number of instances of an app, and thus of records of a service name.
pub(crate) const INSTANCES: u32 = 8;

/// The values of a template, in the order of its marks.
pub(crate) struct Names {
    name: String,
    task: String,
    agent: String,
    address: String,
    number: String,
}

impl Names {
    /// The names of a task on one of `agents` agents.
    pub(crate) fn of_task(n: u32, agents: u32) -> Self {
        Self {
            name: app(n / INSTANCES),
            task: task_id(n),
            agent: agent_id(n % agents),
            address: address(n, 10),
            number: format!("{n:08}"),
        }
    }

    /// The names of an update of a task; each update has another number.
    pub(crate) fn of_update(n: u32, agents: u32, number: u32) -> Self {
        Self {
            number: format!("{number:08}"),
            ..Self::of_task(n, agents)
        }
    }

    /// The names of an agent: `name` is its host, `number` its rack.
    pub(crate) fn of_agent(n: u32) -> Self {
        Self {
            name: format!("node-{n:06}"),
            task: format!("offer-{n:06}"),
            agent: agent_id(n),
            address: address(n, 11),
            number: format!("r{:03}", n % 200),
        }
    }

    /// The agent's id.
    pub(crate) fn agent(&self) -> &str {
        &self.agent
    }

    fn value(&self, mark: &str) -> Option<&str> {
        Some(match mark {
            "name" => &self.name,
            "task" => &self.task,
            "agent" => &self.agent,
            "address" => &self.address,
            "number" => &self.number,
            _ => return None,
        })
    }
}

pub(crate) fn app(n: u32) -> String {
    format!("app-{n:06}")
}

pub(crate) fn task_id(n: u32) -> String {
    format!("app-{:06}.instance-{n:08}", n / INSTANCES)
}

/// The number in a task's id.
pub(crate) fn task_number(id: &str) -> Option<u32> {
    id.rsplit_once('-')?.1.parse().ok()
}

fn agent_id(n: u32) -> String {
    format!("9a8a442f-2124-4a79-afc6-be3ed497be4a-S{n:06}")
}

/// Always 14 characters.
fn address(n: u32, net: u32) -> String {
    format!(
        "{net}.{}.{}.{}",
        100 + n / 10_000 % 100,
        100 + n / 100 % 100,
        100 + n % 100
    )
}

/// A text with marks such as `~task~`.
pub(crate) struct Template(Vec<String>);

impl Template {
    fn new(text: &str) -> Self {
        Self(text.split('~').map(str::to_owned).collect())
    }

    /// Appends the text with the values of its marks.
    pub(crate) fn write(&self, names: &Names, into: &mut String) {
        for piece in &self.0 {
            into.push_str(names.value(piece).unwrap_or(piece));
        }
    }

    pub(crate) fn text(&self, names: &Names) -> String {
        let mut text = String::new();
        self.write(names, &mut text);
        text
    }
}

/// All templates.
pub(crate) struct RecordedTemplates {
    /// Entries of the operator stream's snapshot.
    pub(crate) agent: Template,
    pub(crate) framework: String,
    pub(crate) task: Template,
    /// Events of the operator stream: a task is added, runs, and is killed.
    pub(crate) task_added: Template,
    pub(crate) task_running: Template,
    pub(crate) task_killed: Template,
    /// Events of the scheduler's stream; an offer has the number of its agent.
    pub(crate) offer: Template,
    pub(crate) update: Template,
    /// A stored task record of the apps service.
    pub(crate) record: Template,
}

impl RecordedTemplates {
    pub(crate) fn load() -> Self {
        let agent = list("05-2fw-v1-GET_AGENTS", "/get_agents/agents");
        let task = list("05-2fw-v1-GET_TASKS", "/get_tasks/tasks");
        let framework = list("05-2fw-v1-GET_FRAMEWORKS", "/get_frameworks/frameworks");
        let operator = file("tests/fixtures/cluster/1-main/15-operator-subscribe.events.json");
        let events = file("tests/fixtures/cluster/1-main/13-beta-stream.events.json");
        let running = r#""state":"TASK_RUNNING""#;
        Self {
            agent: of_agent(&agent.replace("\"r1\"", "\"~number~\"")),
            framework,
            task: of_task(&task),
            task_added: of_task(&event(&operator, "TASK_ADDED", "")),
            task_running: of_task(&event(&operator, "TASK_UPDATED", running)),
            task_killed: of_task(&event(&operator, "TASK_UPDATED", "TASK_KILLED")),
            offer: of_agent(&offer()),
            update: of_task(&event(&events, "UPDATE", running).replace("n3AXir9AR2Ocld0MDnlxdg==", UUID)),
            record: of_task(&record()),
        }
    }
}

/// The recorded task is `beta-1`; its names become marks.
fn of_task(text: &str) -> Template {
    let text = text
        .replace(r#""name":"beta-1""#, r#""name":"~name~""#)
        .replace("beta-1", "~task~");
    Template::new(&of_site(&text))
}

fn of_agent(text: &str) -> Template {
    Template::new(&of_site(&text.replace("localhost", "~name~")))
}

fn of_site(text: &str) -> String {
    text.replace("9a8a442f-2124-4a79-afc6-be3ed497be4a-S0", "~agent~")
        .replace("127.0.0.1", "~address~")
}

fn file(path: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first entry of a recorded list.
fn list(name: &str, pointer: &str) -> String {
    let answer = file(&format!("tests/fixtures/cluster/1-main/{name}.json"));
    let entry = answer.pointer(pointer).and_then(|list| list.get(0));
    entry.expect("a recorded entry").to_string()
}

/// The first recorded event of a kind that contains this text.
fn event(events: &Value, kind: &str, text: &str) -> String {
    let events = events
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry["event"]);
    let found = events
        .filter(|event| event["type"] == kind)
        .map(Value::to_string)
        .find(|event| event.contains("beta-1") && event.contains(text));
    found.unwrap_or_else(|| panic!("no recorded {kind} has {text}"))
}

/// An offer to the role `*`.
fn offer() -> String {
    let mut offer = file("tests/fixtures/cluster/1-main/02-offer.json");
    offer["id"]["value"] = "~task~".into();
    let offer = offer.to_string().replace("\"alpha\"", "\"*\"");
    offer.replace("\"r1\"", "\"~number~\"")
}

/// The record was recorded in another run: its ids are replaced by those of `beta-1`.
fn record() -> String {
    let stored = file("host/apps/tests/fixtures/store-1.json");
    let entries = stored.as_object().expect("entries by key");
    let (key, record) = entries
        .iter()
        .find(|(key, _)| key.starts_with("tasks/shop_web"))
        .expect("a recorded task");
    let agent = record["agent"]["id"]["value"].as_str().expect("an agent");
    let uuid = record["status"]["uuid"].as_str().expect("a uuid");
    record
        .to_string()
        .replace(key.trim_start_matches("tasks/"), "beta-1")
        .replace(agent, "9a8a442f-2124-4a79-afc6-be3ed497be4a-S0")
        .replace(uuid, UUID)
        .replace("/shop/web", "/~name~")
}
