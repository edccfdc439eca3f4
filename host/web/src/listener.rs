//! Taking a port.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::{Certificate, Error, Result};

/// A TCP port that was taken and is not served yet. Connections made meanwhile wait until [`crate::serve`] takes it.
#[derive(Debug)]
pub struct Listener {
    pub(crate) name: &'static str,
    pub(crate) socket: TcpListener,
    pub(crate) certificate: Option<Certificate>,
    addr: SocketAddr,
}

impl Listener {
    /// Takes a port; port 0 takes a free one. `name` is what `--port NAME=N` calls it; logs and errors use it.
    ///
    /// # Errors
    /// [`Error::Taken`] when something listens there, [`Error::Bind`] for everything else.
    pub fn bind(name: &'static str, addr: SocketAddr) -> Result<Self> {
        let bind = || -> io::Result<Self> {
            let socket = TcpListener::bind(addr)?;
            socket.set_nonblocking(true)?;
            let addr = socket.local_addr()?;
            Ok(Self {
                name,
                socket,
                certificate: None,
                addr,
            })
        };
        bind().map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::Taken { name, addr },
            _ => Error::Bind { name, addr, source },
        })
    }

    /// Speaks TLS, and nothing else.
    #[must_use]
    pub fn with_certificate(self, certificate: Certificate) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }

    /// Where it listens, with the port it really has.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}
