//! The resource usage of this process, from `/proc/self`, for `/metrics` and `/v1/overview`.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The present resource usage. Values that the operating system does not report are absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// Absent: unlimited.
    pub(crate) open_files_limit: Option<u64>,
    /// CPU time in user and kernel mode.
    pub(crate) cpu_seconds: f64,
}

/// Reads the resource usage. Blocks the thread.
pub(crate) fn usage() -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let files = fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Usage {
        resident_bytes: bytes(&status, "VmRSS:"),
        virtual_bytes: bytes(&status, "VmSize:"),
        threads: field(&status, "Threads:"),
        // Without the file that is open to list the others.
        open_files: files.map(|count| count.saturating_sub(1) as u64),
        open_files_limit: getrlimit(Resource::Nofile).current,
        cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
    }
}

/// The number after a name in `/proc/self/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The size after a name in `/proc/self/status`, which is in units of 1,024 bytes.
fn bytes(status: &str, name: &str) -> Option<u64> {
    field(status, name).map(|size| size.saturating_mul(1024))
}

/// The name of this machine.
pub(crate) fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_process_are_bytes() {
        let status = "Name:\ttransom\nVmSize:\t  2048 kB\nVmRSS:\t    12 kB\nThreads:\t7\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(12 * 1024));
        assert_eq!(bytes(status, "VmSize:"), Some(2048 * 1024));
        assert_eq!(field(status, "Threads:"), Some(7));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn own_process_has_memory_files_and_a_name() {
        let usage = usage();
        assert!(usage.resident_bytes > Some(1 << 20), "{usage:?}");
        assert!(
            usage.threads > Some(0) && usage.open_files >= Some(3),
            "{usage:?}"
        );
        assert!(!hostname().is_empty());
    }
}
