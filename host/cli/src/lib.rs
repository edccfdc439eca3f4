//! The commands that are clients of a daemon, and what they share with the program's other commands.
//!
//! * [`apps`], [`fw`], [`job`], [`plugin`]: clients of the services' ports and of the admin port
//! * [`agents`], [`dns`]: the agents of the cluster, and names that discovery answers
//! * [`status`], [`top`]: the state of a daemon, from [`overview`], the document that the daemon
//!   serves
//! * [`Connection`]: a client of the admin port
//! * [`output`], [`exit`], [`signals`]: tables and JSON, exit codes, and the end of a command
//! * [`plugin_archive`]: the body of an upload
#![forbid(unsafe_code)]
// They panic if the other end of a pipe is closed; see `output::print_line`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin_port;
pub mod agents;
pub mod apps;
mod completion;
pub mod dns;
pub mod exit;
pub mod fw;
mod http;
pub mod job;
mod list;
pub mod output;
pub mod overview;
pub mod plugin;
pub mod plugin_archive;
pub mod signals;
pub mod status;
mod task_output;
pub mod top;

pub use admin_port::Connection;
