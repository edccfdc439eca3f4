//! Whether the kernel ended a container for its use of memory, by the kernel's own log: runtimes do
//! not notice it on every machine.
//!
//! Where the log cannot be read, the answer is no.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
};

/// Each read returns one record, no longer than this.
const RECORD: usize = 8192;
/// The kernel's buffer has fewer records.
const RECORDS: usize = 1 << 20;

/// Whether the kernel's log says that the memory limit of this container ended a process.
pub(super) async fn out_of_memory(container: &str) -> bool {
    let container = container.to_owned();
    let looked = tokio::task::spawn_blocking(move || look(&container)).await;
    looked.unwrap_or(false)
}

/// Reads what the log has now, without waiting for more.
fn look(container: &str) -> bool {
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let Ok(mut log) = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open("/dev/kmsg")
    else {
        return false;
    };
    let mut record = vec![0; RECORD];
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(size @ 1..) => {
                if names(&String::from_utf8_lossy(&record[..size]), container) {
                    return true;
                }
            }
            // A record was overwritten before it was read; the next ones follow.
            Err(error) if [ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Ok(_) | Err(_) => return false,
        }
    }
    false
}

/// Whether a record is about the memory limit of this container: its id is part of the name of the
/// group of processes.
fn names(record: &str, container: &str) -> bool {
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
    fn only_the_records_of_a_containers_own_limit_name_it() {
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
            assert_eq!(names(&record, "c1"), expected, "{record}");
        }
        assert!(!names(&record("CONSTRAINT_MEMCG", "/a", "/a"), ""));
    }
}
