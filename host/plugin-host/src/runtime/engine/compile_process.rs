//! Compiles one component in a process of its own, or evaluates one `config-schema` there.
//!
//! The process reads the job from standard input and writes the result to standard output: for a
//! component the compiled code, with its header. If the component does not compile, the process
//! writes the reason to standard error and exits with [`EXIT_INVALID`].

use std::{
    io::{self, Read, Write},
    process::ExitCode,
    thread::available_parallelism,
    time::Duration,
};

use super::{
    ArtifactKey, CompileError, CompiledArtifact, compiled,
    precompile::{compiling_engine, precompile},
};
use crate::{
    config::CompileProcess,
    runtime::{
        child_process::{self, EXIT_INVALID, JobError, JobLimits},
        config_check,
        executor::Priority,
    },
};

/// Maximum number of compiler threads for one component.
const MAX_THREADS: u64 = 4;

/// Runs in the separate process: compiles the component, or evaluates the schema, on standard input
/// and writes the result to standard output.
pub fn compile_standard_input() -> ExitCode {
    let written = read_job().and_then(|job| {
        if config_check::is_job(&job) {
            let result = config_check::run_job(&job).map_err(|error| ended(&error))?;
            return write(&[&result]);
        }
        let key = ArtifactKey::new(&job, compiled::compatibility(&compiling_engine()?));
        let artifact = precompile(&job)?;
        write(&[&artifact.header(&key), artifact.code()])
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

fn read_job() -> Result<Vec<u8>, CompileError> {
    let mut job = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut job)
        .map_err(|error| ended(&error))?;
    Ok(job)
}

fn write(parts: &[&[u8]]) -> Result<(), CompileError> {
    let mut output = io::stdout().lock();
    for part in parts {
        output.write_all(part).map_err(|error| ended(&error))?;
    }
    output.flush().map_err(|error| ended(&error))
}

fn ended(error: &io::Error) -> CompileError {
    CompileError::Ended(error.to_string())
}

/// Compiles the component of this key. Dropping the future kills the process. `time` is the limit of
/// processor time, of all threads together.
pub(super) async fn compile(
    process: &CompileProcess,
    component: &[u8],
    key: &ArtifactKey,
    time: Duration,
    priority: Priority,
) -> Result<CompiledArtifact, CompileError> {
    let limits = JobLimits {
        cpu: time,
        memory: process.memory,
        threads: available_parallelism().map_or(1, |it| (it.get() as u64).min(MAX_THREADS)),
    };
    let output = child_process::run(process, component, limits, priority).await;
    let output = output.map_err(|error| match error {
        JobError::NotStarted(why) => CompileError::NotStarted(why),
        JobError::Invalid(why) => CompileError::Invalid(why),
        JobError::CpuExhausted => CompileError::TimedOut(time),
        JobError::OutOfMemory => CompileError::Memory(process.memory),
        JobError::Panicked(why) => {
            tracing::error!("the compiler panicked: {why}");
            CompileError::Panicked
        }
        JobError::Ended(why) => CompileError::Ended(why),
    })?;
    CompiledArtifact::verified(output, key).map_err(|why| CompileError::Ended(why.to_string()))
}
