//! Checks that the agent's executor performs, and their results.

use super::CommandInfo;
use super::macros::{messages, names};

names! {
    /// The kind of a check.
    CheckType { Unknown = "UNKNOWN", Command = "COMMAND", Http = "HTTP", Tcp = "TCP" }
}

messages! {
    /// A check whose result is only reported.
    CheckInfo {
        must { r#type: CheckType }
        may {
            command: Option<CheckCommand>,
            http: Option<CheckHttp>,
            tcp: Option<CheckTcp>,
            delay_seconds: Option<f64>,
            interval_seconds: Option<f64>,
            timeout_seconds: Option<f64>,
        }
    }
    /// A command to run in the task's container.
    CheckCommand { must { command: CommandInfo } }
    /// A GET of the task's port.
    CheckHttp { must { port: u32 } may { path: Option<String> } }
    /// A connection to the task's port.
    CheckTcp { must { port: u32 } }

    /// The last result of a check. Before the first result the field named like the type is present
    /// and empty.
    CheckStatusInfo {
        may {
            r#type: Option<CheckType>,
            command: Option<CheckStatusCommand>,
            http: Option<CheckStatusHttp>,
            tcp: Option<CheckStatusTcp>,
        }
    }
    /// The exit status of the command.
    CheckStatusCommand { may { exit_code: Option<i32> } }
    /// The status of the GET.
    CheckStatusHttp { may { status_code: Option<u32> } }
    /// Whether the connection succeeded.
    CheckStatusTcp { may { succeeded: Option<bool> } }

    /// A check that kills the task after enough failures.
    HealthCheck {
        may {
            r#type: Option<CheckType>,
            delay_seconds: Option<f64>,
            interval_seconds: Option<f64>,
            timeout_seconds: Option<f64>,
            consecutive_failures: Option<u32>,
            grace_period_seconds: Option<f64>,
            command: Option<CommandInfo>,
            http: Option<HealthHttp>,
            tcp: Option<HealthTcp>,
        }
    }
    /// A GET of the task's port; statuses from 200 to 399 are healthy.
    HealthHttp {
        must { port: u32 }
        may { protocol: Option<String>, scheme: Option<String>, path: Option<String>, statuses: Vec<u32> }
    }
    /// A connection to the task's port.
    HealthTcp { must { port: u32 } may { protocol: Option<String> } }
}
