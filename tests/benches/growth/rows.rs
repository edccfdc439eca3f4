//! The rows: what is measured, at which sizes, and how it may grow.

use futures::future::LocalBoxFuture;

use crate::meter::Cost;
use crate::{apps, checks, kubernetes, parts, plugins, workflow};

const WITH_SIZE: f64 = 1.15;
const NONE: f64 = 0.15;

/// How a cost may grow with the size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Growth {
    /// The work is proportional to the size.
    WithSize,
    /// The work is the same at each size.
    None,
    /// So is the memory.
    Level,
    /// The work is proportional to the size, and the memory is the same at each size.
    Streamed,
}

impl Growth {
    /// The highest exponent of processor time.
    pub(crate) fn bound(self) -> f64 {
        match self {
            Growth::WithSize | Growth::Streamed => WITH_SIZE,
            Growth::None | Growth::Level => NONE,
        }
    }

    /// The highest exponent of memory. That of a process with more of something may be larger even
    /// if the cost of one change is not.
    pub(crate) fn memory_bound(self) -> f64 {
        match self {
            Growth::WithSize | Growth::None => WITH_SIZE,
            Growth::Level | Growth::Streamed => NONE,
        }
    }
}

pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) growth: Growth,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What the sizes count.
    pub(crate) of: &'static str,
    pub(crate) sizes: [usize; 3],
    pub(crate) figures: &'static [Figure],
    /// Returns a cost for each figure.
    pub(crate) measure: fn(usize) -> LocalBoxFuture<'static, Vec<Cost>>,
}

/// Distinct filters of many event streams; the daemon has a limit of 256 for them.
const FILTERS: usize = 200;

const fn grows(name: &'static str) -> Figure {
    Figure {
        name,
        growth: Growth::WithSize,
    }
}

const fn constant(name: &'static str) -> Figure {
    Figure {
        name,
        growth: Growth::None,
    }
}

const fn streamed(name: &'static str) -> Figure {
    Figure {
        name,
        growth: Growth::Streamed,
    }
}

const fn level(name: &'static str) -> Figure {
    Figure {
        name,
        growth: Growth::Level,
    }
}

pub(crate) static ROWS: &[Row] = &[
    Row {
        name: "group",
        of: "apps without ports",
        sizes: [1_000, 4_000, 16_000],
        figures: &[grows("PUT until deployed"), grows("DELETE until deployed")],
        measure: |size| Box::pin(apps::group(size, apps::Ports::None, 1)),
    },
    Row {
        name: "meanwhile",
        of: "apps of a group that is deployed",
        sizes: [1_000, 4_000, 16_000],
        figures: &[
            constant("longest wait for the acknowledgement of a status update"),
            constant("longest wait for its event"),
            constant("longest wait for GET /v2/apps/{id}"),
        ],
        measure: |size| Box::pin(apps::meanwhile(size)),
    },
    Row {
        name: "group-ports",
        of: "apps with the default port",
        sizes: [1_000, 3_000, 10_000],
        figures: &[grows("PUT until deployed"), grows("DELETE until deployed")],
        measure: |size| Box::pin(apps::group(size, apps::Ports::Default, 1)),
    },
    Row {
        name: "group-stopped",
        of: "apps with the default port and no instances",
        sizes: [1_000, 3_000, 10_000],
        figures: &[grows("PUT until deployed"), grows("DELETE until deployed")],
        measure: |size| Box::pin(apps::group(size, apps::Ports::Default, 0)),
    },
    Row {
        name: "group-depends",
        of: "apps in two groups of which one depends on the other",
        sizes: [500, 2_000, 8_000],
        figures: &[grows("PUT until deployed")],
        measure: |size| Box::pin(apps::dependent_groups(size)),
    },
    Row {
        name: "chain",
        of: "apps that depend on each other in a chain",
        sizes: [100, 300, 1_000],
        figures: &[grows("PUT until deployed")],
        measure: |size| Box::pin(apps::chain(size)),
    },
    Row {
        name: "groups-of-one",
        of: "groups of one app",
        sizes: [500, 2_000, 8_000],
        figures: &[grows("GET /v2/groups")],
        measure: |size| Box::pin(apps::groups_of_one(size)),
    },
    Row {
        name: "scaling",
        of: "apps from 1 to 10 instances",
        sizes: [100, 500, 2_000],
        figures: &[grows("until all tasks run")],
        measure: |size| Box::pin(apps::scaling(size)),
    },
    Row {
        name: "instances",
        of: "instances of one app",
        sizes: [1_000, 5_000, 20_000],
        figures: &[
            grows("POST until deployed"),
            constant("a lone status update"),
            constant("a status update in a burst"),
            streamed("GET /v2/apps/{id}"),
            grows("restart of the daemon"),
        ],
        measure: |size| Box::pin(apps::instances(size)),
    },
    Row {
        name: "standby",
        of: "instances of one app, two daemons with a Redis",
        sizes: [4_000, 20_000, 100_000],
        figures: &[
            constant("a lone status update on the standby"),
            grows("the standby leads and accepts a change"),
        ],
        measure: |size| Box::pin(apps::standby(size)),
    },
    Row {
        name: "tasks",
        of: "tasks of apps with 10 instances",
        sizes: [1_000, 5_000, 20_000],
        figures: &[
            constant("a launch"),
            constant("a lone status update"),
            constant("a status update in a burst"),
            constant("GET /v1/overview"),
            constant("GET /metrics"),
            grows("GET /v2/tasks"),
            grows("GET /v2/groups with apps and tasks"),
        ],
        measure: |size| Box::pin(apps::tasks(size)),
    },
    Row {
        name: "pending",
        of: "instances that fit nowhere, of 100 apps",
        sizes: [1_000, 5_000, 20_000],
        figures: &[
            constant("a launch of another app"),
            grows("GET /v2/queue"),
            grows("GET /v2/queue with unused offers"),
            constant("20 s in which nothing changes"),
        ],
        measure: |size| Box::pin(apps::pending(size)),
    },
    Row {
        name: "idle-apps",
        of: "apps that fit nowhere, 1,000 agents",
        sizes: [250, 1_000, 4_000],
        figures: &[
            grows("20 s in which nothing changes"),
            streamed("GET /v2/deployments"),
        ],
        measure: |size| Box::pin(apps::idle(1_000, size)),
    },
    Row {
        name: "idle-agents",
        of: "agents, 1,000 apps that fit nowhere",
        sizes: [500, 2_500, 10_000],
        figures: &[
            grows("20 s in which nothing changes"),
            constant("GET /v2/deployments"),
        ],
        measure: |size| Box::pin(apps::idle(size, 1_000)),
    },
    Row {
        name: "group-by-hostname",
        of: "agents, half as many instances",
        sizes: [250, 1_000, 4_000],
        figures: &[grows("POST until deployed")],
        measure: |size| Box::pin(apps::spread(size, size / 2, "hostname")),
    },
    Row {
        name: "group-by-rack",
        of: "agents in 40 racks, three quarters as many instances",
        sizes: [250, 1_000, 4_000],
        figures: &[grows("POST until deployed")],
        measure: |size| Box::pin(apps::spread(size, size * 3 / 4, "rack")),
    },
    Row {
        name: "rolling-restart",
        of: "instances of one app",
        sizes: [300, 1_000, 3_000],
        figures: &[grows("PUT until deployed")],
        measure: |size| Box::pin(apps::rolling_restart(size)),
    },
    Row {
        name: "pods",
        of: "pods, posted one after the other",
        sizes: [100, 400, 1_600],
        figures: &[
            grows("POST until deployed"),
            streamed("GET /v2/pods"),
            streamed("GET /v2/pods/::status"),
        ],
        measure: |size| Box::pin(apps::pods(size)),
    },
    Row {
        name: "event-streams",
        of: "event streams with 200 filters",
        sizes: [500, 2_000, 10_000],
        figures: &[grows("100 lone status updates that one in 200 streams receives")],
        measure: |size| Box::pin(apps::streams(size, FILTERS)),
    },
    Row {
        name: "event-filters",
        of: "event streams with a filter each",
        sizes: [20, 60, 200],
        figures: &[grows("100 lone status updates that one stream receives")],
        measure: |size| Box::pin(apps::streams(size, size)),
    },
    Row {
        name: "sustained",
        of: "seconds with 1,000 status updates each",
        sizes: [100, 300, 600],
        figures: &[level("a status update"), level("the store's files")],
        measure: |size| Box::pin(apps::sustained(size)),
    },
    Row {
        name: "checks-tcp",
        of: "tasks with a TCP check by the daemon",
        sizes: [2_000, 6_000, 20_000],
        figures: &[grows("a check of each task, every 10 s")],
        measure: |size| Box::pin(checks::by_the_daemon(size, "TCP")),
    },
    Row {
        name: "checks-http",
        of: "tasks with an HTTP check by the daemon",
        sizes: [2_000, 6_000, 20_000],
        figures: &[grows("a check of each task, every 10 s")],
        measure: |size| Box::pin(checks::by_the_daemon(size, "HTTP")),
    },
    Row {
        name: "checks-command",
        of: "tasks with a command check by their agents",
        sizes: [2_000, 6_000, 20_000],
        figures: &[constant("a result in a burst")],
        measure: |size| Box::pin(checks::by_agents(size)),
    },
    Row {
        name: "plugins",
        of: "matchers, and as many filters, beside 1,000 instances",
        sizes: [2, 4, 8],
        figures: &[
            grows("a launch"),
            grows("a status update in a burst, for 16 streams"),
        ],
        measure: |size| Box::pin(plugins::chains(size, 1_000)),
    },
    Row {
        name: "plugins-instances",
        of: "instances of one app, 20 plugins in use",
        sizes: [1_000, 5_000, 20_000],
        figures: &[
            constant("a launch"),
            constant("a status update in a burst, for 16 streams"),
        ],
        measure: |size| Box::pin(plugins::chains(plugins::MAX_CHAIN, size)),
    },
    Row {
        name: "kubernetes",
        of: "agents of a Kubernetes cluster",
        sizes: [20, 60, 200],
        figures: &[
            grows("another agent, until its node is ready"),
            grows("20 s in which nothing changes"),
        ],
        measure: |size| Box::pin(kubernetes::members(size)),
    },
    Row {
        name: "jobs",
        of: "jobs that fit nowhere",
        sizes: [2_000, 10_000, 50_000],
        figures: &[
            grows("POST /v0/queue_command"),
            constant("GET /v0/queue with one task_id"),
            grows("GET /v0/queue"),
            constant("another job, until it runs"),
        ],
        measure: |size| Box::pin(workflow::waiting_jobs(size)),
    },
    Row {
        name: "jobs-ended",
        of: "jobs that run and end",
        sizes: [500, 2_000, 8_000],
        figures: &[grows("from the first one's queueing to the last one's end")],
        measure: |size| Box::pin(workflow::jobs_that_end(size)),
    },
    Row {
        name: "discovery",
        of: "tasks in the cluster, ten on each agent",
        sizes: [4_000, 20_000, 100_000],
        figures: &[
            grows("start until the first answer"),
            constant("a changed task"),
            constant("a changed task while 1,000 begin and end per second"),
            grows("a lost stream, until the full comparison has ended"),
        ],
        measure: |size| Box::pin(parts::discovery(size)),
    },
    Row {
        name: "scheduler",
        of: "tasks of a framework, ten on each agent",
        sizes: [2_000, 10_000, 50_000],
        figures: &[
            grows("loading of all records"),
            grows("reconciliation of all tasks"),
            constant("a status update in a burst"),
            grows("a launch of 50 tasks, with an offer of each agent"),
        ],
        measure: |size| Box::pin(parts::scheduler(size)),
    },
];
