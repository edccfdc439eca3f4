//! Lowers the priority of a thread: raises its niceness and lengthens its time slice.
//!
//! Niceness only decides how processor time is shared. Whether a thread that wakes up preempts the
//! running one immediately depends on the slices: it does if its own slice is shorter; otherwise it
//! may wait until the kernel's next tick (4 ms at 250 ticks a second). A low-priority thread
//! therefore requests a longer slice than other threads have. Linux supports such requests since
//! 6.12; older kernels ignore them.

#![allow(unsafe_code, reason = "one system call that no crate offers")]

use std::{io, time::Duration};

use rustix::{
    process::{getpid, getpriority_process, setpriority_process},
    thread::gettid,
};

/// Added to the daemon's niceness: under contention the thread gets about a tenth of the daemon's
/// weight.
pub(crate) const NICENESS: i32 = 10;
/// Several times the kernel's default, which is 2.8 ms at most.
const SLICE: Duration = Duration::from_millis(20);

/// Lowers the priority of the current thread as far as the operating system allows it.
pub(crate) fn lower_thread_priority() {
    // Relative to the process, not to the thread: a thread inherits the niceness of the one that
    // started it.
    let niceness = getpriority_process(Some(getpid())).unwrap_or(0) + NICENESS;
    let lowered = setpriority_process(Some(gettid()), niceness).map_err(io::Error::from);
    if let Err(error) = lowered.and_then(|()| set_slice(niceness)) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}

/// Sets the time slice of the current thread. The call sets the niceness as well, and keeps the policy
/// that the daemon was started with, such as `SCHED_IDLE`.
fn set_slice(niceness: i32) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: niceness.min(19),
        sched_priority: 0,
        sched_runtime: SLICE.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: thread 0 is the calling one, and the kernel only reads `size` bytes of the structure.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Returns the time slice of the current thread in nanoseconds, as the kernel reports it.
    fn slice() -> u64 {
        let mut attributes = libc::sched_attr {
            size: 0,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: thread 0 is the calling one, and the kernel writes at most the given size.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                0,
                &raw mut attributes,
                size_of::<libc::sched_attr>(),
                0,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        attributes.sched_runtime
    }

    #[test]
    fn slice_of_a_low_priority_thread_is_longer() {
        let (before, after) = thread::spawn(|| {
            let before = slice();
            lower_thread_priority();
            (before, slice())
        })
        .join()
        .unwrap();
        // Kernels before 6.12 report no slice.
        if before > 0 {
            assert_eq!(u128::from(after), SLICE.as_nanos());
        }
    }
}
