//! Workflow jobs, and the clients that queue them.

mod airflow;
mod clients;
mod containers;
mod harness;
mod jobs;
mod names;
mod standby;
mod waits;
