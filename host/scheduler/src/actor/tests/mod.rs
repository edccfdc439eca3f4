//! The actor against a master made for the test.

mod component;
mod connection;
mod demand;
mod explanations;
mod faulty_matcher;
mod groups;
mod kill_choices;
mod leader;
mod lifecycle;
mod maintenance;
mod master;
mod meanwhile;
mod requests;
mod reservations;
mod rig;
mod roles;
