//! The last lines that a failed task has written to stderr, from the sandbox on its agent. They are
//! read on request, and never stored.

use std::time::Duration;

use transom_cluster::FrameworkId;
use transom_cluster::agent::{self, Agents};
use transom_plugin_host::printable;

use crate::core::failures::Sandbox;

/// The maximum number of lines, and of bytes that are read for them.
const MAX_LINES: usize = 5;
const MAX_BYTES: u64 = 1024;
/// How long the agent has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The last lines; none if the agent does not answer, or no longer has the sandbox.
pub(crate) async fn last_lines(agents: &Agents, framework: &FrameworkId, sandbox: &Sandbox) -> Vec<String> {
    let path = path(framework, sandbox);
    match tokio::time::timeout(TIMEOUT, end_of(agents, sandbox, &path)).await {
        Ok(Ok((bytes, is_whole))) => lines(&bytes, is_whole),
        Ok(Err(error)) => {
            tracing::debug!(task = %sandbox.task, error = transom_common::error_chain(&error), "stderr cannot be read");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// The last bytes of a file, and whether they are all of it.
async fn end_of(agents: &Agents, sandbox: &Sandbox, path: &str) -> transom_cluster::Result<(Vec<u8>, bool)> {
    let beginning = agents.read_bytes(&sandbox.agent, path, 0, MAX_BYTES).await?;
    if beginning.size <= MAX_BYTES {
        return Ok((beginning.data, true));
    }
    let offset = beginning.size - MAX_BYTES;
    let end = agents.read_bytes(&sandbox.agent, path, offset, MAX_BYTES).await?;
    Ok((end.data, false))
}

fn path(framework: &FrameworkId, sandbox: &Sandbox) -> String {
    let task = &sandbox.task;
    match &sandbox.executor {
        // The default executor links the sandboxes of its containers by their tasks.
        Some(executor) => format!("{}/tasks/{task}/stderr", agent::sandbox(framework, executor)),
        None => format!("{}/stderr", agent::sandbox(framework, &task.as_str().into())),
    }
}

/// The last lines with text, printable. `is_whole`: the first one is not a part of a line.
fn lines(bytes: &[u8], is_whole: bool) -> Vec<String> {
    // An agent may return more than it was asked for.
    let first = bytes.len().saturating_sub(MAX_BYTES as usize);
    let text = String::from_utf8_lossy(&bytes[first..]);
    let text = match text.split_once('\n') {
        Some((_, rest)) if (!is_whole || first > 0) && !rest.trim().is_empty() => rest,
        _ => &*text,
    };
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let mut last: Vec<String> = lines
        .rev()
        .take(MAX_LINES)
        .map(|line| printable(line).into_owned())
        .collect();
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn last_lines_are_few_whole_and_printable() {
        for (bytes, is_whole, expected) in [
            (&b""[..], true, &[][..]),
            (b"one\n\n  two  \r\n", true, &["one", "  two"]),
            (b"of a line\none\ntwo\n", false, &["one", "two"]),
            (b"one long line", false, &["one long line"]),
            (b"1\n2\n3\n4\n5\n6\n7\n", true, &["3", "4", "5", "6", "7"]),
            (b"\x1b[31mred\xff\n", true, &["\\u{1b}[31mred\u{fffd}"]),
        ] {
            assert_eq!(lines(bytes, is_whole), expected, "{bytes:?}");
        }
        let long = [b"x".repeat(5000), b"\nlast\n".to_vec()].concat();
        assert_eq!(lines(&long, true), ["last"]);
        let without_end = lines(&b"y".repeat(5000), true);
        assert_eq!(without_end.iter().map(String::len).sum::<usize>(), 1024);
    }

    #[test]
    fn path_is_that_of_the_executor_or_of_the_container() {
        let mut sandbox = Sandbox {
            agent: transom_common::HostPort::new("10.0.0.1", 5051),
            task: "t".into(),
            executor: None,
        };
        let framework = FrameworkId::from("f");
        assert_eq!(
            path(&framework, &sandbox),
            "/frameworks/f/executors/t/runs/latest/stderr"
        );
        sandbox.executor = Some("e".into());
        assert_eq!(
            path(&framework, &sandbox),
            "/frameworks/f/executors/e/runs/latest/tasks/t/stderr"
        );
    }
}
