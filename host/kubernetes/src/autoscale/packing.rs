//! Computes how many empty agents can hold a set of pods.

use crate::orchestrator::Resources;

/// The number of agents that can hold pods with these requests, each of which fits in an empty agent.
/// The result is from one to `max_agents`. Uses first-fit decreasing: the largest pod first, each in the
/// first agent with room.
pub(super) fn agents_for(mut requests: Vec<Resources>, empty: Resources, max_agents: u32) -> u32 {
    // The larger of the two shares of an agent, without a division.
    let size = |pod: &Resources| {
        let cpu = u128::from(pod.cpu_millis) * u128::from(empty.memory);
        let memory = u128::from(pod.memory) * u128::from(empty.cpu_millis);
        cpu.max(memory)
    };
    requests.sort_by_key(|pod| std::cmp::Reverse(size(pod)));
    let mut rooms: Vec<Resources> = Vec::new();
    for pod in requests {
        if let Some(room) = rooms.iter_mut().find(|room| pod.fits_in(**room)) {
            *room = room.minus(pod);
            continue;
        }
        if rooms.len() >= max_agents as usize {
            break;
        }
        rooms.push(empty.minus(pod));
    }
    u32::try_from(rooms.len()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_share_agents_where_they_fit() {
        let of = |cpu_millis, memory| Resources {
            cpu_millis,
            memory,
            pods: 1,
        };
        let empty = Resources {
            cpu_millis: 1000,
            memory: 100,
            pods: 3,
        };
        for (requests, max_agents, expected) in [
            (vec![], 9, 1),
            (vec![of(1000, 100)], 9, 1),
            (vec![of(500, 1), of(500, 1)], 9, 1),
            (vec![of(501, 1), of(500, 1)], 9, 2),
            // Memory is the limit.
            (vec![of(1, 60), of(1, 60), of(1, 40)], 9, 2),
            // The small pods fill the remaining room, in any order of the requests.
            (vec![of(300, 1), of(700, 1), of(300, 1), of(700, 1)], 9, 2),
            // The number of pods is the limit.
            (vec![of(0, 0); 7], 9, 3),
            (vec![of(1000, 1); 50], 9, 9),
        ] {
            assert_eq!(
                agents_for(requests.clone(), empty, max_agents),
                expected,
                "{requests:?}"
            );
        }
    }
}
