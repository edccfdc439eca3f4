//! End-to-end tests of the real binary, in one program: one module per subject.
//!
//! They use the daemon as users do: by its commands, HTTP, DNS packets, and installed clients.
//! `app_lifecycle` is the shortest overview.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod access;
mod app_lifecycle;
mod apps;
mod apps_cli;
mod apps_import;
mod bad_input;
mod budgets;
mod client_patterns;
mod config_import;
mod connections;
mod containers;
mod cross_site;
mod dashboard;
mod dev;
mod diagnosis;
mod diagnosis_page;
mod discovery;
mod discovery_page;
mod discovery_source;
mod disks;
mod drain;
mod event_callbacks;
mod event_clients;
mod event_filters;
mod event_kinds;
mod event_resume;
mod event_slow;
mod example_plugins;
mod examples;
mod executors;
mod framework_readme;
mod fw_cli;
mod health;
mod hostile;
#[path = "../../host/plugin-host/tests/plugins/hostile_wat.rs"]
mod hostile_wat;
mod kubernetes_autoscale;
mod kubernetes_backup;
mod kubernetes_bootstrap;
mod kubernetes_containers;
mod kubernetes_failures;
mod kubernetes_instances;
mod kubernetes_kvstore;
mod kubernetes_kvstore_restore;
mod kubernetes_real;
mod kubernetes_rolling;
mod kubernetes_servers;
mod kubernetes_standby;
mod large_bodies;
mod large_group;
mod leadership;
mod load_balancer;
mod maintenance;
mod metrics_page;
mod migration_pages;
mod monitoring;
mod packages;
mod plugin_admin;
mod plugin_cache;
mod plugin_cli;
mod plugin_dev;
mod plugin_explain;
mod plugin_fuzz;
mod plugin_kits;
mod plugin_recording;
mod plugin_sources;
mod plugin_upgrade;
mod plugin_upload;
mod plugins_readme;
mod pods;
mod readme;
mod removed_components;
mod scale;
mod services;
mod skip_ssl;
mod store_at_start;
mod supervisor;
mod swap;
mod systemd;
mod traces;
mod upgrade;
mod workflow;
mod workflow_airflow;
mod workflow_clients;
mod workflow_containers;
mod workflow_harness;
mod workflow_names;
mod workflow_standby;
mod workflow_waits;
