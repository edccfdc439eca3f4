//! Files in the sandboxes of tasks, by the agents' files API.

use anyhow::Context;
use serde_json::Value;

use crate::master::{Master, list};

/// Maximum of bytes that are read from a file.
const MAX_BYTES: usize = 64 << 10;

/// Reads a file of a command task's sandbox from the agent at `endpoint`.
pub(crate) async fn read(
    master: &Master,
    endpoint: &str,
    framework: &str,
    task: &str,
    file: &str,
) -> anyhow::Result<String> {
    let state = master.agent_get(endpoint, "/state").await?;
    let directory = directory(&state, framework, task)
        .with_context(|| format!("the agent {endpoint} shows no executor of {task}"))?;
    let path = encoded(&format!("{directory}/{file}"));
    let query = format!("/files/read?path={path}&offset=0&length={MAX_BYTES}");
    let document = master.agent_get(endpoint, &query).await?;
    let data = document["data"].as_str();
    Ok(data
        .with_context(|| format!("no `data` in {document}"))?
        .to_owned())
}

/// The sandbox of a task. The executor of a command task has the task's id.
fn directory<'a>(state: &'a Value, framework: &str, task: &str) -> Option<&'a str> {
    let lists = ["frameworks", "completed_frameworks"].into_iter();
    let frameworks = lists
        .flat_map(|name| list(&state[name]))
        .filter(|one| one["id"] == framework);
    let executors =
        frameworks.flat_map(|one| list(&one["executors"]).chain(list(&one["completed_executors"])));
    let mut found = executors.filter(|executor| executor["id"] == task);
    found.next()?["directory"].as_str()
}

/// A path, percent-encoded for a query.
fn encoded(path: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_of_a_task_is_found_in_a_recorded_agents_state() {
        let recorded = include_str!("../../fixtures/cluster/1-main/06-agent_state.json");
        let state: Value = serde_json::from_str(recorded).unwrap();
        let framework = "9a8a442f-2124-4a79-afc6-be3ed497be4a-0001";
        let found = directory(&state, framework, "beta-1").unwrap();
        assert!(found.contains("/executors/beta-1/runs/"), "{found}");
        assert_eq!(directory(&state, framework, "none"), None);
    }

    #[test]
    fn path_in_a_query_is_percent_encoded() {
        assert_eq!(encoded("/a b/c:d&e"), "/a%20b/c%3Ad%26e");
    }
}
