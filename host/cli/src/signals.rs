//! Shutdown signals of a running command.

use std::{io::IsTerminal as _, thread, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::output::print_note;

/// Time after the first signal at which the process ends even if the command has not. It exceeds the
/// deadline of the daemon's services, which report what did not stop.
const FORCED_EXIT: Duration = Duration::from_secs(25);

/// Cancels `token` on Ctrl-C, SIGTERM, or SIGHUP, which a closed terminal sends; a second signal, or
/// [`FORCED_EXIT`], ends the process immediately. With `nohup` SIGHUP remains ignored.
///
/// The signals are handled on a thread of its own, so that they work whatever occupies the runtime's
/// threads.
pub fn stop_on_signal(token: CancellationToken) -> anyhow::Result<()> {
    handle_signals(token, || std::process::exit(1))
}

/// Calls `exit` at the second signal or after [`FORCED_EXIT`].
fn handle_signals(token: CancellationToken, exit: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = if ignores_hangup() {
        None
    } else {
        Some(signal(SignalKind::hangup())?)
    };
    drop(entered);
    let work = async move {
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
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = tokio::time::sleep(FORCED_EXIT) => print_note(format_args!(
                "transom: shutdown timeout: not everything stopped within {FORCED_EXIT:?}"
            )),
        }
        exit();
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(work))?;
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

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        time::{Duration, Instant},
    };

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// No runtime runs in this test, so that whatever occupies a daemon's runtime does not matter.
    #[test]
    fn signals_are_handled_without_the_threads_of_a_runtime() {
        let token = CancellationToken::new();
        let (sender, exited) = mpsc::channel();
        handle_signals(token.clone(), move || {
            let _ = sender.send(());
        })
        .unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        let end = Instant::now() + DEADLINE;
        while !token.is_cancelled() {
            assert!(Instant::now() < end, "the first signal is ignored");
            thread::yield_now();
        }
        assert!(exited.try_recv().is_err(), "one signal does not end the process");
        kill_process(getpid(), Signal::TERM).unwrap();
        exited
            .recv_timeout(DEADLINE)
            .expect("the second signal is ignored");
    }
}
