//! Runs one job in a process of its own, which the kernel ends at its limits and which is killed when
//! its caller is cancelled.
//!
//! The job is on standard input, the result on standard output. A job that is invalid ends with
//! [`EXIT_INVALID`] and the reason on standard error. Of the daemon's environment variables the
//! process gets only `LD_LIBRARY_PATH`.

use std::{
    env, io,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getpid, getpriority_process, getrlimit, prlimit, setpriority_pgrp,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
};
use transom_common::text::one_line;

use super::executor::Priority;
use crate::config::CompileProcess;

/// Exit code: the job is invalid.
pub(crate) const EXIT_INVALID: u8 = 3;
/// Exit code of a Rust program whose main thread panicked.
const EXIT_PANICKED: i32 = 101;
/// Added to the daemon's niceness. It is more than for other background work, because a job keeps
/// all of its threads busy until it ends.
const NICENESS: i32 = 13;
/// The environment variable with the number of threads that the compiler starts.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";
/// Maximum number of bytes that the daemon reads from standard error.
const MAX_MESSAGE_BYTES: u64 = 4096;
/// Parts of the error texts of Rust's runtime and of the operating system for exhausted memory.
const OUT_OF_MEMORY_TEXTS: &[&str] = &["memory allocation of", "(os error 12)"];
/// Processor time after the limit at which the kernel kills a process that survived the limit's
/// signal, in seconds.
const KILL_AFTER: u64 = 5;

/// The limits of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobLimits {
    /// Processor time of all threads together; the kernel counts whole seconds.
    pub(crate) cpu: Duration,
    /// Bytes of writable memory.
    pub(crate) memory: u64,
    pub(crate) threads: u64,
}

/// Why a job has no result.
#[derive(Debug)]
pub(crate) enum JobError {
    NotStarted(String),
    /// The job is invalid, for this reason.
    Invalid(String),
    CpuExhausted,
    OutOfMemory,
    Panicked(String),
    Ended(String),
}

/// Runs a job. Dropping the future kills the process.
pub(crate) async fn run(
    process: &CompileProcess,
    job: &[u8],
    limits: JobLimits,
    priority: Priority,
) -> Result<Vec<u8>, JobError> {
    let not_started =
        |error: &io::Error| JobError::NotStarted(format!("{}: {error}", process.program.display()));
    let ended = |error: io::Error| JobError::Ended(error.to_string());
    let mut child = Command::new(&process.program)
        .args(&process.arguments)
        .env_clear()
        // The dynamic linker may need it to find the program's libraries.
        .envs(env::var_os("LD_LIBRARY_PATH").map(|it| ("LD_LIBRARY_PATH", it)))
        .env(THREADS_VARIABLE, limits.threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // `set_priority` sets the priority of the process group, which contains all threads.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| not_started(&error))?;
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    // The kernel ends the process after this much processor time, even if the daemon was killed.
    let seconds = limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0);
    for (resource, limit, maximum) in [
        (Resource::Data, limits.memory, limits.memory),
        // At the first of the two the process gets SIGXCPU, at the second SIGKILL.
        (Resource::Cpu, seconds, seconds + KILL_AFTER),
        (Resource::Core, 0, 0),
    ] {
        set_limit(pid, resource, limit, maximum).map_err(|error| not_started(&error))?;
    }
    set_priority(pid, priority);
    let (output, message) = run_child(&mut child, job, limits.memory).await.map_err(ended)?;
    let status = child.wait().await.map_err(ended)?;
    if status.success() {
        Ok(output)
    } else {
        Err(job_error(status, &message))
    }
}

/// Limits a resource of the process, but not above the daemon's own limit.
fn set_limit(pid: Option<Pid>, resource: Resource, limit: u64, maximum: u64) -> io::Result<()> {
    let own = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit {
        current: Some(limit.min(own)),
        maximum: Some(maximum.min(own)),
    };
    prlimit(pid, resource, limit)?;
    Ok(())
}

/// Sends the job to the process, and returns the contents of its standard output and error.
async fn run_child(child: &mut Child, job: &[u8], max_output: u64) -> io::Result<(Vec<u8>, String)> {
    let (Some(mut input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("no pipes to it"));
    };
    let write = async {
        // The process may exit before it has read everything. Its exit status and message contain the
        // reason.
        match input.write_all(job).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => {
                drop(input);
                Ok(())
            }
        }
    };
    let mut result = Vec::new();
    let mut message = Vec::new();
    let mut output = output.take(max_output);
    let mut errors = errors.take(MAX_MESSAGE_BYTES);
    tokio::try_join!(
        write,
        output.read_to_end(&mut result),
        errors.read_to_end(&mut message)
    )?;
    Ok((result, String::from_utf8_lossy(&message).into_owned()))
}

/// Sets the niceness relative to that of the daemon, whatever the priority of the thread that started
/// the process.
fn set_priority(group: Option<Pid>, priority: Priority) {
    let daemon_niceness = getpriority_process(Some(getpid())).unwrap_or(0);
    let niceness = match priority {
        Priority::Background => daemon_niceness + NICENESS,
        Priority::Interactive => daemon_niceness,
    };
    // An error is not fatal: calls, or the operator, only wait a little longer.
    if let Err(error) = setpriority_pgrp(group, niceness) {
        tracing::debug!(%error, "cannot set the priority of a process that compiles or checks");
    }
}

fn job_error(status: ExitStatus, message: &str) -> JobError {
    let message = one_line(message.trim());
    if status.code() == Some(i32::from(EXIT_INVALID)) {
        return JobError::Invalid(message);
    }
    if OUT_OF_MEMORY_TEXTS.iter().any(|it| message.contains(it)) {
        return JobError::OutOfMemory;
    }
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => JobError::CpuExhausted,
        None if status.code() == Some(EXIT_PANICKED) => JobError::Panicked(message),
        _ => JobError::Ended(format!("{status}: {message}")),
    }
}
