//! Compares rounds over random offers and tasks with a simple round that matches every batch with
//! all offers at once.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use prometheus_client::metrics::counter::Counter;
use rand::{Rng, SeedableRng};
use transom_common::Backoff;
use transom_plugin_host::CallError;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::Agent;

use super::*;
use crate::matching::matcher::Matcher;
use crate::matching::offers::comparisons;
use crate::matching::queue::Queue;
use crate::testing::{offer, spec, task_request};
use crate::{PendingExplanation, PortRequest, TaskRequest};

/// A matcher in which each agent has a class: the last digit of its number modulo 3. By a rule of
/// its own, the matcher rejects agent 5.
#[derive(Clone, Default)]
struct ClassMatcher {
    /// Whether it prefers the class with the fewest instances to the first candidate that passes.
    spreads: bool,
    /// The rejections to report, as those of several matchers.
    rejections: Vec<(String, u32)>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    /// Total number of candidates that it evaluated.
    candidates: usize,
    /// The last verdicts.
    verdicts: Vec<Verdict>,
}

fn class(agent: u32) -> u32 {
    agent % 10 % 3
}

/// The constraints of the test's matcher: an agent of class 1, a class without a placed instance,
/// or a host without a placed instance.
fn random_constraints(rng: &mut StdRng) -> Vec<Constraint> {
    let all = ["class-1", "class-unique", "host-unique"].map(|text| Constraint::Expression(text.to_owned()));
    all.into_iter().filter(|_| rng.random_ratio(1, 3)).collect()
}

fn verdict_of(task: &Task, placed: &[u32], agent: u32) -> Verdict {
    if agent == 5 {
        return Verdict::Refused(task.constraints.len() as u32);
    }
    let passes = |condition: &Constraint| match condition {
        Constraint::Expression(text) if text == "class-1" => class(agent) == 1,
        Constraint::Expression(text) if text == "class-unique" => {
            placed.iter().all(|placed| class(*placed) != class(agent))
        }
        _ => !placed.contains(&agent),
    };
    let rejected = task.constraints.iter().position(|condition| !passes(condition));
    rejected.map_or(Verdict::Fits, |index| Verdict::Refused(index as u32))
}

#[async_trait]
impl Matcher for ClassMatcher {
    fn update(&mut self, _changed: Vec<Agent>, _removed: Vec<u32>) {}

    async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError> {
        let verdict = |candidate: &Candidate| verdict_of(task, &task.placed, candidate.agent);
        let mut log = self.log.lock().unwrap();
        log.candidates += candidates.len();
        log.verdicts = candidates.iter().map(verdict).collect();
        Ok(log.verdicts.clone())
    }

    fn rejections(&self) -> &[(String, u32)] {
        &self.rejections
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        self.log.lock().unwrap().candidates += candidates.len();
        let (mut placed, mut remaining) = (task.placed.clone(), candidates.to_vec());
        let before = placed.len();
        while placed.len() - before < count as usize {
            let load = |agent: u32| {
                placed
                    .iter()
                    .filter(|other| class(**other) == class(agent))
                    .count()
            };
            let fits = remaining.iter_mut().filter(|candidate| {
                candidate.capacity > 0 && verdict_of(task, &placed, candidate.agent) == Verdict::Fits
            });
            let next = if self.spreads {
                fits.min_by_key(|candidate| load(candidate.agent))
            } else {
                fits.into_iter().next()
            };
            let Some(next) = next else { break };
            next.capacity -= 1;
            placed.push(next.agent);
        }
        Ok(placed.split_off(before))
    }

    async fn select_kills(&mut self, _: &Task, _: u32) -> Result<Vec<u32>, CallError> {
        Ok(Vec::new())
    }

    fn explain(&self, _: Task) -> PendingExplanation {
        PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
    }
}

/// Offers and the batches to place on them.
struct Scenario {
    open_offers: Vec<OpenOffer>,
    batches: Vec<TaskBatch>,
    cpus: HashMap<String, f64>,
}

impl Scenario {
    fn new(rng: &mut StdRng, agents: u32, batches: u32) -> Self {
        let (mut open_offers, mut cpus) = (Vec::new(), HashMap::new());
        for n in 0..rng.random_range(0..agents) {
            let amount = f64::from(rng.random_range(0..8)) * 0.25;
            let ports = (1, rng.random_range(1..5));
            let id = format!("o{n}");
            open_offers.push(OpenOffer::new(
                &offer(&id, "a", amount, &[ports]),
                rng.random_range(0..agents),
            ));
            cpus.insert(id, amount);
        }
        let mut queue = Queue::default();
        for n in 0..rng.random_range(1..=batches) {
            let mut spec = spec(&format!("/{}", rng.random_range(0..batches)));
            (spec.cpus, spec.constraints) = (0.5, random_constraints(rng));
            spec.ports = vec![PortRequest::Random; rng.random_range(0..2)];
            let spec = Arc::new(spec);
            for instance in 0..rng.random_range(1..6) {
                queue.push(
                    task_request(&format!("{n}.{instance}"), &spec),
                    Timestamp::UNIX_EPOCH,
                );
            }
        }
        let batches = queue.batches(Timestamp::UNIX_EPOCH);
        Self {
            open_offers,
            batches,
            cpus,
        }
    }

    fn round(&self, shortlist: usize) -> Round {
        let running = PlacedInstances {
            agents: vec![0, 1],
            ..PlacedInstances::default()
        };
        let running = HashMap::from([("/1".to_owned(), running)]);
        let roles = vec!["*".to_owned()];
        let mut round = Round::new(self.open_offers.clone(), running, roles, Timestamp::UNIX_EPOCH);
        round.shortlist_size = shortlist;
        round
    }
}

fn matcher_client(matcher: ClassMatcher) -> MatcherClient {
    let no_backoff = Backoff {
        base: Duration::ZERO,
        max: Duration::ZERO,
    };
    MatcherClient::new(Box::new(matcher), no_backoff, Counter::default())
}

fn assignments(round: Round) -> Vec<Assignment> {
    round
        .into_planned()
        .into_iter()
        .map(|planned| planned.assigned)
        .collect()
}

/// Matches a batch with all offers at once.
async fn place_by_full_scan(
    round: &mut Round,
    batch: &TaskBatch,
    matcher: &mut MatcherClient,
    rng: &mut StdRng,
) -> Option<MatchFailure> {
    let mut search = Search {
        spec: &batch.spec,
        requirements: Requirements::of(&batch.spec, &round.roles),
        count: batch.ids.len() as u32,
        ids: &batch.ids,
    };
    let before = round.planned.len();
    let scan = round.offers.scan(&search.requirements, search.count, round.now);
    round
        .choose(&mut search, &scan.candidates, matcher, rng)
        .await
        .unwrap();
    if search.ids.is_empty() {
        return None;
    }
    let used: BTreeSet<_> = round.planned[before..]
        .iter()
        .map(|planned| planned.assigned.offer.clone())
        .collect();
    let mut failure = MatchFailure {
        offers: round.offers.len() as u32,
        refused_offers: (round.offers.len() - used.len()) as u32,
        ..MatchFailure::default()
    };
    let evaluation = round.evaluate(&search, matcher).await.unwrap();
    evaluation.explain(batch.spec.constraints.len(), &mut failure);
    Some(failure)
}

/// With any length of the shortlist, every task gets the placement and the ports that it would get
/// if the matcher evaluated all agents each time, and the tasks that stay pending have the same
/// reasons.
#[tokio::test]
async fn round_has_the_placements_and_reasons_of_a_full_scan() {
    let mut rng = StdRng::seed_from_u64(21);
    let (mut placed, mut waiting) = (0, 0);
    for case in 0..400 {
        let world = Scenario::new(&mut rng, 24, 12);
        let mut plain = world.round(SHORTLIST_SIZE);
        let (mut matcher, mut ports) = (
            matcher_client(ClassMatcher::default()),
            StdRng::seed_from_u64(case),
        );
        let mut expected = Vec::new();
        for batch in &world.batches {
            expected.push(place_by_full_scan(&mut plain, batch, &mut matcher, &mut ports).await);
        }
        let expected_places = assignments(plain);
        placed += expected_places.len();
        waiting += expected.iter().flatten().count();
        for shortlist in [1, 2, 5, SHORTLIST_SIZE] {
            let mut round = world.round(shortlist);
            let (mut matcher, mut ports) = (
                matcher_client(ClassMatcher::default()),
                StdRng::seed_from_u64(case),
            );
            for (batch, expected) in world.batches.iter().zip(&expected) {
                let failure = round.place(batch, &mut matcher, &mut ports).await;
                assert_eq!(
                    failure, *expected,
                    "case {case}, shortlist {shortlist}: {batch:?}"
                );
            }
            assert_eq!(
                assignments(round),
                expected_places,
                "case {case}, shortlist {shortlist}"
            );
        }
    }
    assert!(placed > 1000 && waiting > 1000, "{placed} and {waiting}");
}

/// Whatever the matcher prefers, no task is placed on an agent that was rejected, no offer is
/// overcommitted, and a task that stays pending was rejected by all agents.
#[tokio::test]
async fn round_never_overcommits_or_ignores_a_rejection() {
    let mut rng = StdRng::seed_from_u64(22);
    let mut placed = 0;
    for case in 0..400 {
        let world = Scenario::new(&mut rng, 24, 12);
        let mut round = world.round([1, 3, SHORTLIST_SIZE][case % 3]);
        let matcher = ClassMatcher {
            spreads: true,
            ..ClassMatcher::default()
        };
        let log = Arc::clone(&matcher.log);
        let mut matcher = matcher_client(matcher);
        for batch in &world.batches {
            let (before, mut running) = (round.planned.len(), round.matcher_task(&batch.spec).placed);
            let failure = round.place(batch, &mut matcher, &mut rng).await;
            for planned in &round.planned[before..] {
                let (task, agent) = (round.matcher_task(&batch.spec), planned.assigned.agent);
                assert_eq!(
                    verdict_of(&task, &running, agent),
                    Verdict::Fits,
                    "case {case}: {batch:?}"
                );
                running.push(agent);
            }
            let went = round.planned.len() - before;
            assert_eq!(
                went == batch.ids.len(),
                failure.is_none(),
                "case {case}: {batch:?}"
            );
            if failure.is_some_and(|failure| failure.reasons.contains_key(&Reason::UnfulfilledConstraint)) {
                let rejected = |verdict: &Verdict| *verdict != Verdict::Fits;
                assert!(
                    log.lock().unwrap().verdicts.iter().all(rejected),
                    "case {case}: {batch:?}"
                );
            }
        }
        let (mut used, mut ports) = (HashMap::<String, f64>::new(), BTreeSet::new());
        for assigned in assignments(round) {
            placed += 1;
            *used.entry(assigned.offer.to_string()).or_default() += 0.5;
            for port in &assigned.allocation.parts[0].host_ports {
                assert!(
                    ports.insert((assigned.offer.clone(), *port)),
                    "case {case}: {assigned:?}"
                );
            }
        }
        assert!(
            used.iter().all(|(offer, cpus)| *cpus <= world.cpus[offer]),
            "case {case}: {used:?}"
        );
    }
    assert!(placed > 1000, "{placed}");
}

fn batches(queue: &mut Queue) -> Vec<TaskBatch> {
    queue.batches(Timestamp::UNIX_EPOCH)
}

/// Ten run specs with equal constraints, which only the last of many agents satisfies. That agent
/// has room for all of them.
#[tokio::test]
async fn run_specs_with_equal_constraints_share_rejections() {
    let mut queue = Queue::default();
    for n in 0..10 {
        let conditioned = RunSpec {
            constraints: vec![Constraint::Expression("class-1".to_owned())],
            ..spec(&format!("/{n}"))
        };
        queue.push(
            task_request(&format!("t{n}"), &Arc::new(conditioned)),
            Timestamp::UNIX_EPOCH,
        );
    }
    // Class 1 contains the numbers that end in 1, 4 or 7.
    let agents = (0..2000).filter(|agent| class(*agent) != 1).chain([2001]);
    let open_offers = agents.map(|agent| OpenOffer::new(&offer(&format!("o{agent}"), "a", 8.0, &[]), agent));
    let world = Scenario {
        open_offers: open_offers.collect(),
        batches: batches(&mut queue),
        cpus: HashMap::new(),
    };
    let matcher = ClassMatcher::default();
    let log = Arc::clone(&matcher.log);
    let (mut round, mut matcher, mut rng) =
        (world.round(16), matcher_client(matcher), StdRng::seed_from_u64(1));
    for batch in &world.batches {
        assert_eq!(round.place(batch, &mut matcher, &mut rng).await, None);
    }
    let assignments = assignments(round);
    assert!(assignments.len() == 10 && assignments.iter().all(|assigned| assigned.agent == 2001));
    // Evaluated are one shortlist without a match, then all agents once, then only the matching one
    // for each run spec.
    assert_eq!(log.lock().unwrap().candidates, 16 + world.open_offers.len() + 10);
}

/// The failure of a task that agent 5 rejects by a rule of the matcher, and agent 6 by the task's
/// constraint.
async fn failure_of(matcher: ClassMatcher) -> MatchFailure {
    let mut queue = Queue::default();
    let conditioned = RunSpec {
        constraints: vec![Constraint::Expression("class-1".to_owned())],
        ..spec("/app")
    };
    queue.push(task_request("t", &Arc::new(conditioned)), Timestamp::UNIX_EPOCH);
    let world = Scenario {
        open_offers: [5, 6]
            .map(|agent| OpenOffer::new(&offer("o", "a", 1.0, &[]), agent))
            .to_vec(),
        batches: batches(&mut queue),
        cpus: HashMap::new(),
    };
    let (mut matcher, mut rng) = (matcher_client(matcher), StdRng::seed_from_u64(1));
    let failure = world
        .round(SHORTLIST_SIZE)
        .place(&world.batches[0], &mut matcher, &mut rng)
        .await;
    failure.unwrap()
}

/// A rejection by the matcher's own rule is a reason too, but counts for no constraint.
#[tokio::test]
async fn rejection_by_a_rule_of_the_matcher_is_reported_separately() {
    let failure = failure_of(ClassMatcher::default()).await;
    assert_eq!(
        failure.reasons,
        BTreeMap::from([(Reason::UnfulfilledConstraint, 2)])
    );
    assert_eq!(failure.constraints, BTreeMap::from([(0, 1)]));
    let message = failure.message.unwrap();
    assert!(
        message.ends_with("region: 1") && message.contains("a rule of the matcher"),
        "{message}"
    );
}

#[tokio::test]
async fn rejections_by_several_matchers_name_them() {
    let rejections = vec![("attributes".to_owned(), 1), ("ours".to_owned(), 1)];
    let failure = failure_of(ClassMatcher {
        rejections,
        ..ClassMatcher::default()
    })
    .await;
    let expected = "agents rejected by matcher: attributes: 1, ours: 1";
    assert_eq!(failure.message.as_deref(), Some(expected));
    assert_eq!(failure.constraints, BTreeMap::from([(0, 1)]));
}

/// Comparisons with agents for run specs that fit nowhere.
async fn comparisons_for(run_specs: u32, with_equal_needs: bool) -> usize {
    let mut queue = Queue::default();
    for n in 0..run_specs {
        let large = RunSpec {
            cpus: if with_equal_needs { 8.0 } else { 8.0 + f64::from(n) },
            ..spec(&format!("/{n}"))
        };
        queue.push(
            task_request(&format!("t{n}"), &Arc::new(large)),
            Timestamp::UNIX_EPOCH,
        );
    }
    let agents = (0..1000).map(|agent| OpenOffer::new(&offer(&format!("o{agent}"), "a", 1.0, &[]), agent));
    let world = Scenario {
        open_offers: agents.collect(),
        batches: batches(&mut queue),
        cpus: HashMap::new(),
    };
    let (mut matcher, mut rng) = (matcher_client(ClassMatcher::default()), StdRng::seed_from_u64(1));
    let mut round = world.round(SHORTLIST_SIZE);
    comparisons::take();
    for batch in &world.batches {
        let failure = round.place(batch, &mut matcher, &mut rng).await.unwrap();
        assert_eq!(
            failure.reasons,
            BTreeMap::from([(Reason::InsufficientCpus, 1000)])
        );
        assert_eq!(round.take_unused().len(), Reasons::MAX_UNUSED_OFFERS);
    }
    comparisons::take()
}

#[tokio::test]
async fn run_specs_with_equal_needs_share_one_answer() {
    assert_eq!(comparisons_for(1, true).await, 2000);
    assert_eq!(comparisons_for(50, true).await, 2000);
    assert_eq!(comparisons_for(50, false).await, 50 * 2000);
}

/// The candidates that the matcher evaluates for batches of eight instances of one run spec, each on a
/// host of its own, on five agents for each two instances.
async fn candidates_for_batches(batches: i32) -> usize {
    let mut queue = Queue::default();
    let apart = Arc::new(RunSpec {
        constraints: vec![Constraint::Expression("host-unique".to_owned())],
        ..spec("/app")
    });
    for n in 0..batches * 8 {
        let request = TaskRequest {
            priority: n / 8,
            ..task_request(&format!("t{n}"), &apart)
        };
        queue.push(request, Timestamp::UNIX_EPOCH);
    }
    let agents = (10..)
        .filter(|agent| class(*agent) != 1)
        .take(batches as usize * 20);
    let open_offers = agents.map(|agent| OpenOffer::new(&offer(&format!("o{agent}"), "a", 8.0, &[]), agent));
    let world = Scenario {
        open_offers: open_offers.collect(),
        batches: queue.batches(Timestamp::UNIX_EPOCH),
        cpus: HashMap::new(),
    };
    let matcher = ClassMatcher::default();
    let log = Arc::clone(&matcher.log);
    let (mut round, mut matcher, mut rng) =
        (world.round(16), matcher_client(matcher), StdRng::seed_from_u64(1));
    for batch in &world.batches {
        assert_eq!(batch.ids.len(), 8);
        assert_eq!(round.place(batch, &mut matcher, &mut rng).await, None);
    }
    let hosts: BTreeSet<u32> = assignments(round).iter().map(|assigned| assigned.agent).collect();
    assert_eq!(hosts.len(), world.batches.len() * 8);
    log.lock().unwrap().candidates
}

/// Agents that the instances of a run spec exclude are not all evaluated again for each batch.
#[tokio::test]
async fn spreading_of_many_instances_evaluates_a_shortlist_for_each_batch() {
    for batches in [10, 40] {
        let candidates = candidates_for_batches(batches).await;
        assert!(
            candidates <= batches as usize * 2 * 16,
            "{batches} batches: {candidates} candidates"
        );
    }
}
