//! Proxies between servers, on which bytes can wait.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The ways from one server to another, on which bytes wait while they are cut.
#[derive(Debug, Default)]
pub(crate) struct Proxies(watch::Sender<BTreeSet<(usize, usize)>>);

impl Proxies {
    /// A proxy on the way from one to another, in front of a port; it ends with the test's runtime.
    pub(crate) async fn proxy(&self, (from, to): (usize, usize), port: u16) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = self.0.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let cut = cut.clone();
                tokio::spawn(async move {
                    // Without a listener there, the connection of the caller ends.
                    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                        return;
                    };
                    let _ = (near.set_nodelay(true), far.set_nodelay(true));
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::select! {
                        () = pass(near_in, far_out, (from, to), cut.clone()) => {}
                        () = pass(far_in, near_out, (to, from), cut) => {}
                    }
                });
            }
        });
        address
    }

    /// Lets bytes from one to another one wait.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        self.0.send_modify(|cut| {
            cut.insert((from, to));
        });
    }

    /// Lets all bytes pass again.
    pub(crate) fn heal(&self) {
        self.0.send_modify(BTreeSet::clear);
    }
}

/// Passes bytes on until the connection ends.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: (usize, usize),
    mut cut: watch::Receiver<BTreeSet<(usize, usize)>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if cut.wait_for(|cut| !cut.contains(&way)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    // The end of a connection does not pass either.
    let _ = cut.wait_for(|cut| !cut.contains(&way)).await;
}
