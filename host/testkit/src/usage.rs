//! Processor time and memory of processes, from Linux.

use std::fs;
use std::time::Duration;

/// Processor time of a process and those that it started.
pub fn cpu(pid: u32) -> Duration {
    own_cpu(pid) + children(pid).into_iter().map(cpu).sum::<Duration>()
}

/// Processor time of a process alone.
pub fn own_cpu(pid: u32) -> Duration {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return Duration::ZERO;
    };
    // Behind the name, which may have anything in it.
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // A hundred a second on every Linux.
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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
