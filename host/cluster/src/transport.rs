//! The way in which requests reach masters and agents, for simulations.

use std::fmt;
use std::io;
use std::pin::Pin;

use crate::error::TransportError;

/// A future of the answer's head; the body may follow as a stream.
pub type Exchange = Pin<Box<dyn Future<Output = io::Result<http::Response<reqwest::Body>>> + Send>>;

/// Takes the place of the network: every request to a master or an agent is passed to it.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends a request. The error is that of a connection that failed.
    fn exchange(&self, request: reqwest::Request) -> Exchange;
}

/// Sends a request over the network, or with `transport`.
pub(crate) async fn send(
    request: reqwest::RequestBuilder,
    transport: Option<&dyn Transport>,
) -> Result<reqwest::Response, TransportError> {
    let Some(transport) = transport else {
        return request.send().await.map_err(TransportError::new);
    };
    let request = request.build().map_err(TransportError::new)?;
    let response = transport
        .exchange(request)
        .await
        .map_err(TransportError::Simulated)?;
    Ok(response.into())
}
