//! Processor time and memory of processes, from `/proc`.

use std::fs;
use std::time::Duration;

/// Processor time of a process and its descendants.
pub fn cpu(pid: u32) -> Duration {
    own_cpu(pid) + children(pid).into_iter().map(cpu).sum::<Duration>()
}

/// Processor time of a process without its descendants.
pub fn own_cpu(pid: u32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return Duration::ZERO;
    };
    // The fields after the program's name, which may contain any characters.
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // Linux counts 100 ticks per second.
    Duration::from_millis(ticks * 10)
}

fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    all.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Resident memory in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS")
}

/// The peak of the resident memory in KiB.
pub fn peak_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmHWM")
}

fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
