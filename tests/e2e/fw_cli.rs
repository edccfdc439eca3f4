//! `transom fw`, and the plugin of the published command line, against a stand-in for the master
//! and for the API of a framework.

mod binary;
mod errors;
mod plugin;
mod stand_in;
