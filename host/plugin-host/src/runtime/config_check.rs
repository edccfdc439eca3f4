//! Evaluates a plugin's `config-schema` within limits.
//!
//! The schema is untrusted, and a small one may take exponential time: nested `unevaluatedProperties`
//! with `allOf` double the work at each level. The daemon therefore evaluates it in a process of its
//! own ([`Compiler::Process`]), which the kernel ends at its limits. Tools evaluate it on a thread
//! that they abandon.

use std::{io, thread, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::oneshot, time::timeout};

use super::{
    child_process::{self, JobError, JobLimits},
    executor::Priority,
};
use crate::{
    config::Compiler,
    manifest::{
        masks::Masks,
        schema::{self, MAX_CPU, MAX_MEMORY, SchemaError},
    },
};

/// Wall-clock time, for a machine that is so busy that an evaluation gets no processor time.
const MAX_WALL_CLOCK: Duration = Duration::from_mins(1);

/// What the process evaluates.
#[derive(Debug, Deserialize, Serialize)]
struct Job {
    schema: String,
    config: Value,
}

/// Checks a configuration against the schema, and finds its secrets.
pub(crate) async fn check(
    compiler: &Compiler,
    schema: Option<&str>,
    config: &Value,
    priority: Priority,
) -> Result<Masks, SchemaError> {
    let Some(schema) = schema else {
        schema::check(None, config)?;
        return Ok(Masks::of(None, config));
    };
    schema::check_form(schema)?;
    let job = Job {
        schema: schema.to_owned(),
        config: config.clone(),
    };
    let process = match compiler {
        Compiler::Process(process) => process,
        Compiler::InProcess => return on_thread(job).await,
    };
    let job = serde_json::to_vec(&job).map_err(|error| SchemaError::Failed(error.to_string()))?;
    let limits = JobLimits {
        cpu: MAX_CPU,
        memory: MAX_MEMORY.min(process.memory),
        threads: 1,
    };
    let running = child_process::run(process, &job, limits, priority);
    let found = timeout(MAX_WALL_CLOCK, running).await.map_err(|_| {
        SchemaError::NotEvaluated(format!(
            "it took more than {MAX_WALL_CLOCK:?}, because the machine is busy"
        ))
    })?;
    match found {
        Ok(result) => serde_json::from_slice(&result)
            .unwrap_or_else(|error| Err(SchemaError::Failed(error.to_string()))),
        Err(JobError::CpuExhausted | JobError::OutOfMemory) => Err(SchemaError::TooExpensive),
        Err(JobError::NotStarted(why)) => Err(SchemaError::NotEvaluated(why)),
        Err(JobError::Invalid(why) | JobError::Panicked(why) | JobError::Ended(why)) => {
            Err(SchemaError::Failed(why))
        }
    }
}

/// Whether a job for a process is an evaluation, and not a component.
pub(crate) fn is_job(input: &[u8]) -> bool {
    input.starts_with(b"{")
}

/// Runs in the process: returns the result for [`check`].
pub(crate) fn run_job(input: &[u8]) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&evaluate(&serde_json::from_slice(input)?))?)
}

fn evaluate(job: &Job) -> Result<Masks, SchemaError> {
    let schema = Some(&*job.schema);
    schema::check(schema, &job.config)?;
    Ok(Masks::of(schema, &job.config))
}

async fn on_thread(job: Job) -> Result<Masks, SchemaError> {
    let (answer, done) = oneshot::channel();
    let work = move || drop(answer.send(evaluate(&job)));
    // This is not a blocking thread of the runtime, which would wait for the thread at shutdown.
    let started = thread::Builder::new().name("plugin-schema".into()).spawn(work);
    started.map_err(|error| SchemaError::NotEvaluated(error.to_string()))?;
    match timeout(MAX_CPU * 4, done).await {
        Ok(Ok(found)) => found,
        Ok(Err(_panicked)) => Err(SchemaError::Failed("panic".to_owned())),
        Err(_elapsed) => Err(SchemaError::TooExpensive),
    }
}
