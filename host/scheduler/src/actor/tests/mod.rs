//! The actor against a master made for the test.

mod component;
mod connection;
mod demand;
mod lifecycle;
mod master;
mod rig;
