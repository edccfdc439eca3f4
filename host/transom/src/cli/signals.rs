//! Shutdown signals of a running command.

use std::io::IsTerminal as _;

use tokio_util::sync::CancellationToken;

/// Cancels `token` on Ctrl-C or SIGTERM; a second signal ends the process immediately.
pub(super) fn stop_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        // Not printed if standard error is a log file.
        if std::io::stderr().is_terminal() {
            eprintln!("stopping; press Ctrl-C again to stop immediately");
        }
        token.cancel();
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        std::process::exit(1);
    });
    Ok(())
}
