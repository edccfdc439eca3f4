//! The common choice of several matchers.

use std::collections::BTreeMap;

use crate::worlds::matcher::Candidate;

/// The first matcher chooses, and each other one keeps what it accepts of that choice, until all of
/// them accept the same. Every round has fewer instances, so it ends.
pub(crate) struct Agreement {
    matchers: usize,
    /// Index of the matcher that chooses next.
    pub(crate) next: usize,
    /// From these.
    pub(crate) candidates: Vec<Candidate>,
    /// So many at most.
    pub(crate) count: u32,
    /// How many matchers in a row have chosen the same.
    agreed: usize,
}

impl Agreement {
    pub(crate) fn new(matchers: usize, candidates: Vec<Candidate>, count: u32) -> Self {
        Self {
            matchers,
            next: 0,
            candidates,
            count,
            agreed: 0,
        }
    }

    /// Takes the choice of the next matcher. `Some`: the common choice.
    pub(crate) fn chosen(&mut self, chosen: Vec<u32>) -> Option<Vec<u32>> {
        let kept = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        // A choice with fewer instances is a new one, which the others have not accepted.
        self.agreed = if kept == self.count { self.agreed + 1 } else { 1 };
        if chosen.is_empty() || self.agreed >= self.matchers {
            return Some(chosen);
        }
        (self.candidates, self.count) = (grouped(&chosen), kept);
        self.next = (self.next + 1) % self.matchers;
        None
    }
}

/// The chosen agents as candidates, each once, in the order of their first occurrence.
fn grouped(chosen: &[u32]) -> Vec<Candidate> {
    let mut places = BTreeMap::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    for agent in chosen {
        let place = *places.entry(*agent).or_insert_with(|| {
            candidates.push(Candidate {
                agent: *agent,
                capacity: 0,
            });
            candidates.len() - 1
        });
        candidates[place].capacity += 1;
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matcher that accepts at most so many instances on an agent, and so many in all.
    struct Limit {
        each: u32,
        all: usize,
    }

    impl Limit {
        fn choose(&self, candidates: &[Candidate], count: u32) -> Vec<u32> {
            let rooms = candidates.iter().flat_map(|candidate| {
                let room = candidate.capacity.min(self.each);
                std::iter::repeat_n(candidate.agent, room as usize)
            });
            rooms.take(self.all.min(count as usize)).collect()
        }
    }

    /// The common choice, and how often a matcher was asked.
    fn agreed(matchers: &[Limit], count: u32) -> (Vec<u32>, usize) {
        let candidates = (1..=3).map(|agent| Candidate { agent, capacity: 4 }).collect();
        let mut agreement = Agreement::new(matchers.len(), candidates, count);
        for calls in 1.. {
            let chosen = matchers[agreement.next].choose(&agreement.candidates, agreement.count);
            if let Some(agreed) = agreement.chosen(chosen) {
                return (agreed, calls);
            }
        }
        unreachable!("every round has fewer instances")
    }

    fn limit(each: u32, all: usize) -> Limit {
        Limit { each, all }
    }

    #[test]
    fn all_matchers_accept_the_choice() {
        let cases = [
            (vec![limit(4, 9)], 5, vec![1, 1, 1, 1, 2], 1),
            (vec![limit(4, 9), limit(4, 9)], 2, vec![1, 1], 2),
            (vec![limit(4, 9), limit(1, 9)], 6, vec![1, 2], 3),
            (vec![limit(4, 9), limit(2, 9), limit(1, 1)], 12, vec![1], 5),
            (vec![limit(1, 3), limit(4, 0)], 3, vec![], 2),
        ];
        for (number, (matchers, count, expected, calls)) in cases.into_iter().enumerate() {
            let agreed = agreed(&matchers, count);
            assert_eq!(agreed, (expected, calls), "case {number}");
        }
    }

    #[test]
    fn chosen_agents_are_candidates_once() {
        let candidates: Vec<(u32, u32)> = grouped(&[7, 3, 7, 7])
            .iter()
            .map(|it| (it.agent, it.capacity))
            .collect();
        assert_eq!(candidates, [(7, 3), (3, 1)]);
    }
}
