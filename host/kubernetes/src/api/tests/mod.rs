//! Tests of the API with a scripted core and a view that the test publishes.

mod access;
mod backups;
mod changes;
mod instances;
mod openapi;
mod reads;
mod site;
mod standby;
