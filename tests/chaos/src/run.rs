//! Executes the schedule of a run, and compares the actual with the wanted state at every quiet
//! moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::{join_all, join3, try_join_all};
use tokio::time::sleep;

use crate::client;
use crate::fault::{Fault, FaultMenu};
use crate::framework::{self, Agents};
use crate::invariants::{self, Breach, Invariant};
use crate::model::{Model, Outcome};
use crate::observer::Observer;
use crate::report::{InvariantReport, Report};
use crate::schedule::{Action, Schedule, Step, WANTED_TASKS, Write};
use crate::site::{Site, Store};
use crate::spec::{Op, Slot, Spec};

/// Timeout for reaching the wanted state after faults: kills are repeated after up to a minute and
/// statuses after ten seconds, and an agent is removed after 75 seconds.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(3);
/// Time for which the wanted state must last.
const STABLE_TIME: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines the schedule.
    pub seed: u64,
    /// The time in which new steps begin; the last step is completed.
    pub time: Duration,
    /// The kind of store.
    pub store: Store,
    /// Prints every step on standard error.
    pub verbose: bool,
}

impl Options {
    /// The command that repeats such a run.
    pub fn command(&self) -> String {
        let minutes = self.time.as_secs_f64() / 60.0;
        let store = match self.store {
            Store::Redis => "",
            Store::File => " --store file",
            Store::Sentinel => " --store sentinel",
            Store::ZooKeeper => " --store zookeeper",
        };
        format!(
            "cargo xtask chaos --seed {} --minutes {minutes}{store}",
            self.seed
        )
    }
}

/// Executes the run. A violated invariant is in the report; an error means that the run could not
/// be executed.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    // Distinguishes this run from earlier and concurrent ones on the machine.
    let run = format!("{}-{}", options.seed, std::process::id());
    let mut site = Site::start(&run, options.store).await?;
    let observer = Observer::new(&run, &site.cluster_dir());
    let observing = observer.observe_repeatedly();
    let log = Log {
        verbose: options.verbose,
        begun: Instant::now(),
        file: File::create(site.dir().join("chaos.log"))?,
    };
    let mut chaos = Chaos {
        run,
        schedule: Schedule::new(options.seed, FaultMenu::of(&Site::targets(options.store))),
        model: Model::default(),
        agents: Agents::new(options.seed),
        site: &site,
        observer: &observer,
        log,
        report: Report {
            seed: options.seed,
            command: options.command(),
            ..Report::default()
        },
        checks: BTreeMap::new(),
        breaches: Vec::new(),
    };
    let carried_out = chaos.carry_out(options.time).await;
    if !chaos.breaches.is_empty() || carried_out.is_err() {
        chaos.record_views().await;
    }
    let Chaos {
        run,
        mut report,
        mut checks,
        mut breaches,
        ..
    } = chaos;
    let stopped = site.stop().await;
    observing.abort();
    if let Ok(error) = observing.await {
        return Err(error.context("the run could not be watched to its end"));
    }
    let after_stop = observer.observe().await?;
    checks.insert(Invariant::NothingLeft, 1);
    breaches.extend(after_stop.running.iter().map(|process| {
        (
            Invariant::NothingLeft,
            format!("{} of {run} runs on as {}", process.task, process.pid),
        )
    }));
    report.launches = after_stop.launches;
    for invariant in [
        Invariant::TerminalStays,
        Invariant::NeverTwice,
        Invariant::OneFramework,
    ] {
        checks.insert(invariant, observer.observations());
    }
    breaches.extend(observer.breaches());
    if !breaches.is_empty() || carried_out.is_err() || stopped.is_err() {
        report.kept = Some(site.keep());
    }
    let failure_context = || {
        format!(
            "logs are in {}; again: {}",
            site.dir().display(),
            options.command()
        )
    };
    carried_out.and(stopped).with_context(failure_context)?;
    report.holds = breaches.is_empty();
    report.invariants = Invariant::ALL
        .iter()
        .map(|invariant| invariant_report(*invariant, &checks, &breaches))
        .collect();
    Ok(report)
}

fn invariant_report(
    invariant: Invariant,
    checks: &BTreeMap<Invariant, u64>,
    breaches: &[Breach],
) -> InvariantReport {
    InvariantReport {
        invariant: invariant.name(),
        checked: checks.get(&invariant).copied().unwrap_or(0),
        breaches: breaches
            .iter()
            .filter(|(broken, _)| *broken == invariant)
            .map(|(_, what)| what.clone())
            .collect(),
    }
}

struct Chaos<'a> {
    run: String,
    schedule: Schedule,
    model: Model,
    agents: Agents,
    site: &'a Site,
    observer: &'a Observer,
    log: Log,
    report: Report,
    checks: BTreeMap<Invariant, u64>,
    breaches: Vec<Breach>,
}

impl Chaos<'_> {
    /// Executes steps until the time is over or an invariant is violated; ends with a quiet moment.
    async fn carry_out(&mut self, time: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            // The last quiet moment needs enough tasks.
            let enough = self.report.quiet_moments > 0 && self.schedule.wanted() >= WANTED_TASKS.0;
            let last = enough && begun.elapsed() >= time;
            let step = if last {
                Step::Quiet { crash: true }
            } else {
                self.schedule.next()
            };
            self.report.steps += 1;
            self.log
                .write_line(format_args!("step {}: {step}", self.report.steps));
            match step {
                Step::Action(action) => self.execute(&action).await?,
                Step::Quiet { crash } => self.check_quiet_moment(crash).await?,
            }
            self.report.seconds = begun.elapsed().as_secs_f64();
            if last || !self.breaches.is_empty() || !self.observer.breaches().is_empty() {
                return Ok(());
            }
        }
    }

    /// Executes writes and faults concurrently.
    async fn execute(&mut self, action: &Action) -> anyhow::Result<()> {
        self.report.unasked_ends += self.site.wait_until_answering().await?;
        let (site, run, log) = (self.site, self.run.as_str(), &self.log);
        let writes = join_all(action.writes.iter().map(|write| async move {
            let (outcome, answer) = client::write(site, run, write.slot, &write.op, write.force).await;
            log.write_line(format_args!("  {write}: {answer}"));
            outcome
        }));
        let faults = try_join_all(action.faults.iter().map(|timed| async move {
            sleep(timed.after).await;
            log.write_line(format_args!("  begins: {}", timed.fault));
            site.inject_fault(&timed.fault, run)
                .await
                .with_context(|| timed.fault.to_string())?;
            log.write_line(format_args!("  over: {}", timed.fault));
            anyhow::Ok(())
        }));
        let scale = self.agents.next();
        let scaling = async {
            let (daemon, count) = scale?;
            let (outcome, answer) = framework::scale(site, daemon, count).await;
            log.write_line(format_args!("  {count} agents: {answer}"));
            Some((count, outcome))
        };
        let (outcomes, injected, scaled) = join3(writes, faults, scaling).await;
        injected?;
        if let Some((count, outcome)) = scaled {
            self.agents.apply_write(count, outcome);
        }
        for timed in &action.faults {
            *self.report.faults.entry(timed.fault.kind.name()).or_default() += 1;
        }
        for (write, outcome) in action.writes.iter().zip(outcomes) {
            self.record_write(write, outcome);
        }
        sleep(action.pause).await;
        Ok(())
    }

    fn record_write(&mut self, write: &Write, outcome: Outcome) {
        let count = match outcome {
            Outcome::Acknowledged => &mut self.report.writes.acknowledged,
            Outcome::Rejected => &mut self.report.writes.rejected,
            Outcome::Unanswered => &mut self.report.writes.unanswered,
        };
        *count += 1;
        if let Err(lost) = self.model.apply_write(write.slot, &write.op, outcome) {
            self.record_breach(Invariant::WritesKept, lost);
        }
    }

    /// Checks a quiet moment: acknowledged writes must be stored, and wanted tasks must run.
    async fn check_quiet_moment(&mut self, crash: bool) -> anyhow::Result<()> {
        self.site.wait_until_healed().await?;
        if crash {
            self.site.inject_fault(&Fault::crash(), &self.run).await?;
        }
        self.report.unasked_ends += self.site.wait_until_answering().await?;
        self.check_definitions().await?;
        self.check_agents().await?;
        self.repeat_failed_writes().await?;
        self.repeat_failed_scaling().await?;
        let wanted = self.schedule.plan().clone();
        let count = self.schedule.wanted();
        self.report.quiet_moments += 1;
        self.report.least_wanted = match self.report.least_wanted {
            0 => count,
            least => least.min(count),
        };
        self.wait_until_recovered(&wanted).await?;
        self.check_agents().await?;
        self.check_definitions().await
    }

    /// Checks that the answers allow every definition.
    async fn check_definitions(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        let (leader, observed) = loop {
            let leader = self.site.leader().await?;
            match client::definitions(self.site, &self.run, leader).await {
                Ok(observed) => break (leader, observed),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("the apps cannot be read"));
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        };
        *self.checks.entry(Invariant::WritesKept).or_default() += 1;
        self.check_standbys(leader, &observed).await;
        let slots: BTreeSet<Slot> = self.model.slots().chain(observed.keys().copied()).collect();
        for slot in slots {
            let verdict = match observed.get(&slot).cloned().transpose() {
                Ok(state) => self.model.apply_observed(slot, &state),
                Err(mismatch) => Err(mismatch),
            };
            if let Err(lost) = verdict {
                self.record_breach(Invariant::WritesKept, lost);
            }
        }
        Ok(())
    }

    /// Checks that standbys return the same definitions within a short time.
    async fn check_standbys(&mut self, leader: usize, observed: &BTreeMap<Slot, Result<Spec, String>>) {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        for daemon in (0..self.site.daemons()).filter(|daemon| *daemon != leader) {
            loop {
                let on_standby = client::definitions(self.site, &self.run, daemon).await;
                match on_standby {
                    Ok(on_standby) if on_standby == *observed => break,
                    on_standby if Instant::now() > deadline => {
                        let what = format!(
                            "daemon {daemon}, which stands by, shows {on_standby:?} instead of {observed:?}"
                        );
                        self.record_breach(Invariant::WritesKept, what);
                        break;
                    }
                    _ => sleep(POLL_INTERVAL).await,
                }
            }
        }
    }

    /// Repeats rejected and unanswered writes until they are acknowledged, as clients do.
    async fn repeat_failed_writes(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        let slots: BTreeSet<Slot> = self
            .model
            .slots()
            .chain(self.schedule.plan().keys().copied())
            .collect();
        for slot in slots {
            let planned = self.schedule.plan().get(&slot).cloned();
            while !self.model.is_certainly(slot, planned.as_ref()) && self.breaches.is_empty() {
                let op = planned.clone().map_or(Op::Delete, Op::Change);
                let (outcome, answer) = client::write(self.site, &self.run, slot, &op, true).await;
                self.log.write_line(format_args!("  again {slot} {op}: {answer}"));
                self.record_write(
                    &Write {
                        slot,
                        op,
                        force: true,
                    },
                    outcome,
                );
                if outcome != Outcome::Acknowledged {
                    ensure!(Instant::now() < deadline, "{slot} cannot be written: {answer}");
                    sleep(POLL_INTERVAL).await;
                }
            }
        }
        Ok(())
    }

    /// Checks that the answers allow the number of agents.
    async fn check_agents(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        let observed = loop {
            match framework::wanted(self.site).await {
                Ok(observed) => break observed,
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("the number of agents cannot be read"));
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        };
        if let Err(lost) = self.agents.apply_observed(observed) {
            self.record_breach(Invariant::WritesKept, lost);
        }
        Ok(())
    }

    /// Repeats the request for the number of agents until it is acknowledged.
    async fn repeat_failed_scaling(&mut self) -> anyhow::Result<()> {
        let (deadline, count) = (Instant::now() + RECOVERY_TIMEOUT, self.agents.planned());
        while !self.agents.is_certainly(count) && self.breaches.is_empty() {
            let (outcome, answer) = framework::scale(self.site, 0, count).await;
            self.log
                .write_line(format_args!("  again {count} agents: {answer}"));
            self.agents.apply_write(count, outcome);
            if outcome != Outcome::Acknowledged {
                ensure!(Instant::now() < deadline, "agents cannot be scaled: {answer}");
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Waits for the wanted state, and then checks that it lasts.
    async fn wait_until_recovered(&mut self, wanted: &BTreeMap<Slot, Spec>) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut as_wanted_since = None;
        let breaches = loop {
            let mut observation = self.observer.observe().await?;
            let of_framework = framework::tasks_of(&mut observation.running);
            let mut breaches = invariants::compare(wanted, &observation.running);
            breaches.extend(framework::compare(self.agents.planned(), &of_framework));
            if breaches.is_empty() {
                breaches = self.unhealthy(wanted).await;
            }
            let now = Instant::now();
            if breaches.is_empty() {
                let since = *as_wanted_since.get_or_insert(now);
                if now - since >= STABLE_TIME {
                    let duration = (since - begun).as_secs_f64();
                    self.log
                        .write_line(format_args!("  all is as wanted after {duration:.1} s"));
                    self.report.slowest_recovery = self.report.slowest_recovery.max(duration);
                    break breaches;
                }
            } else {
                as_wanted_since = None;
                if now - begun > RECOVERY_TIMEOUT {
                    break breaches;
                }
            }
            sleep(POLL_INTERVAL).await;
        };
        for invariant in [
            Invariant::WantedRunOnce,
            Invariant::AllHealthy,
            Invariant::NoneUnwanted,
        ] {
            *self.checks.entry(invariant).or_default() += 1;
        }
        for (invariant, what) in breaches {
            self.record_breach(
                invariant,
                format!("{what}, {} s after the last fault", RECOVERY_TIMEOUT.as_secs()),
            );
        }
        Ok(())
    }

    /// Apps whose tasks the leader does not count as healthy, or that it does not show.
    async fn unhealthy(&self, wanted: &BTreeMap<Slot, Spec>) -> Vec<Breach> {
        let breach = |what: String| (Invariant::AllHealthy, what);
        match framework::not_ready(self.site).await {
            Ok(None) => {}
            Ok(Some(why)) => return vec![breach(format!("the nodes are not ready: {why}"))],
            Err(error) => return vec![breach(format!("the nodes cannot be asked about: {error:#}"))],
        }
        match client::unhealthy(self.site, wanted).await {
            Ok(unhealthy) => unhealthy
                .into_iter()
                .map(|(slot, count)| breach(format!("{slot} [{}] has {count} healthy tasks", wanted[&slot])))
                .collect(),
            Err(error) => vec![breach(format!("the apps cannot be read: {error:#}"))],
        }
    }

    fn record_breach(&mut self, invariant: Invariant, what: String) {
        self.log
            .write_line(format_args!("INVARIANT VIOLATED: {}: {what}", invariant.name()));
        self.breaches.push((invariant, what));
    }

    /// The views of daemon and master, for diagnosis only: they are not judged.
    async fn record_views(&self) {
        let urls = [
            (
                "apps",
                self.site
                    .apps(0, "/v2/apps?embed=apps.tasks&embed=apps.deployments"),
            ),
            ("queue", self.site.apps(0, "/v2/queue")),
            ("framework", self.site.framework(0, "/explain")),
            ("deployments", self.site.apps(0, "/v2/deployments")),
            ("master", self.site.master("/state")),
        ];
        for (name, url) in urls {
            let text = match client::get(self.site, &url).await {
                Ok(document) => format!("{document:#}"),
                Err(error) => format!("{error:#}"),
            };
            let path = self.site.dir().join(format!("said-{name}.json"));
            if let Err(error) = fs::write(&path, text) {
                self.log
                    .write_line(format_args!("cannot write {}: {error}", path.display()));
            }
        }
    }
}

/// The log of the run's events.
struct Log {
    verbose: bool,
    begun: Instant,
    file: File,
}

impl Log {
    fn write_line(&self, line: impl Display) {
        let line = format!("{:8.3} {line}", self.begun.elapsed().as_secs_f64());
        if self.verbose {
            eprintln!("{line}");
        }
        // The file only helps in finding causes; the run works without it.
        let _ = writeln!(&self.file, "{line}");
    }
}
