//! Calls of the container runtime.

use super::{
    arguments::RuntimeOptions,
    inspect::{self, ImageConfig, Inspection},
    task::CLUSTER_LABEL,
};
use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy, sink},
    process::{Child, Command},
    time::timeout,
};

/// Timeout of a call that neither starts a container nor pulls an image.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of a call's output that are kept; the rest is dropped.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Maximum bytes of an error that are reported.
const MAX_ERROR_BYTES: usize = 2048;

/// A program that runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    Podman,
    Docker,
}

impl RuntimeKind {
    /// The program's name.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

/// A runtime that has run a container on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub(super) kind: RuntimeKind,
    pub(super) version: String,
    pub(super) options: RuntimeOptions,
    /// Why bridge networks do not work; `None` if they do.
    pub(super) bridge_error: Option<String>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) struct CallOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Runtime {
    /// A description for users, such as `podman 4.3.1`.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}", self.kind.program(), self.version)
    }

    /// The runtime's program with these arguments.
    pub(super) fn command(&self, arguments: &[String]) -> Command {
        program(self.kind, arguments)
    }

    /// Calls the program with the options of every command. An exit status other than 0 is an
    /// error, worded like an agent's.
    pub(super) async fn call(&self, arguments: &[&str], time_limit: Duration) -> Result<String, String> {
        let mut args = self.options.global_options.clone();
        args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        call(self.kind, &args, None, time_limit).await
    }

    /// Inspects a container; `None` if none has this name.
    pub(super) async fn inspect(&self, container: &str) -> Option<Inspection> {
        let text = self
            .call(&["inspect", "--type", "container", container], CALL_TIMEOUT)
            .await;
        inspect::container(&text.ok()?)
    }

    /// Inspects an image; `None` if it is not present.
    pub(super) async fn inspect_image(&self, name: &str) -> Option<ImageConfig> {
        let text = self.call(&["image", "inspect", name], CALL_TIMEOUT).await;
        inspect::image(&text.ok()?)
    }

    /// Kills and removes containers with their anonymous volumes. A missing one is no error.
    pub(super) async fn remove(&self, containers: &[&str]) -> Result<(), String> {
        let mut arguments = vec!["rm", "--force", "--volumes"];
        if self.kind == RuntimeKind::Podman {
            // Without `--time 0`, Podman waits for the container to stop.
            arguments.extend(["--time", "0", "--ignore"]);
        }
        arguments.extend(containers);
        match self.call(&arguments, CALL_TIMEOUT).await {
            Err(why) if why.contains("No such container") => Ok(()),
            output => output.map(|_| ()),
        }
    }

    /// Removes all containers of a cluster. Returns the number of them.
    pub(super) async fn remove_all(&self, cluster: &str) -> Result<usize, String> {
        let filter = format!("label={CLUSTER_LABEL}={cluster}");
        let ids = self
            .call(
                &["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter],
                CALL_TIMEOUT,
            )
            .await?;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        for chunk in ids.chunks(20) {
            self.remove(chunk).await?;
        }
        Ok(ids.len())
    }
}

/// The runtime's program. It does not run in the working directory of this daemon, because its
/// container monitor writes a file `oom` there when a container exceeds its memory limit.
fn program(kind: RuntimeKind, arguments: &[String]) -> Command {
    let mut command = Command::new(kind.program());
    command.args(arguments).current_dir(std::env::temp_dir());
    command
}

/// Calls a runtime's program; an exit status other than 0 is an error.
pub(super) async fn call(
    kind: RuntimeKind,
    arguments: &[String],
    input: Option<&[u8]>,
    time_limit: Duration,
) -> Result<String, String> {
    let command_line = format!("{} {}", kind.program(), arguments.join(" "));
    let output = run(program(kind, arguments), input, time_limit)
        .await
        .map_err(|why| format!("Failed to run '{command_line}': {why}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!(
        "Failed to run '{command_line}': {}; stderr='{}'",
        describe_status(output.status),
        tail(output.stderr.trim(), MAX_ERROR_BYTES)
    ))
}

fn describe_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => status.to_string(),
    }
}

/// The last part of a text, at most this many bytes.
fn tail(text: &str, size: usize) -> &str {
    let start = (text.len().saturating_sub(size)..text.len()).find(|at| text.is_char_boundary(*at));
    start.map_or(text, |start| &text[start..])
}

/// Runs a program until it exits, or kills it at the time limit.
async fn run(mut command: Command, input: Option<&[u8]>, time_limit: Duration) -> Result<CallOutput, String> {
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let output = timeout(time_limit, communicate(&mut child, input)).await;
    match output {
        Ok(output) => output.map_err(|error| error.to_string()),
        Err(_) => Err(format!("timed out after {} s", time_limit.as_secs())),
    }
}

async fn communicate(child: &mut Child, input: Option<&[u8]>) -> std::io::Result<CallOutput> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // If the program exits before it has read its input, its exit status reports why.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), stdout, stderr, status) =
        tokio::join!(write, read(stdout), read(stderr), async { child.wait().await });
    Ok(CallOutput {
        status: status?,
        stdout: stdout?,
        stderr: stderr?,
    })
}

async fn read(source: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let Some(source) = source else {
        return Ok(String::new());
    };
    let mut content = Vec::new();
    let mut source = source.take(MAX_OUTPUT_BYTES);
    source.read_to_end(&mut content).await?;
    copy(&mut source.into_inner(), &mut sink()).await?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// Whether a program of this name is in a directory of `PATH`.
pub(super) fn is_installed(kind: RuntimeKind) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| Path::new(&dir).join(kind.program()).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_shortened_at_a_character() {
        for (text, size, expected) in [
            ("abc", 5, "abc"),
            ("abc", 3, "abc"),
            ("abc", 2, "bc"),
            ("aéc", 2, "c"),
            ("", 2, ""),
        ] {
            assert_eq!(tail(text, size), expected, "{text} {size}");
        }
    }

    #[tokio::test]
    async fn program_that_exceeds_its_time_limit_returns_an_error() {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let why = run(sleep, None, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(why, "timed out after 0 s");
        let mut missing = Command::new("/nonexistent/program");
        missing.arg("x");
        assert!(run(missing, None, CALL_TIMEOUT).await.is_err());
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_dropped() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; head -c 3000000 /dev/zero; echo end >&2; exit 3"]);
        let output = run(command, Some(b"input"), CALL_TIMEOUT).await.unwrap();
        assert!(output.stdout.starts_with("input"));
        assert_eq!(output.stdout.len() as u64, MAX_OUTPUT_BYTES);
        assert_eq!(output.stderr, "end\n");
        assert_eq!(describe_status(output.status), "exited with status 3");
    }
}
