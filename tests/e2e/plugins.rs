//! Plugins: their commands, their authors' tools, and components that misbehave.

mod admin;
mod cache;
mod cli;
mod dev;
mod examples;
mod explain;
mod fuzz;
mod hostile;
#[path = "../../host/plugin-host/tests/plugins/hostile_wat.rs"]
mod hostile_wat;
mod kits;
mod readme;
mod recording;
mod removed_components;
mod sources;
mod swap;
mod upgrade;
mod upload;
