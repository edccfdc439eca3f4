//! Compiles one component in a process of its own.
//!
//! The process gets the component on standard input and writes the compiled one, with its header,
//! to standard output. If the component does not compile it writes the reason to standard error and
//! exits with [`INVALID`]. It sees no environment variable of the daemon. Its limits are set before
//! it gets the component.

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
const INVALID: u8 = 3;
/// Maximum threads for one component.
const THREADS: u64 = 4;
/// Added to the daemon's niceness: more than of other work in the background, because all of the
/// threads compile as long as there is something to compile.
const NICENESS: i32 = 13;
/// How many threads the compiler starts.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";
/// Bytes of standard error that are read.
const MAX_MESSAGE: u64 = 4096;
/// What Rust's runtime, and the system, say when memory is exhausted.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "(os error 12)"];

/// The work of the process: compiles standard input to standard output.
pub fn compile_standard_input() -> ExitCode {
    let compiled = read_and_compile();
    let written = compiled.and_then(|(head, artifact)| {
        let mut output = io::stdout().lock();
        output
            .write_all(&head)
            .and_then(|()| output.write_all(artifact.code()))
            .and_then(|()| output.flush())
            .map_err(|error| CompileError::Ended(error.to_string()))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(CompileError::Invalid(why)) => {
            // The reader may be gone.
            drop(writeln!(io::stderr(), "{why}"));
            ExitCode::from(INVALID)
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
    Ok((artifact.head(&key), artifact))
}

/// Compiles the component of this key. Dropping the future kills the process. `time`: the limit of
/// the caller, from which the limit of processor time follows.
pub(super) async fn compile(
    process: &CompileProcess,
    component: &[u8],
    key: &ArtifactKey,
    time: Duration,
    priority: Priority,
) -> Result<CompiledArtifact, CompileError> {
    let threads = available_parallelism().map_or(1, |it| (it.get() as u64).min(THREADS));
    let mut child = Command::new(&process.program)
        .args(&process.arguments)
        .env_clear()
        // Where the program's libraries are.
        .envs(env::var_os("LD_LIBRARY_PATH").map(|it| ("LD_LIBRARY_PATH", it)))
        .env(THREADS_VARIABLE, threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its priority is lowered as that of a group, which all of its threads are in.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| not_started(process, &error))?;
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    // After this much processor time it ends even if the daemon was killed.
    let seconds = time.as_secs().saturating_add(1).saturating_mul(threads);
    for (resource, limit) in [
        (Resource::Data, process.memory),
        (Resource::Cpu, seconds),
        (Resource::Core, 0),
    ] {
        restrict(pid, resource, limit).map_err(|error| not_started(process, &error))?;
    }
    set_priority(pid, priority);
    let (output, message) = exchange(&mut child, component, process.memory)
        .await
        .map_err(|error| CompileError::Ended(error.to_string()))?;
    let status = child
        .wait()
        .await
        .map_err(|error| CompileError::Ended(error.to_string()))?;
    if !status.success() {
        return Err(failure(status, &message, process.memory, time));
    }
    CompiledArtifact::verified(output, key).map_err(|why| CompileError::Ended(why.to_string()))
}

fn not_started(process: &CompileProcess, error: &io::Error) -> CompileError {
    CompileError::NotStarted(format!("{}: {error}", process.program.display()))
}

/// Limits a resource, within what the daemon itself may have.
fn restrict(pid: Option<Pid>, resource: Resource, limit: u64) -> io::Result<()> {
    let limit = getrlimit(resource).maximum.map_or(limit, |own| own.min(limit));
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(pid, resource, limit)?;
    Ok(())
}

/// Hands the component over, and returns what the process writes to standard output and error.
async fn exchange(child: &mut Child, component: &[u8], max_output: u64) -> io::Result<(Vec<u8>, String)> {
    let (Some(mut input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("no pipes to it"));
    };
    let write = async {
        // It may exit before it has read everything; its exit status and message say why.
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
    let mut errors = errors.take(MAX_MESSAGE);
    tokio::try_join!(
        write,
        output.read_to_end(&mut compiled),
        errors.read_to_end(&mut message)
    )?;
    Ok((compiled, String::from_utf8_lossy(&message).into_owned()))
}

/// Relative to the daemon, whatever the priority of the thread that started the process.
fn set_priority(group: Option<Pid>, priority: Priority) {
    let own = getpriority_process(Some(getpid())).unwrap_or(0);
    let niceness = match priority {
        Priority::Background => own + NICENESS,
        Priority::Interactive => own,
    };
    // Not fatal: calls, or the operator, wait a little longer.
    if let Err(error) = setpriority_pgrp(group, niceness) {
        tracing::debug!(%error, "cannot set the priority of a compilation");
    }
}

fn failure(status: ExitStatus, message: &str, memory: u64, time: Duration) -> CompileError {
    let message = one_line(message.trim());
    if status.code() == Some(i32::from(INVALID)) {
        return CompileError::Invalid(message);
    }
    if OUT_OF_MEMORY.iter().any(|it| message.contains(it)) {
        return CompileError::Memory(memory);
    }
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => CompileError::TooLong(time),
        None if status.code() == Some(PANICKED) => {
            tracing::error!("the compiler panicked: {message}");
            CompileError::Broke
        }
        _ => CompileError::Ended(format!("{status}: {message}")),
    }
}

/// Exit code of a Rust program whose main thread panicked.
const PANICKED: i32 = 101;
