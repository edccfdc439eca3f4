//! Amounts that no agent has. Pure.

use transom_scheduler::{Amounts, Reason};

use super::{AgentTotal, counted_agents};

/// Amounts that no active agent has.
#[derive(Debug, PartialEq)]
pub struct Shortage {
    /// The reason of the first resource.
    pub code: Reason,
    /// The resources of which no agent has enough.
    pub resources: Vec<&'static str>,
    /// In words.
    pub message: String,
}

/// Names, units and reasons of [`Amounts`].
const RESOURCES: &[(&str, &str, Reason)] = &[
    ("cpus", "CPUs", Reason::InsufficientCpus),
    ("mem", "MB of memory", Reason::InsufficientMemory),
    ("disk", "MB of disk", Reason::InsufficientDisk),
    ("gpus", "GPUs", Reason::InsufficientGpus),
];

/// Whether no agent could ever run a task of these amounts, even if nothing else ran on it. `subject`:
/// the task, in words.
pub fn shortage(subject: &str, asked: Amounts, agents: &[AgentTotal]) -> Option<Shortage> {
    let milli = |amount: f64| (amount * 1000.0).round() as u64;
    let has = |agent: &AgentTotal, index: usize| milli(agent.amounts[index]) >= milli(asked[index]);
    if agents.is_empty() || agents.iter().any(|agent| (0..4).all(|index| has(agent, index))) {
        return None;
    }
    let short = (0..4).filter(|index| !agents.iter().any(|agent| has(agent, *index)));
    let short: Vec<usize> = short.collect();
    let in_all = counted_agents(u32::try_from(agents.len()).unwrap_or(u32::MAX));
    let sentences = short.iter().filter_map(|&index| {
        let largest = agents
            .iter()
            .max_by(|a, b| a.amounts[index].total_cmp(&b.amounts[index]))?;
        let (unit, amount) = (RESOURCES[index].1, asked[index]);
        Some(format!(
            "{subject} asks for {amount} {unit}, but the largest agent, `{}`, has {} ({in_all} in the cluster)",
            largest.hostname, largest.amounts[index]
        ))
    });
    let mut sentences: Vec<String> = sentences.collect();
    if sentences.is_empty() {
        let [cpus, mem, disk, gpus] = asked;
        sentences.push(format!(
            "no single agent has all that {subject} asks for: {cpus} CPUs, {mem} MB of memory, {disk} MB of disk and \
             {gpus} GPUs ({in_all} in the cluster)"
        ));
    }
    Some(Shortage {
        code: RESOURCES[short.first().copied().unwrap_or(0)].2,
        resources: short.iter().map(|index| RESOURCES[*index].0).collect(),
        message: sentences.join("; "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_reports_what_was_asked_and_the_largest_agent() {
        let agent = |hostname: &str, amounts| AgentTotal {
            id: hostname.to_owned(),
            hostname: hostname.to_owned(),
            amounts,
            ports: Vec::new(),
        };
        let agents = [
            agent("wide", [16.0, 1024.0, 9e5, 0.0]),
            agent("tall", [4.0, 65536.0, 1e4, 1.0]),
        ];
        for (asked, resources, parts) in [
            // A full agent is no obstacle for ever.
            ([16.0, 1024.0, 9e5, 0.0], None, vec![]),
            ([4.0, 65536.0, 1e4, 1.0], None, vec![]),
            (
                [64.0, 32.0, 0.0, 0.0],
                Some(vec!["cpus"]),
                vec![
                    "the job asks for 64 CPUs, but the largest agent, `wide`, has 16 (2 agents in the cluster)",
                ],
            ),
            (
                [0.1, 1e6, 0.0, 2.0],
                Some(vec!["mem", "gpus"]),
                vec![
                    "asks for 1000000 MB of memory, but the largest agent, `tall`, has 65536",
                    "asks for 2 GPUs",
                ],
            ),
            (
                [8.0, 2048.0, 0.0, 0.0],
                Some(vec![]),
                vec!["no single agent has all that the job asks for: 8 CPUs, 2048 MB of memory"],
            ),
        ] {
            let found = shortage("the job", asked, &agents);
            assert_eq!(
                found.as_ref().map(|found| found.resources.clone()),
                resources,
                "{asked:?}"
            );
            let message = found.map_or_else(String::new, |found| found.message);
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
        // Nothing is known about a cluster without agents.
        assert_eq!(shortage("the job", [64.0, 1.0, 1.0, 0.0], &[]), None);
    }
}
