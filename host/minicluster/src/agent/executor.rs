//! Runs the process of one custom executor. Its calls are in [`super::executor_api`].

use super::{
    check::RunningTask,
    container::{Plan, plan},
    process::{self, Process},
    runner::start_process,
    sandbox::{self, SandboxError},
};
use crate::{
    shared::Shared,
    state::{EndCause, ExecutorEnd, Launch, TaskState},
    wire::json as doc,
};
use nix::sys::signal::Signal;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The raw wait status of a process that exits with 1.
const EXITED_WITH_1: i32 = 1 << 8;
/// The raw wait status of a process that SIGKILL ends.
const KILLED_BY_SIGKILL: i32 = 9;

/// Prepares the sandbox and runs the command until it ends, the token kills it, or the cluster
/// stops. No process of the group is left when it returns.
pub(crate) async fn run(shared: &Arc<Shared>, launch: Launch, kill: &CancellationToken) -> ExecutorEnd {
    let launch = match plan(shared.config.images, &launch.info) {
        Plan::Process => launch,
        Plan::ProcessInstead { info, notice } => {
            tracing::warn!(executor = %launch.executor_id, "{notice}");
            Launch { info, ..launch }
        }
        Plan::Container => {
            return not_launched("This cluster runs custom executors as processes, without images");
        }
        Plan::Rejected(why) => return not_launched(&why),
    };
    let prepared = tokio::select! {
        prepared = sandbox::prepare(&shared.http, &launch) => prepared,
        () = kill.cancelled() => return ended_with(KILLED_BY_SIGKILL),
        () = shared.token.cancelled() => return ExecutorEnd::default(),
    };
    match prepared {
        Ok(()) => {}
        Err(SandboxError::Fetch(why)) => return not_launched(&why),
        Err(SandboxError::Directory(message)) => {
            return ExecutorEnd {
                status: None,
                cause: Some(EndCause {
                    state: TaskState::Dropped,
                    reason: "REASON_EXECUTOR_TERMINATED",
                    message,
                }),
            };
        }
    }
    let launch = Arc::new(launch);
    match start_process(&launch, process::command(&launch.info["command"], &launch)) {
        Ok(process) => supervise(shared, &launch, process, kill).await,
        Err(error) => {
            let value = doc::text(&launch.info, &["command", "value"]).unwrap_or_default();
            let line = format!("Failed to execute '{value}': {error}\n");
            let _ = sandbox::append_to_stderr(&launch.directory, &line).await;
            ended_with(EXITED_WITH_1)
        }
    }
}

/// Waits for the end of the process.
async fn supervise(
    shared: &Arc<Shared>,
    launch: &Arc<Launch>,
    mut process: Process,
    kill: &CancellationToken,
) -> ExecutorEnd {
    shared.journals.record_launch(launch, &process);
    shared.with_state(|state| state.executor_started(&launch.container, process.pid));
    shared.nested_containers.task_started(RunningTask {
        launch: Arc::clone(launch),
        container: None,
    });
    let status = tokio::select! {
        status = process.wait() => status,
        () = kill.cancelled() => {
            shared.journals.record_kill(launch, &process, Signal::SIGKILL.as_str());
            process.destroy().await
        }
        () = shared.token.cancelled() => process.destroy().await,
    };
    shared.nested_containers.task_ended(&launch.container).await;
    let end_message = status.as_ref().map_or_else(
        |error| format!("Failed to wait for the command: {error}"),
        |status| process::describe(*status),
    );
    shared.journals.record_exit(launch, &process, &end_message);
    ExecutorEnd {
        status: status.ok().map(process::raw_status),
        cause: None,
    }
}

fn ended_with(status: i32) -> ExecutorEnd {
    ExecutorEnd {
        status: Some(status),
        cause: None,
    }
}

fn not_launched(why: &str) -> ExecutorEnd {
    ExecutorEnd {
        status: None,
        cause: Some(EndCause {
            state: TaskState::Failed,
            reason: "REASON_CONTAINER_LAUNCH_FAILED",
            message: format!("Failed to launch container: {why}"),
        }),
    }
}
