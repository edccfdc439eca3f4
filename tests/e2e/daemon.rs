//! The daemon as a whole: its ports, its start and its end, its packages, and what an operator sees.

mod access;
mod bad_input;
mod budgets;
mod config_import;
mod connections;
mod cross_site;
mod dashboard;
mod dev;
mod diagnosis;
mod diagnosis_page;
mod large_bodies;
mod leadership;
mod metrics_page;
mod monitoring;
mod packages;
mod scale;
mod services;
mod skip_ssl;
mod store_at_start;
mod store_command;
mod supervisor;
mod systemd;
mod traces;
mod upgrade;
