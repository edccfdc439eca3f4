//! The limits of a container, from the resources and `limits` of a task. Pure.

use crate::wire::json as doc;
use serde_json::Value;

/// CPU shares of one whole CPU, and the minimum number of shares.
const SHARES_PER_CPU: f64 = 1024.0;
const MIN_CPU_SHARES: u64 = 2;
/// The period of a CPU quota and the minimum quota, in microseconds.
pub(super) const CPU_PERIOD: u64 = 100_000;
const MIN_CPU_QUOTA: u64 = 1_000;
/// The smallest memory limit, in bytes.
const MIN_MEMORY: u64 = 32 << 20;

/// The limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Weight of its CPU time.
    pub(super) cpu_shares: Option<u64>,
    /// CPU time in microseconds for each [`CPU_PERIOD`].
    pub(super) cpu_quota: Option<u64>,
    /// Bytes of memory.
    pub(super) memory: Option<u64>,
    /// Bytes of memory that are reserved for it when the machine runs short.
    pub(super) memory_reservation: Option<u64>,
}

/// A limit in the `limits` of the task.
#[derive(Clone, Copy, PartialEq)]
enum LimitValue {
    Unset,
    Infinite,
    At(f64),
}

/// The limits of a task, by the rules of a real agent. The task's resources become CPU shares and
/// the memory limit. If the task sets limits, these become the CPU quota and the memory limit, and
/// its memory resources become the reservation.
pub(super) fn of(info: &Value) -> Limits {
    let (cpus, mem) = (resource_amount(info, "cpus"), resource_amount(info, "mem"));
    let mut limits = Limits {
        cpu_shares: cpus.map(|cpus| ((cpus * SHARES_PER_CPU) as u64).max(MIN_CPU_SHARES)),
        ..Limits::default()
    };
    if let LimitValue::At(cpus) = limit_of(info, "cpus") {
        limits.cpu_quota = Some(((cpus * CPU_PERIOD as f64) as u64).max(MIN_CPU_QUOTA));
    }
    let bytes = |mem: f64| ((mem * 1_048_576.0) as u64).max(MIN_MEMORY);
    match limit_of(info, "mem") {
        LimitValue::Unset => limits.memory = mem.map(bytes),
        LimitValue::Infinite => limits.memory_reservation = mem.map(bytes),
        LimitValue::At(limit) => {
            limits.memory = Some(bytes(limit));
            limits.memory_reservation = mem.map(bytes);
        }
    }
    limits
}

/// The sum of the task's resources with this name.
fn resource_amount(info: &Value, name: &str) -> Option<f64> {
    let amounts: Vec<f64> = doc::list(info, &["resources"])
        .iter()
        .filter(|resource| resource["name"] == name)
        .filter_map(|resource| doc::number(resource, &["scalar", "value"]))
        .collect();
    (!amounts.is_empty()).then(|| amounts.iter().sum())
}

fn limit_of(info: &Value, name: &str) -> LimitValue {
    match doc::find(info, &["limits", name, "value"]) {
        Some(Value::String(text)) if text.eq_ignore_ascii_case("infinity") => LimitValue::Infinite,
        Some(value) => value.as_f64().map_or(LimitValue::Unset, LimitValue::At),
        None => LimitValue::Unset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MB: u64 = 1 << 20;

    #[test]
    fn requests_and_limits_become_those_of_the_container() {
        let scalar =
            |name: &str, value: f64| json!({"name": name, "type": "SCALAR", "scalar": {"value": value}});
        let cases = [
            (
                "requests only",
                json!({"resources": [scalar("cpus", 0.5), scalar("mem", 64.0), scalar("mem", 64.0)]}),
                Limits {
                    cpu_shares: Some(512),
                    memory: Some(128 * MB),
                    ..Limits::default()
                },
            ),
            (
                "the smallest",
                json!({"resources": [scalar("cpus", 0.001), scalar("mem", 1.0)], "limits": {"cpus": {"value": 0.001}}}),
                Limits {
                    cpu_shares: Some(2),
                    cpu_quota: Some(1000),
                    memory: Some(32 * MB),
                    ..Limits::default()
                },
            ),
            (
                "limits above the requests",
                json!({"resources": [scalar("cpus", 1.0), scalar("mem", 64.0)],
                       "limits": {"cpus": {"value": 1.5}, "mem": {"value": 256.0}}}),
                Limits {
                    cpu_shares: Some(1024),
                    cpu_quota: Some(150_000),
                    memory: Some(256 * MB),
                    memory_reservation: Some(64 * MB),
                },
            ),
            (
                "without limits",
                json!({"resources": [scalar("mem", 64.0)],
                       "limits": {"cpus": {"value": "Infinity"}, "mem": {"value": "Infinity"}}}),
                Limits {
                    memory_reservation: Some(64 * MB),
                    ..Limits::default()
                },
            ),
            ("nothing", json!({}), Limits::default()),
        ];
        for (what, info, expected) in cases {
            assert_eq!(of(&info), expected, "{what}");
        }
    }
}
