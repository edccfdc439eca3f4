//! A job as a client defines it, and how it is read. Pure.

mod fields;
mod input;
mod memory;
mod mount;
mod port;
mod spec;

pub(crate) use fields::Problems;
pub(crate) use input::{Request, read};
pub(crate) use memory::megabytes;
pub(crate) use mount::Mount;
pub(crate) use port::PortWish;
pub(crate) use spec::{Command, Containerizer, Key, Spec};
