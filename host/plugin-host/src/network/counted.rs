//! A connection whose received bytes are counted and limited.
//!
//! The parts of a response that its reader does not see (informational responses, framing, trailers)
//! may be endless. They count as well.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;

/// The number of bytes received so far.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedBytes(Arc<AtomicU64>);

impl ReceivedBytes {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Fails with [`Exceeded`] after `limit` bytes.
pub(super) struct Counted {
    pub(super) connection: Connection,
    pub(super) received: ReceivedBytes,
    pub(super) limit: u64,
}

/// The source of the error of a connection that received too much.
#[derive(Debug)]
pub(super) struct Exceeded;

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many bytes received")
    }
}

impl std::error::Error for Exceeded {}

/// Whether an error is the one of such a connection.
pub(super) fn is_exceeded(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Exceeded>)
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.get() > self.limit {
            return Poll::Ready(Err(io::Error::other(Exceeded)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.connection).poll_read(context, buffer))?;
        let count = (buffer.filled().len() - before) as u64;
        self.received.0.fetch_add(count, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
