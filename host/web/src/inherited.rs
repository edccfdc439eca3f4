//! Sockets that a supervisor has opened before it started this process: systemd's socket
//! activation.
//!
//! A socket belongs to the port that it is named after (`FileDescriptorName=`), and must have the
//! address in that port's settings, so that the settings alone decide which addresses are reachable
//! and their checks stay valid. Connections wait in the socket while the daemon restarts.
//!
//! Only the TCP ports of HTTP can be inherited. DNS opens several UDP sockets for each port itself.

use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use listenfd::ListenFd;

use crate::{Error, Result};

static SOCKETS: Mutex<Vec<Inherited>> = Mutex::new(Vec::new());

/// A socket that no port has taken yet.
#[derive(Debug)]
struct Inherited {
    name: String,
    socket: TcpListener,
    addr: SocketAddr,
}

/// Takes the sockets of `LISTEN_FDS`, with their names of `LISTEN_FDNAMES`, for the ports that
/// [`Listener::bind`](crate::Listener::bind) binds later. Call it once, before any thread is
/// started: it removes environment variables, so that child processes do not claim the sockets.
/// Sockets that are not TCP listeners are left alone.
pub fn adopt_sockets() {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let found = (0..passed.len()).filter_map(|index| {
        let socket = passed.take_tcp_listener(index).ok().flatten()?;
        Some(Inherited {
            name: names.split(':').nth(index).unwrap_or_default().to_owned(),
            addr: socket.local_addr().ok()?,
            socket,
        })
    });
    let found: Vec<_> = found.collect();
    sockets().extend(found);
}

/// The sockets that no port has taken, by name and address.
pub fn unused_sockets() -> Vec<(String, SocketAddr)> {
    let sockets = sockets();
    sockets.iter().map(|it| (it.name.clone(), it.addr)).collect()
}

/// The socket for this port, if there is one.
pub(crate) fn take(name: &'static str, addr: SocketAddr) -> Result<Option<TcpListener>> {
    choose(&mut sockets(), name, addr)
}

fn choose(sockets: &mut Vec<Inherited>, name: &'static str, addr: SocketAddr) -> Result<Option<TcpListener>> {
    let named = || sockets.iter().enumerate().filter(|(_, it)| it.name == name);
    if let Some((index, _)) = named().find(|(_, it)| it.addr == addr) {
        return Ok(Some(sockets.swap_remove(index).socket));
    }
    match named().next() {
        Some((_, other)) => Err(Error::Inherited {
            name,
            addr,
            found: other.addr,
        }),
        None => Ok(None),
    }
}

/// Locks the list. A poisoned lock is usable: a panic never leaves the list half changed.
fn sockets() -> std::sync::MutexGuard<'static, Vec<Inherited>> {
    SOCKETS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(name: &str) -> Inherited {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
        Inherited {
            name: name.to_owned(),
            addr: socket.local_addr().expect("an address"),
            socket,
        }
    }

    #[test]
    fn a_port_takes_the_socket_with_its_name_and_address() {
        let mut sockets = vec![inherited("admin"), inherited("apps"), inherited("apps")];
        let addr = sockets[2].addr;
        let taken = choose(&mut sockets, "apps", addr)
            .expect("no error")
            .expect("a socket");
        assert_eq!(taken.local_addr().expect("an address"), addr);
        assert_eq!(sockets.len(), 2);
        let none = choose(&mut sockets, "workflow", addr).expect("no error");
        assert!(none.is_none());
    }

    #[test]
    fn a_socket_with_another_address_than_the_settings_is_an_error() {
        let mut sockets = vec![inherited("apps")];
        let found = sockets[0].addr;
        let error = choose(&mut sockets, "apps", ([0, 0, 0, 0], 80).into()).expect_err("refused");
        let text = error.to_string();
        assert!(
            text.contains(&found.to_string()) && text.contains("0.0.0.0:80"),
            "{text}"
        );
    }
}
