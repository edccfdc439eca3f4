//! The README, examples and pages, run as they are written.

mod examples;
mod migration;
mod readme;
