//! Reads in the kernel log whether the kernel's OOM killer ended a container. On some machines the
//! runtimes do not report it.
//!
//! If the log cannot be read, the result is false.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

/// Maximum size of a record. Each read returns one.
const MAX_RECORD_BYTES: usize = 8192;
/// Maximum records to read; more than the kernel's buffer can hold.
const MAX_RECORDS: usize = 1 << 20;

/// Whether the kernel log reports that the memory limit of this container ended a process.
pub(super) async fn out_of_memory(container: &str) -> bool {
    let container = container.to_owned();
    let found = tokio::task::spawn_blocking(move || scan_log(&container)).await;
    found.unwrap_or(false)
}

/// Reads the current content of the log without waiting for more.
fn scan_log(container: &str) -> bool {
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let Ok(mut log) = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open("/dev/kmsg")
    else {
        return false;
    };
    let mut record = vec![0; MAX_RECORD_BYTES];
    for _ in 0..MAX_RECORDS {
        match log.read(&mut record) {
            Ok(size @ 1..) => {
                if reports_out_of_memory(&String::from_utf8_lossy(&record[..size]), container) {
                    return true;
                }
            }
            // The next record was overwritten before it was read; later ones follow.
            Err(error) if [ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Ok(_) | Err(_) => return false,
        }
    }
    false
}

/// Whether a record reports that the memory limit of this container was exceeded. The name of the
/// container's cgroup contains its id.
fn reports_out_of_memory(record: &str, container: &str) -> bool {
    !container.is_empty()
        && record.contains("oom-kill:constraint=CONSTRAINT_MEMCG")
        && record
            .split(',')
            .filter_map(|part| part.strip_prefix("oom_memcg="))
            .any(|group| group.contains(container))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_about_the_containers_own_limit_match() {
        let record = |limit: &str, group: &str, task: &str| {
            format!(
                "6,1,2,-;oom-kill:constraint={limit},nodemask=(null),cpuset=libpod-c1,mems_allowed=0,oom_memcg={group},\
                 task_memcg={task},task=tail,pid=7,uid=0\n"
            )
        };
        let cases = [
            (
                record(
                    "CONSTRAINT_MEMCG",
                    "/libpod_parent/libpod-c1",
                    "/libpod_parent/libpod-c1",
                ),
                true,
            ),
            (
                record("CONSTRAINT_MEMCG", "/system.slice/docker-c1.scope", "/x"),
                true,
            ),
            (
                record(
                    "CONSTRAINT_MEMCG",
                    "/libpod_parent/libpod-c2",
                    "/libpod_parent/libpod-c1",
                ),
                false,
            ),
            (record("CONSTRAINT_NONE", "/libpod-c1", "/libpod-c1"), false),
            ("6,1,2,-;veth0 entered disabled state c1".to_owned(), false),
        ];
        for (record, expected) in cases {
            assert_eq!(reports_out_of_memory(&record, "c1"), expected, "{record}");
        }
        assert!(!reports_out_of_memory(
            &record("CONSTRAINT_MEMCG", "/a", "/a"),
            ""
        ));
    }
}
