//! The user that a request's credentials belong to, and the address that it comes from.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};

/// The user that a request's credentials belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authentication<'a> {
    /// The port has no credentials.
    NoneConfigured,
    /// The request has no credentials.
    Missing,
    /// The request's credentials match no user.
    Invalid,
    /// This user may only read.
    Reader(&'a str),
    /// This user may do everything.
    Full(&'a str),
}

/// The address of the client's connection.
pub(super) fn peer(request: &Request) -> Option<SocketAddr> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|peer| peer.0)
}
