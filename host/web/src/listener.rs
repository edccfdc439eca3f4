//! Binding a port.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::{Certificate, Error, Result, inherited};

/// A bound TCP port that is not served yet. Connections queue until `serve` accepts them.
#[derive(Debug)]
pub struct Listener {
    pub(crate) name: &'static str,
    pub(crate) socket: TcpListener,
    pub(crate) certificate: Option<Certificate>,
    addr: SocketAddr,
}

impl Listener {
    /// Binds a port; port 0 binds a free one. `name` is its name in `--port NAME=N`, in logs and in
    /// errors. A socket that the supervisor has opened for this name and address is taken instead.
    ///
    /// # Errors
    /// [`Error::Taken`] when another socket listens there, [`Error::Inherited`] when the supervisor
    /// has opened this port at another address, [`Error::Bind`] for everything else.
    pub fn bind(name: &'static str, addr: SocketAddr) -> Result<Self> {
        let inherited = inherited::take(name, addr)?;
        let bind = || -> io::Result<Self> {
            let socket = match inherited {
                Some(socket) => socket,
                None => TcpListener::bind(addr)?,
            };
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

    /// Accepts TLS only.
    #[must_use]
    pub fn with_certificate(self, certificate: Certificate) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }

    /// The bound address, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}
