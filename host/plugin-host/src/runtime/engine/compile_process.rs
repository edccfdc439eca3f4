//! Compiles one component in a process of its own.
//!
//! The process reads the component from standard input and writes the compiled code, with its header,
//! to standard output. If the component does not compile, the process writes the reason to standard
//! error and exits with [`EXIT_INVALID`]. Of the daemon's environment variables it gets only
//! `LD_LIBRARY_PATH`. The daemon sets the limits of the process before it sends the component.

use std::{
    env,
    io::{self, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus, Stdio},
    thread::available_parallelism,
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

use super::{
    ArtifactKey, CompileError, CompiledArtifact, compiled,
    precompile::{compiling_engine, precompile},
};
use crate::{config::CompileProcess, runtime::executor::Priority};

/// Exit code: the component does not compile.
const EXIT_INVALID: u8 = 3;
/// Maximum number of compiler threads for one component.
const MAX_THREADS: u64 = 4;
/// Added to the daemon's niceness. It is more than for other background work, because a compilation
/// keeps all of its threads busy until it ends.
const NICENESS: i32 = 13;
/// The environment variable with the number of threads that the compiler starts.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";
/// Maximum number of bytes that the daemon reads from standard error.
const MAX_MESSAGE_BYTES: u64 = 4096;
/// Parts of the error texts of Rust's runtime and of the operating system for exhausted memory.
const OUT_OF_MEMORY_TEXTS: [&str; 2] = ["memory allocation of", "(os error 12)"];

/// Runs in the compile process: compiles the component on standard input and writes the code to
/// standard output.
pub fn compile_standard_input() -> ExitCode {
    let compiled = read_and_compile();
    let written = compiled.and_then(|(header, artifact)| {
        let mut output = io::stdout().lock();
        output
            .write_all(&header)
            .and_then(|()| output.write_all(artifact.code()))
            .and_then(|()| output.flush())
            .map_err(|error| CompileError::Ended(error.to_string()))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(CompileError::Invalid(why)) => {
            // The daemon may have closed the pipe.
            drop(writeln!(io::stderr(), "{why}"));
            ExitCode::from(EXIT_INVALID)
        }
        Err(error) => {
            drop(writeln!(io::stderr(), "{error}"));
            ExitCode::FAILURE
        }
    }
}

fn read_and_compile() -> Result<(Vec<u8>, CompiledArtifact), CompileError> {
    let mut component = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut component)
        .map_err(|error| CompileError::Ended(error.to_string()))?;
    let key = ArtifactKey::new(&component, compiled::compatibility(&compiling_engine()?));
    let artifact = precompile(&component)?;
    Ok((artifact.header(&key), artifact))
}

/// Compiles the component of this key. Dropping the future kills the process. `time` is the caller's
/// limit of wall-clock time, from which the limit of processor time is derived.
pub(super) async fn compile(
    process: &CompileProcess,
    component: &[u8],
    key: &ArtifactKey,
    time: Duration,
    priority: Priority,
) -> Result<CompiledArtifact, CompileError> {
    let threads = available_parallelism().map_or(1, |it| (it.get() as u64).min(MAX_THREADS));
    let mut child = Command::new(&process.program)
        .args(&process.arguments)
        .env_clear()
        // The dynamic linker may need it to find the program's libraries.
        .envs(env::var_os("LD_LIBRARY_PATH").map(|it| ("LD_LIBRARY_PATH", it)))
        .env(THREADS_VARIABLE, threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // `set_priority` sets the priority of the process group, which contains all threads.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| not_started(process, &error))?;
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    // The kernel ends the process after this much processor time, even if the daemon was killed.
    let seconds = time.as_secs().saturating_add(1).saturating_mul(threads);
    for (resource, limit) in [
        (Resource::Data, process.memory),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
    ] {
        set_limit(pid, resource, limit).map_err(|error| not_started(process, &error))?;
    }
    set_priority(pid, priority);
    let (output, message) = run_child(&mut child, component, process.memory)
        .await
        .map_err(|error| CompileError::Ended(error.to_string()))?;
    let status = child
        .wait()
        .await
        .map_err(|error| CompileError::Ended(error.to_string()))?;
    if !status.success() {
        return Err(compile_error(status, &message, process.memory, time));
    }
    CompiledArtifact::verified(output, key).map_err(|why| CompileError::Ended(why.to_string()))
}

fn not_started(process: &CompileProcess, error: &io::Error) -> CompileError {
    CompileError::NotStarted(format!("{}: {error}", process.program.display()))
}

/// Limits a resource of the process to `limit`, or to the daemon's own limit if that is lower.
fn set_limit(pid: Option<Pid>, resource: Resource, limit: u64) -> io::Result<()> {
    let limit = getrlimit(resource)
        .maximum
        .map_or(limit, |daemon_limit| daemon_limit.min(limit));
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(pid, resource, limit)?;
    Ok(())
}

/// Sends the component to the process, and returns the contents of its standard output and error.
async fn run_child(child: &mut Child, component: &[u8], max_output: u64) -> io::Result<(Vec<u8>, String)> {
    let (Some(mut input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("no pipes to it"));
    };
    let write = async {
        // The process may exit before it has read everything. Its exit status and message contain the
        // reason.
        match input.write_all(component).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => {
                drop(input);
                Ok(())
            }
        }
    };
    let mut compiled = Vec::new();
    let mut message = Vec::new();
    let mut output = output.take(max_output);
    let mut errors = errors.take(MAX_MESSAGE_BYTES);
    tokio::try_join!(
        write,
        output.read_to_end(&mut compiled),
        errors.read_to_end(&mut message)
    )?;
    Ok((compiled, String::from_utf8_lossy(&message).into_owned()))
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
        tracing::debug!(%error, "cannot set the priority of a compilation");
    }
}

fn compile_error(status: ExitStatus, message: &str, memory: u64, time: Duration) -> CompileError {
    let message = one_line(message.trim());
    if status.code() == Some(i32::from(EXIT_INVALID)) {
        return CompileError::Invalid(message);
    }
    if OUT_OF_MEMORY_TEXTS.iter().any(|it| message.contains(it)) {
        return CompileError::Memory(memory);
    }
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => CompileError::TimedOut(time),
        None if status.code() == Some(EXIT_PANICKED) => {
            tracing::error!("the compiler panicked: {message}");
            CompileError::Panicked
        }
        _ => CompileError::Ended(format!("{status}: {message}")),
    }
}

/// Exit code of a Rust program whose main thread panicked.
const EXIT_PANICKED: i32 = 101;
