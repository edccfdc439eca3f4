//! A cluster manager in one process: a master and its agents, which implement the HTTP API v1 and
//! run tasks as local processes, or as containers where they name an image.
//!
//! It is meant for development on one machine and for end-to-end tests. It is used over HTTP only
//! and shares no type, codec or constant with the client crate, so that the same bug cannot hide in
//! both.
//!
//! # Guarantees
//!
//! * Calls, events, status codes, error texts and documents are those recorded from a real master
//!   and agents, with the exceptions below; the `transom-replay` crate compares them.
//! * Every task is its own process group in its own sandbox directory. When the token is cancelled
//!   and [`Minicluster::stopped`] returns, no process is left, whatever the tasks do with signals.
//! * A task with an image runs through Podman or Docker, if a trial container of one of them works
//!   ([`Images`], [`Minicluster::container_runtime`]). Its status updates are those of the
//!   containerizer that it names. Its container has a name and labels; it is removed when the task
//!   ends and when the cluster stops, and after a crash by the next start in the same work
//!   directory. Calls of the runtime have deadlines; four containers start at the same time.
//! * Two tasks never have the same port at the same time, not even while a process of a removed
//!   framework is still ending.
//! * Queues, bodies, connections and histories are bounded.
//! * Each agent writes `agents/<agent id>/journal.jsonl` in the work directory: a line for each
//!   start, signal and end of a process, flushed before the next step, for comparison with the
//!   process table. An agent keeps its directory when it gets another id.
//! * A task with an `executor` is sent to that executor, one process for each framework, agent and
//!   executor id, which subscribes at its agent's `/api/v1/executor`. It survives restarts of the
//!   master and of its agent as other tasks do. It ends with its framework, its agent and the
//!   cluster; its resources are free when its process has ended.
//! * Maintenance has schedules, inverse offers and their answers, and machines that go down and come
//!   up. When the maintenance of a machine is stopped, its agents start automatically, with new ids
//!   and with the reservations and volumes that they had.
//! * Web pages cannot use the ports: a request for an unknown host name gets 421, one of another
//!   site 403, a path with dot segments or encoded slashes 400, and a body of another type than
//!   that of its route 415. JSONP is off ([`Config::jsonp`]).
//! * `/minicluster/faults` on the masters' ports, which no real master has, injects the faults of
//!   real clusters; GET lists all faults and the active ones.
//!
//! # Limits
//!
//! * JSON only, no protobuf. No quota; offer constraints are shown and otherwise ignored.
//! * Agents act as the executors of task groups and of command tasks: messages for these are only
//!   written to the agent's journal, and a fault makes them send one. Custom executors run as
//!   processes, without an image and without credentials of their own; they have no task groups.
//!   The persistent volumes of a task are linked into its sandbox only if the task starts the
//!   executor. Checks of its tasks are left to the executor, as with real agents.
//! * Resources can be reserved, and persistent volumes created and destroyed. Volumes cannot grow,
//!   shrink or be shared. The tasks of a group mount those of its executor by volumes of the type
//!   `SANDBOX_PATH`. Further disks are directories without a limit; a volume on a `MOUNT` disk is a
//!   new directory below its root, so that it has no earlier files. Other operations return
//!   `OPERATION_ERROR`. `GET_OPERATIONS` shows none.
//! * Processes are not isolated: no limits on CPU or memory, no networks; tasks in Mesos containers that
//!   set limits are dropped, as by agents without the isolators. A process that leaves its process group
//!   escapes. In a task group with its own network, tasks without an image are still
//!   processes on the host's network.
//! * Containers support secrets by value only and one network each. They support no secrets as
//!   volumes, no `rlimit_info` and no capabilities of `linux_info`. The network `mesos-bridge` is
//!   the runtime's bridge. HTTP and TCP checks connect to the container's address, not within its
//!   network. Docker tasks have checks (a real executor makes only their health checks). A command
//!   check that exceeds its timeout may keep running inside the container until the container ends.
//! * Tasks run as another user only if this process is root; otherwise as its own user.
//! * `HEAD` is answered without a body, unlike real masters. The port of a killed or paused process
//!   still accepts connections, which are then closed or left without a response. The leading
//!   master changes only by a fault.
//! * State is in memory: a restart creates a new cluster.
//!
//! ```no_run
//! # async fn run() -> transom_minicluster::Result<()> {
//! let token = tokio_util::sync::CancellationToken::new();
//! let cluster = transom_minicluster::Config::three_agents("work").start(token.clone()).await?;
//! println!("http://{}", cluster.master());
//! token.cancel();
//! cluster.stopped().await;
//! # Ok(()) }
//! ```

mod agent;
mod cluster;
mod config;
mod error;
mod guard;
mod http;
mod master;
mod shared;
pub mod simulated;
mod state;
mod wire;

pub use cluster::Minicluster;
pub use config::{AgentConfig, Config, Disk, DiskKind, Images, Registry};
pub use error::{Error, Result};
pub use transom_web::AllowedHost;
