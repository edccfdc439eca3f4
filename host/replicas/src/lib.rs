//! The lifecycle of replicas, the equal copies of one run spec. Their number is maintained while
//! tasks end, agents disappear and definitions change.
//!
//! * [`Replica`], [`Goal`], [`Condition`]: one replica and its current task
//! * [`step`], with [`Input`], [`Effect`] and [`Policy`]: the state transitions of one replica
//! * [`UnreachableStrategy`]: when an unreachable replica is replaced and expunged
//! * [`LaunchBackoff`], [`BackoffPolicy`]: the delay before a run spec whose tasks keep ending is
//!   launched again
//! * [`Fitness`]: the results of health and readiness checks of a running replica
//! * [`advance`], with [`Member`], [`Action`], [`ScalingPolicy`] and [`Directive`]: which replicas
//!   to remove and how many to start, for scaling, rolling restarts and stopping
//! * [`advance_by_counts`], with [`ReplicaCounts`] and [`ReplicaIndex`]: the same without a look at every
//!   replica, unless some have to be selected among all
//! * [`propose`] and [`allow`]: the calculations that [`advance`] uses, for separate use
//!
//! A service keeps its replicas in a map by its own ids, together with its own data about each. On
//! every event it calls [`step`], executes the effects, and calls [`advance`] until the directive
//! is done. The apps service does this with its instances. A version is any value that
//! distinguishes one definition from another.
//!
//! # Guarantees
//!
//! Everything here is pure. There is no clock: the time is an argument. Nothing is stored; a
//! replica is rebuilt from the scheduler's record of its task ([`Replica::of_task`]).
//!
//! A task in a state that this version of the daemon does not recognize counts as alive, so that
//! nothing is launched in its place.
//!
//! # Not here
//!
//! Placement, the execution of health checks, deployments with several steps, and everything that
//! clients see.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod backoff;
mod condition;
mod replica;
mod scaling;
mod step;
mod unreachable;

pub use backoff::{BackoffPolicy, LaunchBackoff};
pub use condition::Condition;
pub use replica::{Fitness, Goal, Replica, TaskView};
pub use scaling::counts::{ReplicaCounts, ReplicaIndex, advance_by_counts};
pub use scaling::restart::{Allowance, Progress, UpgradeStrategy, allow};
pub use scaling::selection::{Candidate, KillSelection, Proposal, kill_order, propose};
pub use scaling::{Action, Directive, Member, ScalingPolicy, advance};
pub use step::{Effect, Input, Policy, step};
pub use unreachable::UnreachableStrategy;
