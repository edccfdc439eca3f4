//! Closes a connection whose client does not read.
//!
//! A client that stops reading fills the buffers of the connection; then every write waits, and
//! the connection would keep its slot, its subscription and the memory of its answer for ever. So would
//! a client that reads a few bytes now and then. From the first write that waits, the client has to
//! read [`MIN_PROGRESS_BYTES`], or everything that is to be sent, within the timeout; otherwise the
//! write fails here, which ends the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

/// What a client that cannot read everything has to read within the timeout.
const MIN_PROGRESS_BYTES: usize = 256 << 10;

/// A connection with a deadline for each write.
pub(super) struct WriteDeadline<S> {
    inner: S,
    timeout: Duration,
    /// Runs from a write that was blocked until the client has read enough.
    timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written while the timer runs.
    progress: usize,
}

impl<S> WriteDeadline<S> {
    pub(super) fn new(inner: S, timeout: Duration) -> Self {
        Self {
            inner,
            timeout,
            timer: None,
            progress: 0,
        }
    }

    /// Passes the result of a write on, and turns one of a client that reads too slowly into an error.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written
            && self.timer.is_some()
        {
            self.progress += bytes;
            if self.progress >= MIN_PROGRESS_BYTES {
                self.reset();
            }
        }
        self.bounded(context, written)
    }

    /// Passes the result of a flush or a shutdown on. hyper flushes when everything has been written.
    fn flushed(&mut self, context: &mut Context<'_>, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if flushed.is_ready() {
            self.reset();
        }
        self.bounded(context, flushed)
    }

    fn reset(&mut self) {
        (self.timer, self.progress) = (None, 0);
    }

    fn bounded<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            return result;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        ready!(timer.as_mut().poll(context));
        let text = "the client read too little within the write timeout";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<S: Read + Unpin> Read for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for WriteDeadline<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        text: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, text);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        texts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, texts);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.flushed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.flushed(context, shut)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn connection() -> (WriteDeadline<TokioIo<DuplexStream>>, DuplexStream) {
        let (server, client) = duplex(64 << 10);
        (WriteDeadline::new(TokioIo::new(server), TIMEOUT), client)
    }

    /// Writes and flushes an answer, as hyper does.
    async fn write(stream: &mut WriteDeadline<TokioIo<DuplexStream>>, bytes: usize) -> io::Result<()> {
        let text = vec![0; bytes];
        let mut written = 0;
        while written < bytes {
            written +=
                poll_fn(|context| Pin::new(&mut *stream).poll_write(context, &text[written..])).await?;
        }
        poll_fn(|context| Pin::new(&mut *stream).poll_flush(context)).await
    }

    /// Whether an answer of `bytes` can be sent to a client that reads `part` bytes at a time, with
    /// pauses of this many seconds.
    async fn is_sent(bytes: usize, part: usize, pause: u64) -> bool {
        let (mut stream, mut client) = connection();
        let reading = async {
            let mut buffer = vec![0; part];
            while client.read_exact(&mut buffer).await.is_ok() {
                sleep(Duration::from_secs(pause)).await;
            }
        };
        tokio::select! {
            sent = write(&mut stream, bytes) => sent.is_ok(),
            () = reading => unreachable!("the server is still there"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_too_slowly_is_disconnected() {
        for (bytes, part, pause, expected) in [
            (4 << 20, 64 << 10, 0, true),
            // 320 KiB in 25 seconds, 192 KiB in 30 seconds.
            (4 << 20, 64 << 10, 5, true),
            (4 << 20, 64 << 10, 11, false),
            // One byte before each timeout of a single write.
            (4 << 20, 1, 29, false),
            // A client may take its time for the last bytes, if they come in time.
            (80 << 10, 32 << 10, 29, true),
            (64 << 10, 1, 100, true),
        ] {
            let sent = is_sent(bytes, part, pause).await;
            assert_eq!(sent, expected, "{bytes} bytes, {part} every {pause} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_between_answers_does_not_count() {
        let (mut stream, mut client) = connection();
        for _ in 0..5 {
            let reading = async {
                sleep(TIMEOUT / 2).await;
                client.read_exact(&mut vec![0; 80 << 10]).await.unwrap();
                sleep(TIMEOUT * 3).await;
            };
            let (sent, ()) = tokio::join!(write(&mut stream, 80 << 10), reading);
            sent.unwrap();
        }
    }
}
