//! Shutdown signals of a running command.

use std::io::IsTerminal as _;

use tokio_util::sync::CancellationToken;

use crate::output::print_note;

/// Cancels `token` on Ctrl-C, SIGTERM, or SIGHUP, which a closed terminal sends; a second signal ends
/// the process immediately. With `nohup` SIGHUP remains ignored.
pub(super) fn stop_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = if ignores_hangup() {
        None
    } else {
        Some(signal(SignalKind::hangup())?)
    };
    tokio::spawn(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} () = hung_up => {} }
        // Not printed if standard error is a log file.
        if std::io::stderr().is_terminal() {
            print_note("stopping; press Ctrl-C again to stop immediately");
        }
        token.cancel();
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        std::process::exit(1);
    });
    Ok(())
}

/// Whether the process was started with SIGHUP ignored, according to the kernel.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1, SIGHUP.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}
