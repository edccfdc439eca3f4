//! Calls of the container runtime.

use super::{
    arguments::RuntimeOptions,
    inspect::{self, ImageConfig, Inspection},
    task::CLUSTER,
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
pub(super) const CALL: Duration = Duration::from_secs(20);
/// Maximum bytes of a call's output that are kept; the rest is dropped.
const OUTPUT: u64 = 1 << 20;
/// Maximum bytes of an error that are reported.
const ERROR: usize = 2048;

/// A program that runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Podman,
    Docker,
}

impl Kind {
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
    pub(super) kind: Kind,
    pub(super) version: String,
    pub(super) options: RuntimeOptions,
    /// Why bridge networks do not work; `None` if they do.
    pub(super) no_bridge: Option<String>,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) struct Outcome {
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
    pub(super) async fn call(&self, arguments: &[&str], limit: Duration) -> Result<String, String> {
        let mut all = self.options.globals.clone();
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        call(self.kind, &all, None, limit).await
    }

    /// Inspects a container; `None` if none has this name.
    pub(super) async fn inspect(&self, container: &str) -> Option<Inspection> {
        let text = self
            .call(&["inspect", "--type", "container", container], CALL)
            .await;
        inspect::container(&text.ok()?)
    }

    /// Inspects an image; `None` if it is not present.
    pub(super) async fn image(&self, name: &str) -> Option<ImageConfig> {
        let text = self.call(&["image", "inspect", name], CALL).await;
        inspect::image(&text.ok()?)
    }

    /// Kills and removes containers with their anonymous volumes. A missing one is no error.
    pub(super) async fn remove(&self, containers: &[&str]) -> Result<(), String> {
        let mut arguments = vec!["rm", "--force", "--volumes"];
        if self.kind == Kind::Podman {
            // Without `--time 0`, Podman waits for the container to stop.
            arguments.extend(["--time", "0", "--ignore"]);
        }
        arguments.extend(containers);
        match self.call(&arguments, CALL).await {
            Err(why) if why.contains("No such container") => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Removes all containers of a cluster. Returns the number of them.
    pub(super) async fn remove_all(&self, cluster: &str) -> Result<usize, String> {
        let filter = format!("label={CLUSTER}={cluster}");
        let ids = self
            .call(
                &["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter],
                CALL,
            )
            .await?;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        for some in ids.chunks(20) {
            self.remove(some).await?;
        }
        Ok(ids.len())
    }
}

/// The runtime's program. It does not run in the working directory of this daemon, because its
/// container monitor writes a file `oom` there when a container exceeds its memory limit.
fn program(kind: Kind, arguments: &[String]) -> Command {
    let mut command = Command::new(kind.program());
    command.args(arguments).current_dir(std::env::temp_dir());
    command
}

/// Calls a runtime's program; an exit status other than 0 is an error.
pub(super) async fn call(
    kind: Kind,
    arguments: &[String],
    input: Option<&[u8]>,
    limit: Duration,
) -> Result<String, String> {
    let shown = format!("{} {}", kind.program(), arguments.join(" "));
    let outcome = run(program(kind, arguments), input, limit)
        .await
        .map_err(|why| format!("Failed to run '{shown}': {why}"))?;
    if outcome.status.success() {
        return Ok(outcome.stdout);
    }
    Err(format!(
        "Failed to run '{shown}': {}; stderr='{}'",
        ended(outcome.status),
        last(outcome.stderr.trim(), ERROR)
    ))
}

fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => status.to_string(),
    }
}

/// The last part of a text, at most this many bytes.
fn last(text: &str, size: usize) -> &str {
    let from = (text.len().saturating_sub(size)..text.len()).find(|at| text.is_char_boundary(*at));
    from.map_or(text, |from| &text[from..])
}

/// Runs a program until it exits, or kills it at the time limit.
async fn run(mut command: Command, input: Option<&[u8]>, limit: Duration) -> Result<Outcome, String> {
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
    let outcome = timeout(limit, finish(&mut child, input)).await;
    match outcome {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn finish(child: &mut Child, input: Option<&[u8]>) -> std::io::Result<Outcome> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // If the program exits before it has read its input, its exit status reports why.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), stdout, stderr, status) =
        tokio::join!(write, read(stdout), read(stderr), async { child.wait().await });
    Ok(Outcome {
        status: status?,
        stdout: stdout?,
        stderr: stderr?,
    })
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let Some(from) = from else {
        return Ok(String::new());
    };
    let mut kept = Vec::new();
    let mut from = from.take(OUTPUT);
    from.read_to_end(&mut kept).await?;
    copy(&mut from.into_inner(), &mut sink()).await?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// Whether a program of this name is in a directory of `PATH`.
pub(super) fn is_installed(kind: Kind) -> bool {
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
            assert_eq!(last(text, size), expected, "{text} {size}");
        }
    }

    #[tokio::test]
    async fn program_that_exceeds_its_time_limit_returns_an_error() {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        let why = run(sleep, None, Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(why, "no answer within 0 s");
        let mut missing = Command::new("/nonexistent/program");
        missing.arg("x");
        assert!(run(missing, None, CALL).await.is_err());
    }

    #[tokio::test]
    async fn output_beyond_the_limit_is_dropped() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; head -c 3000000 /dev/zero; echo end >&2; exit 3"]);
        let outcome = run(command, Some(b"input"), CALL).await.unwrap();
        assert!(outcome.stdout.starts_with("input"));
        assert_eq!(outcome.stdout.len() as u64, OUTPUT);
        assert_eq!(outcome.stderr, "end\n");
        assert_eq!(ended(outcome.status), "exited with status 3");
    }
}
