//! This process, from `/proc/self`.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::document::Process;

/// Ticks of a second in `/proc/self/stat`, the same on every architecture that is built for.
const TICKS: f64 = 100.0;

/// The present use of resources; what cannot be read is 0. It blocks.
pub(super) fn read() -> Process {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let files = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    Process {
        id: std::process::id(),
        resident_bytes: field(&status, "VmRSS:") * 1024,
        // Without the one that lists them.
        open_files: files.saturating_sub(1),
        open_files_limit: getrlimit(Resource::Nofile).current,
        threads: field(&status, "Threads:"),
        cpu_seconds: ticks(&stat) as f64 / TICKS,
    }
}

/// A number of `/proc/self/status`.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time in user and kernel mode: the 14th and 15th field of `/proc/self/stat`, of which the
/// second one is a name in parentheses.
fn ticks(stat: &str) -> u64 {
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    let times = rest.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

/// The name of this machine.
pub(super) fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_their_fields() {
        assert_eq!(
            field("VmPeak:\t 9 kB\nVmRSS:\t  512 kB\nThreads:\t4\n", "VmRSS:"),
            512
        );
        assert_eq!(field("Name:\tx\n", "VmRSS:"), 0);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(ticks(stat), 300);
        assert_eq!(ticks(""), 0);
    }

    #[test]
    fn own_process_has_memory_files_and_a_name() {
        let process = read();
        assert!(
            process.resident_bytes > 1 << 20 && process.threads > 0,
            "{process:?}"
        );
        assert!(process.open_files >= 3, "{process:?}");
        assert!(!hostname().is_empty());
    }
}
