//! One simulation: daemons, store, cluster, clients and faults, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use transom_cluster::Client;
use transom_minicluster::simulated::Cluster;
use transom_store::conformance;

use crate::agents::Agents;
use crate::calls::Call;
use crate::candidate::{self, Board, LEASE};
use crate::clients::{ClientContext, Clients};
use crate::clock::Clock;
use crate::faults::{self, Fault, Faults, Kind, Peer};
use crate::holders::Holders;
use crate::http::Http;
use crate::invariants::{Invariants, View, Violation, framework};
use crate::machine::Machine;
use crate::network::{Network, Stage};
use crate::process::Process;
use crate::services;
use crate::store::{Fate, Sabotage, Server};
use crate::trace::Trace;
use crate::watchdog::Watchdog;
use crate::zones::ZoneCheck;
use crate::zookeeper::{self, ZooKeeper};

/// The time between two turns of a daemon.
pub(crate) const STEP: Duration = Duration::from_millis(10);
/// How long a step may take, in real time.
const MAX_STEP: Duration = Duration::from_mins(1);
/// The daemons that share a store.
const DAEMONS: usize = 3;
/// Its masters.
const MASTERS: u8 = 3;
/// The calls to masters in three idle minutes: of three discoveries, which compare everything each
/// minute with a new subscription and two documents, and of the frameworks' reconciliations.
const MAX_IDLE_CALLS: u32 = 60;
/// Steps between two turns of the master.
const TICK_STEPS: u32 = 5;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines everything that happens.
    pub seed: u64,
    /// The simulated time.
    pub time: Duration,
    /// The number of agents.
    pub agents: u16,
    /// The number of apps that clients create and change, and the most instances of one.
    pub apps: u32,
    /// See [`Options::apps`].
    pub instances: u32,
    /// One daemon with a store of its own, as an embedded one, in place of three that share one.
    pub embedded: bool,
    /// Every second machine of an agent that is reset has lost its disk, except for the data of a
    /// datastore, which nothing could bring back.
    pub lost_disks: bool,
    /// Faults that do not happen, by their names; see [`faults`].
    pub without: BTreeSet<String>,
    /// Called with the text of each event.
    pub trace: Option<fn(&str)>,
    /// A breach of the store's contract, to see that it is found.
    pub sabotage: Option<Sabotage>,
    /// A job or an app: the events about it are part of the report.
    pub about: Option<String>,
}

impl Options {
    /// A world of five agents and six apps.
    pub fn new(seed: u64, time: Duration) -> Self {
        Self {
            seed,
            time,
            agents: 5,
            apps: 6,
            instances: 3,
            embedded: false,
            lost_disks: false,
            without: BTreeSet::new(),
            trace: None,
            sabotage: None,
            about: None,
        }
    }
}

/// The names of all faults.
pub fn faults() -> impl Iterator<Item = String> {
    faults::KINDS.iter().map(ToString::to_string)
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The simulated hours.
    pub hours: f64,
    /// SHA-256 of all events: equal for equal seeds.
    pub digest: String,
    /// Their number.
    pub events: u64,
    /// Terms of leadership that began.
    pub terms: u64,
    /// Writes that the store acknowledged.
    pub writes: u64,
    /// Jobs that ran to their end.
    pub jobs: u64,
    /// Changes of apps that were accepted.
    pub changes: u64,
    /// Events that a client of the event stream received.
    pub received: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The last events about [`Options::about`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// The first violation of an invariant, which ends the simulation.
    pub violation: Option<Violation>,
}

struct World {
    now: Duration,
    rng: StdRng,
    agents_number: u16,
    loses_disks: bool,
    faults: Faults,
    server: Server,
    holders: Holders,
    machines: Vec<Machine>,
    cluster: Cluster,
    network: Network,
    zookeeper: ZooKeeper,
    agents: Agents,
    http: Http,
    clients: Clients,
    hosts: Vec<String>,
    clock: Rc<Clock>,
    /// An arbitrary time, at which the simulation begins.
    began: Instant,
    steps: u32,
    invariants: Invariants,
    trace: Trace,
    terms: u64,
    writes: u64,
    /// Calls to masters since everything is idle.
    idle_calls: u32,
}

/// Runs a simulation. Ends the process, with exit code 1, if a daemon never comes to rest.
///
/// # Errors
/// If no runtime can be started.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let daemons = if options.embedded { 1 } else { DAEMONS };
    let machines = (0..daemons).map(host).map(Machine::new);
    let clock = Rc::new(Clock::new(options.seed));
    let _ambient = clock.install();
    let began = Instant::now();
    let mut world = World {
        now: Duration::ZERO,
        rng: StdRng::seed_from_u64(options.seed),
        cluster: Cluster::new(options.agents, MASTERS, began),
        network: Network::default(),
        zookeeper: ZooKeeper::default(),
        agents: Agents::default(),
        http: Http::default(),
        clients: Clients::new(options.apps, options.instances, options.agents),
        hosts: (0..daemons).map(host).collect(),
        clock,
        began,
        steps: 0,
        agents_number: options.agents,
        loses_disks: options.lost_disks,
        faults: Faults::new(options.without.clone(), options.embedded),
        server: Server::new(options.sabotage, options.embedded),
        holders: Holders::default(),
        machines: machines.collect(),
        invariants: Invariants::new(options.embedded),
        trace: Trace::new(options.about.clone(), options.trace),
        terms: 0,
        writes: 0,
        idle_calls: 0,
    };
    for daemon in 0..daemons {
        world.start(daemon)?;
    }
    let seed = options.seed;
    let watchdog = Watchdog::start(MAX_STEP, move |step| {
        let at = STEP.as_secs_f64() * step as f64;
        eprintln!(
            "seed {seed}: VIOLATED: a daemon does not come to rest at {at:.2} s; step {step} takes longer than {MAX_STEP:?}"
        );
        std::process::exit(1);
    });
    let mut violation = None;
    while world.now < options.time && violation.is_none() {
        watchdog.step();
        violation = world.step()?.map(|what| Violation {
            at: world.now.as_secs_f64(),
            what,
            events: world.trace.last(),
        });
    }
    Ok(Report {
        seed: options.seed,
        hours: world.now.as_secs_f64() / 3600.0,
        events: world.trace.events(),
        about: if options.about.is_some() {
            world.trace.last()
        } else {
            Vec::new()
        },
        digest: world.trace.digest(),
        terms: world.terms,
        writes: world.writes,
        jobs: world.clients.finished(),
        changes: world.clients.changes(),
        received: world.clients.events(),
        faults: world.faults.counts,
        violation,
    })
}

impl World {
    fn start(&mut self, daemon: usize) -> anyhow::Result<()> {
        let store = Arc::new(self.server.connect(daemon));
        let machine = &mut self.machines[daemon];
        machine.starts += 1;
        machine.board = Board::default();
        let name = format!("{daemon}-{}", machine.starts);
        // The first one has a list of the masters.
        let (masters, detected) = if daemon == 0 {
            let masters = self.cluster.masters().iter().map(ToString::to_string);
            (masters.collect(), None)
        } else {
            let views = self.zookeeper.connect(daemon);
            (vec![zookeeper::ADDRESS.to_owned()], Some(views))
        };
        let cluster = Client::new(transom_cluster::Config {
            masters,
            detected,
            transport: Some(Arc::new(self.network.connect(daemon))),
            ..transom_cluster::Config::default()
        })?;
        machine.shown = ZoneCheck::default();
        let world = services::World {
            host: machine.host.clone(),
            store,
            cluster,
            transport: Arc::new(self.http.connect(daemon)),
            check: self.agents.check(),
            plugins: machine.plugins.clone(),
            orchestrator: self.agents.orchestrator.connect(daemon),
        };
        let program = candidate::run(world, machine.address.clone(), name, machine.board.clone());
        machine.process = Some(Process::start(program)?);
        Ok(())
    }

    /// Advances the world by one step. Returns what does not hold after it.
    fn step(&mut self) -> anyhow::Result<Option<String>> {
        self.now += STEP;
        self.steps = self.steps.wrapping_add(1);
        self.clock.set(self.now);
        self.change_faults()?;
        let (faults, rng, trace, now) = (&self.faults, &mut self.rng, &mut self.trace, self.now);
        self.holders.update(&self.server, now);
        let holders = &self.holders;
        let mut outcome = Ok(());
        self.server.step(
            now,
            |daemon| faults.fate(Peer::Store, daemon, rng),
            |daemon, call, written| {
                trace.add(now, &format!("daemon-{daemon}: {call}"));
                let foreign = written.iter().find(|key| !holders.may_write(&host(daemon), key));
                if let Some(key) = foreign {
                    outcome = Err(format!("daemon-{daemon} writes {key} and does not lead"));
                }
            },
        );
        if let Err(what) = outcome {
            return Ok(Some(what));
        }
        if let Err(what) = self.step_cluster() {
            return Ok(Some(what));
        }
        for machine in &mut self.machines {
            let acted = machine.acts;
            self.clock.differ(machine.offset);
            machine.turn();
            self.clock.differ(SignedDuration::ZERO);
            machine.has_lost = acted && !machine.acts && machine.board.with(|observed| observed.has_lost);
            if machine.acts != acted {
                self.terms += u64::from(machine.acts);
                let what = if machine.acts { "leads" } else { "leads no longer" };
                self.trace.add(now, &format!("{} {what}", machine.address));
            }
        }
        Ok(self.check().err())
    }

    fn change_faults(&mut self) -> anyhow::Result<()> {
        let sizes = (self.machines.len(), usize::from(self.agents_number));
        let (ended, started) = self.faults.step(self.now, sizes, &mut self.rng);
        let time = self.began + self.now;
        for fault in ended {
            self.trace.add(self.now, &format!("end of: {fault}"));
            match fault.kind {
                Kind::Pause => self.machines[fault.target].is_paused = false,
                Kind::Kill => self.start(fault.target)?,
                Kind::WrongClock => self.set_clock(fault.target, 0),
                Kind::SlowPlugins | Kind::TrappingPlugins => self.disturb_plugins(fault.target),
                Kind::AgentReset if self.loses_disk(fault.target) => {
                    self.trace
                        .add(self.now, &format!("agent-{} has lost its disk", fault.target));
                    self.cluster.replace_agent(fault.target, time);
                }
                Kind::AgentAway | Kind::AgentReset => self.cluster.reconnect_agent(fault.target, time),
                _ => {}
            }
        }
        for fault in started {
            self.trace.add(self.now, &fault.to_string());
            self.begin(fault);
        }
        Ok(())
    }

    fn loses_disk(&mut self, agent: usize) -> bool {
        self.loses_disks && self.rng.random() && !self.agents.orchestrator.has_data(agent)
    }

    fn set_clock(&mut self, daemon: usize, offset: i64) {
        self.machines[daemon].offset = SignedDuration::from_secs(offset);
        self.agents.orchestrator.clock_jumped(self.now);
    }

    fn disturb_plugins(&mut self, daemon: usize) {
        let has = |kind| self.faults.has(kind, Some(daemon));
        let plugins = &self.machines[daemon].plugins;
        plugins.disturb(has(Kind::SlowPlugins), has(Kind::TrappingPlugins));
    }

    fn begin(&mut self, fault: Fault) {
        let time = self.began + self.now;
        match fault.kind {
            Kind::Pause => self.machines[fault.target].is_paused = true,
            Kind::Kill => {
                let machine = &mut self.machines[fault.target];
                (machine.process, machine.acts) = (None, false);
            }
            Kind::MasterRestart => self
                .cluster
                .restart_master(fault.until.saturating_sub(self.now), time),
            Kind::MasterFailover => {
                let down = fault.until.saturating_sub(self.now);
                let election = Duration::from_millis(self.rng.random_range(500..10_000));
                self.cluster.fail_over(down, election, time);
            }
            Kind::Cut => self.network.cut(fault.target, &mut self.cluster, time),
            Kind::LostUpdates => self.cluster.lose_updates(self.rng.random_range(1..10)),
            Kind::WrongClock => {
                let seconds = self.rng.random_range(-3_600..3_600);
                self.set_clock(fault.target, seconds);
            }
            Kind::SlowPlugins | Kind::TrappingPlugins => self.disturb_plugins(fault.target),
            Kind::SwappedPlugins => self.machines[fault.target].plugins.swap(),
            Kind::AgentAway => {
                self.cluster.disconnect_agent(fault.target, time);
                self.agents.disturb(fault.target);
            }
            Kind::AgentReset => {
                self.agents.disturb(fault.target);
                self.cluster.disconnect_agent(fault.target, time);
                self.agents.reset(fault.target, self.now);
            }
            _ => {}
        }
    }

    /// The master, the agents and the clients.
    fn step_cluster(&mut self) -> Result<(), String> {
        let (now, time) = (self.now, self.began + self.now);
        if self.steps.is_multiple_of(TICK_STEPS) {
            self.cluster.tick(time);
            let (faults, rng) = (&self.faults, &mut self.rng);
            self.zookeeper.step(now, &self.cluster, time, faults, rng);
        }
        let is_idle = Faults::is_idle(now);
        let calls = &mut self.idle_calls;
        let (trace, server, invariants) = (&mut self.trace, &self.server, &mut self.invariants);
        self.holders.update(server, now);
        let holders = &self.holders;
        let mut outcome = Ok(());
        self.network.step(
            now,
            &mut self.cluster,
            time,
            &self.faults,
            &mut self.rng,
            |request, stage| {
                let call = Call::of(request);
                *calls += u32::from(is_idle && matches!(stage, Stage::Sent));
                let Stage::Answered(status) = stage else {
                    let of = call.framework.as_deref();
                    let of = of.and_then(|id| framework(id, server));
                    if of.is_some_and(|name| !holders.leads(&host(request.daemon), name)) {
                        outcome = Err(format!(
                            "daemon-{} calls {call} and does not lead",
                            request.daemon
                        ));
                    }
                    return;
                };
                let status = status.map_or("refused".to_owned(), |status| status.as_u16().to_string());
                trace.add(now, &format!("daemon-{}: {call}: {status}", request.daemon));
                if status == "202" && outcome.is_ok() {
                    outcome = invariants.check_call(&call, server);
                }
            },
        );
        outcome?;
        let (agents, is_stormy) = (&mut self.agents, Faults::is_stormy(now));
        let reaches = |daemon: &usize| self.faults.connects(Peer::Master, *daemon);
        let cut_off = (0..self.machines.len())
            .filter(|daemon| !reaches(daemon))
            .collect();
        for event in agents.orchestrator.step(now, cut_off) {
            self.trace.add(now, &event);
        }
        agents.step(now, is_stormy, &mut self.cluster, time, &mut self.rng, |event| {
            self.trace.add(now, event);
        })?;
        let machines = &self.machines;
        self.http.step(now, &self.faults, &mut self.rng, |daemon, port| {
            let machine = &machines[daemon];
            let process = machine.process.as_ref()?;
            let router = machine.board.with(|observed| observed.services.router(port))?;
            Some((process, router))
        });
        self.clients.step(&mut ClientContext {
            now,
            calm: self.invariants.calm(now),
            is_stormy,
            do_plugins_fail: [Kind::SlowPlugins, Kind::TrappingPlugins]
                .iter()
                .any(|kind| self.faults.has(*kind, None)),
            hosts: &self.hosts,
            http: &self.http,
            server: &self.server,
            agents: &self.agents,
            rng: &mut self.rng,
            trace: &mut |event| self.trace.add(now, event),
        })
    }

    fn check(&mut self) -> Result<(), String> {
        for machine in &mut self.machines {
            for key in machine
                .board
                .with(|observed| std::mem::take(&mut observed.acknowledged))
            {
                self.writes += 1;
                if !self.server.contains(&key) {
                    return Err(format!("the acknowledged write {key} is not in the store"));
                }
            }
            if let Some(failure) = machine.board.with(|observed| observed.services.failure.take()) {
                return Err(format!("{}: {failure}", machine.host));
            }
        }
        let calm = self.invariants.calm(self.now);
        if !Faults::is_idle(self.now) {
            let calls = std::mem::take(&mut self.idle_calls);
            if calls > MAX_IDLE_CALLS {
                return Err(format!(
                    "the daemons have made {calls} calls to masters in three idle minutes"
                ));
            }
        }
        if self.now.as_millis().is_multiple_of(1_000) {
            for machine in self.machines.iter_mut().filter(|machine| machine.runs()) {
                let discovery = machine.board.with(|observed| observed.services.discovery.clone());
                let zone = discovery.and_then(|discovery| discovery.zone());
                let checked = machine.shown.check(zone, self.now, calm, &self.agents);
                checked.map_err(|what| format!("{}: {what}", machine.host))?;
            }
        }
        let running = self.machines.iter().filter(|machine| machine.runs());
        let views = running.map(|machine| View {
            address: &machine.address,
            acts: machine.acts,
            has_lost: machine.has_lost,
            leadership: machine.board.with(|observed| observed.leadership.clone()),
        });
        let (has_faults, held) = (
            !self.faults.active.is_empty(),
            self.server.holder(LEASE, self.now),
        );
        for (daemon, machine) in self.machines.iter().enumerate() {
            let is_disturbed = !machine.runs() || self.faults.disturbs_store(daemon, self.now);
            self.invariants
                .disturbed(&machine.address, is_disturbed, self.now);
        }
        self.invariants
            .check(self.now, has_faults, &views.collect::<Vec<_>>(), held)
    }
}

fn host(daemon: usize) -> String {
    format!("daemon-{daemon}")
}

/// Runs the tests that every store must pass on the simulated one, without faults.
///
/// # Errors
/// If no runtime can be started.
///
/// # Panics
/// If a guarantee is broken.
pub fn conforms(seed: u64) -> anyhow::Result<()> {
    let (mut server, mut rng) = (Server::new(None, false), StdRng::seed_from_u64(seed));
    let (store, is_done) = (Arc::new(server.connect(0)), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&is_done);
    let process = Process::start(async move {
        conformance::run(store).await;
        done.store(true, Ordering::SeqCst);
    })?;
    let mut now = Duration::ZERO;
    while !is_done.load(Ordering::SeqCst) {
        now += STEP;
        let mut delay = || Some(Duration::from_millis(rng.random_range(0..5)));
        server.step(
            now,
            |_| Fate {
                request: delay(),
                answer: delay(),
            },
            |_, _, _| {},
        );
        process.run(STEP, || ());
        anyhow::ensure!(now < Duration::from_hours(1), "the tests of stores do not end");
    }
    Ok(())
}
