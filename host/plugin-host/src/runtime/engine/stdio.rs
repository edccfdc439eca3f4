//! Standard output and error of a guest: complete lines are written to the plugin's log, long lines in
//! several parts.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamResult},
};

use crate::observe::guest_log::{GuestLog, Level};

/// Maximum bytes of one log line, and of one write of the guest.
const MAX_LINE_BYTES: usize = 4096;

/// A stream that never blocks and never fails, even if the log drops lines.
#[derive(Clone)]
pub(super) struct LogStream {
    log: Arc<GuestLog>,
    level: Level,
    line: Vec<u8>,
}

impl LogStream {
    pub(super) fn new(log: Arc<GuestLog>, level: Level) -> LogStream {
        LogStream {
            log,
            level,
            line: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.line.len() >= MAX_LINE_BYTES {
                self.log.write(self.level, &String::from_utf8_lossy(&self.line));
                self.line.clear();
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for LogStream {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_LINE_BYTES)
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
