//! `transom fw`, and the plugin of the published command line, against a stand-in for the master
//! and for the API of a framework.

mod binary;
mod errors;
mod plugin;
pub(crate) mod stand_in;
