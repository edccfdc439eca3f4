//! Deliberate additions to the recorded answers: services on the agent (`.slave.`) at the ports that a
//! task declares, as in mesos-dns's successor. Everything else must be as recorded, with nothing
//! missing.

use std::collections::BTreeSet;

use serde_json::Value;

/// The additions that are allowed for one state.
pub(crate) struct AllowedAdditions {
    /// The ports that the tasks of the state declare.
    declared: BTreeSet<u64>,
}

impl AllowedAdditions {
    pub(crate) fn of(state: &str) -> Self {
        let state: Value = serde_json::from_str(state).unwrap();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let tasks = list(&state["frameworks"]);
        let tasks = tasks.iter().flat_map(|framework| list(&framework["tasks"]));
        let ports = tasks.flat_map(|task| list(&task["discovery"]["ports"]["ports"]));
        Self {
            declared: ports
                .map(|port| port["number"].as_u64().unwrap_or_default())
                .collect(),
        }
    }

    /// Whether a row is an allowed addition.
    pub(crate) fn allows(&self, row: &Row) -> bool {
        row.service.as_ref().is_some_and(|(name, target, port)| {
            let on_agent = |name: &str| name.trim_end_matches('.').ends_with(".slave.mesos");
            on_agent(name) && on_agent(target) && self.declared.contains(port)
        })
    }

    pub(crate) fn matches(&self, expected: &BTreeSet<Row>, found: &BTreeSet<Row>) -> bool {
        expected.is_subset(found) && found.difference(expected).all(|row| self.allows(row))
    }
}

/// One record or field of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) text: String,
    /// The name, target and port, if the row is a service.
    pub(crate) service: Option<(String, String, u64)>,
}

impl Row {
    fn plain(text: String) -> Self {
        Self { text, service: None }
    }

    /// A service, with its target in the form `host:port`.
    fn service(text: String, name: &str, target: &str) -> Self {
        let service = target
            .rsplit_once(':')
            .map(|(target, port)| (name.to_owned(), target.to_owned(), port.parse().unwrap()));
        Self { text, service }
    }
}

pub(crate) fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The rows of a JSON answer, without their order.
pub(crate) fn rows(text: &str) -> BTreeSet<Row> {
    // A recording has a placeholder in place of the serial.
    let answer: Value = serde_json::from_str(&text.replace("@UNIXTIME@", "0")).unwrap();
    let Value::Object(object) = &answer else {
        return members(&answer)
            .map(|row| {
                let text = |key: &str| row[key].as_str().unwrap_or_default();
                let target = format!("{}:{}", text("host"), text("port"));
                match text("port") {
                    "" => Row::plain(row.to_string()),
                    _ => Row::service(row.to_string(), text("service"), &target),
                }
            })
            .collect();
    };
    let mut rows = BTreeSet::new();
    for framework in object.get("frameworks").into_iter().flat_map(members) {
        rows.insert(Row::plain(framework["name"].to_string()));
        for task in members(&framework["tasks"]) {
            let task_name = format!("{} {} {}", framework["name"], task["name"], task["id"]);
            rows.insert(Row::plain(task_name.clone()));
            for record in members(&task["records"]) {
                let text = format!("{task_name} {record}");
                let [name, host] = ["name", "host"].map(|key| record[key].as_str().unwrap());
                rows.insert(match record["rtype"].as_str() {
                    Some("SRV") => Row::service(text, name, host),
                    _ => Row::plain(text),
                });
            }
        }
    }
    for (kind, names) in object
        .get("Records")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for (name, values) in names.as_object().into_iter().flatten() {
            rows.extend(members(values).map(|value| {
                let text = format!("{kind} {name} {value}");
                match kind.as_str() {
                    "SRVs" => Row::service(text, name, value.as_str().unwrap()),
                    _ => Row::plain(text),
                }
            }));
        }
    }
    let rest = object
        .iter()
        .filter(|(key, _)| !["frameworks", "Records", "Serial"].contains(&key.as_str()));
    rows.extend(rest.map(|(key, value)| Row::plain(format!("{key} {value}"))));
    rows
}

pub(crate) fn sorted(value: &Value) -> BTreeSet<String> {
    members(value).map(Value::to_string).collect()
}
