//! The daemon's log: to standard error, as text or JSON.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Starts the log.
///
/// Levels are taken from `level`; libraries that log every request stay at `warn` unless named.
pub(crate) fn start(level: &str, format: LogFormat) -> anyhow::Result<()> {
    let directives = format!("{level},hickory_server=warn,hyper=warn,wasmtime=warn,cranelift=warn");
    let filter = EnvFilter::try_new(&directives).with_context(|| {
        format!("log.level `{level}`: expected a level (error, warn, info, debug, trace)")
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}
