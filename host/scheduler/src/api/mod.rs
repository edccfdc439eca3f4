//! The interface for services: the handle, requests, snapshots and events.

pub(crate) mod event;
pub(crate) mod explanation;
pub(crate) mod handle;
pub(crate) mod pending;
pub(crate) mod reason;
pub(crate) mod record;
pub(crate) mod request;
pub(crate) mod request_queue;
pub(crate) mod scheduler_api;
pub(crate) mod volume;
pub(crate) mod waiting;
