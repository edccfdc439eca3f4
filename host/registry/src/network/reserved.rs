//! Destinations of the daemon itself: its own ports, its state store and its masters.
//!
//! Neither a plugin's broad network grant nor a registry's redirect reaches them; only a
//! destination that names exactly the address and port does. A listener on all addresses is guarded
//! on every address of this machine. Servers that are configured by name are resolved when a
//! connection to their port is checked; while a name does not resolve, its last known addresses are
//! guarded.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    guard::{Guard, embedded},
    resolver::Resolver,
};

/// Host and port of a server.
pub type Server = (String, u16);

/// Returns the servers of one kind that are known now.
type FindServers = Arc<dyn Fn() -> Vec<Server> + Send + Sync>;

/// The daemon's own destinations. Cheap to clone; clones share them, and the daemon may add to them
/// while the plugin host runs.
#[derive(Clone, Default)]
pub struct Reserved(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listeners: Vec<(String, SocketAddr)>,
    servers: Vec<(String, FindServers)>,
    /// The last known addresses of servers, by name.
    last_addresses: HashMap<String, Vec<IpAddr>>,
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let servers: Vec<&String> = state.servers.iter().map(|(what, _)| what).collect();
        f.debug_struct("Reserved")
            .field("listeners", &state.listeners)
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

impl Reserved {
    /// Adds an address on which the daemon listens. `what` names the port in messages: "the admin
    /// port of this daemon".
    pub fn listener(&self, what: &str, address: SocketAddr) {
        self.state().listeners.push((what.to_owned(), address));
    }

    /// Adds servers on which the daemon depends. `find` returns them; it is called whenever a
    /// connection is checked.
    pub fn servers(&self, what: &str, find: impl Fn() -> Vec<Server> + Send + Sync + 'static) {
        self.state().servers.push((what.to_owned(), Arc::new(find)));
    }

    /// The guard of this address and port, if any.
    pub async fn guard(&self, ip: IpAddr, port: u16, names: &dyn Resolver) -> Option<Guard> {
        let mut addresses = vec![ip.to_canonical()];
        if let IpAddr::V6(v6) = ip.to_canonical() {
            addresses.extend(embedded(v6).map(IpAddr::V4));
        }
        for address in addresses {
            if let Some(what) = self.name_of_owner(address, port, names).await {
                return Some(Guard::Daemon(what));
            }
        }
        Guard::of_address(ip)
    }

    async fn name_of_owner(&self, ip: IpAddr, port: u16, names: &dyn Resolver) -> Option<String> {
        let (listeners, servers) = {
            let state = self.state();
            let listeners: Vec<_> = state
                .listeners
                .iter()
                .filter(|it| it.1.port() == port)
                .cloned()
                .collect();
            (listeners, state.servers.clone())
        };
        for (what, address) in listeners {
            let own = address.ip().to_canonical();
            if own == ip || (own.is_unspecified() && is_of_this_machine(ip)) {
                return Some(what);
            }
        }
        for (what, find) in servers {
            for (host, _) in find().into_iter().filter(|(_, its)| *its == port) {
                let addresses = self.resolve(&host, names).await;
                if addresses.iter().any(|own| own.to_canonical() == ip) {
                    return Some(what);
                }
            }
        }
        None
    }

    async fn resolve(&self, host: &str, names: &dyn Resolver) -> Vec<IpAddr> {
        let host = host.trim_matches(['[', ']']);
        if let Ok(ip) = host.parse() {
            return vec![ip];
        }
        match names.addresses(host).await {
            Ok(found) => {
                self.state().last_addresses.insert(host.to_owned(), found.clone());
                found
            }
            Err(_) => self.state().last_addresses.get(host).cloned().unwrap_or_default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the address belongs to this machine, which is tested by binding a socket to it. Where
/// the system allows binding to any address (`ip_nonlocal_bind`), all addresses count.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use async_trait::async_trait;

    use super::*;
    use crate::network::LookupError;

    /// Resolves one name, unless `is_unavailable` is set.
    #[derive(Default)]
    struct OneName {
        is_unavailable: AtomicBool,
    }

    #[async_trait]
    impl Resolver for OneName {
        async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
            if host == "store.test" && !self.is_unavailable.load(Relaxed) {
                Ok(vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()])
            } else {
                Err(LookupError::Unresolved)
            }
        }
    }

    #[tokio::test]
    async fn ports_and_servers_of_the_daemon_are_guarded_with_their_name() {
        let reserved = Reserved::default();
        reserved.listener("admin", "10.0.0.1:8081".parse().unwrap());
        reserved.listener("dns", "0.0.0.0:53".parse().unwrap());
        reserved.listener("apps", "[::]:8080".parse().unwrap());
        reserved.servers("store", || vec![("store.test".to_owned(), 6379)]);
        let masters: Arc<Mutex<Vec<Server>>> = Arc::new(Mutex::new(vec![("10.0.0.7".to_owned(), 5050)]));
        let now = Arc::clone(&masters);
        reserved.servers("master", move || now.lock().unwrap().clone());
        let names = OneName::default();
        let daemon = |what: &str| Some(Guard::Daemon(what.to_owned()));
        for (ip, port, expected) in [
            ("10.0.0.1", 8081, daemon("admin")),
            ("::ffff:10.0.0.1", 8081, daemon("admin")),
            ("64:ff9b::a00:1", 8081, daemon("admin")),
            ("10.0.0.1", 8082, None),
            ("10.0.0.2", 8081, None),
            // A port on all addresses is guarded on every address of this machine, and on no other
            // machine.
            ("127.0.0.1", 53, daemon("dns")),
            ("127.8.8.8", 53, daemon("dns")),
            ("::1", 8080, daemon("apps")),
            ("192.0.2.1", 53, None),
            ("192.0.2.1", 8080, None),
            ("10.0.0.5", 6379, daemon("store")),
            ("fd00::5", 6379, daemon("store")),
            ("10.0.0.6", 6379, None),
            ("10.0.0.7", 5050, daemon("master")),
            ("127.0.0.1", 80, Some(Guard::Loopback)),
            ("169.254.169.254", 80, Some(Guard::LinkLocal)),
        ] {
            let found = reserved.guard(ip.parse().unwrap(), port, &names).await;
            assert_eq!(found, expected, "{ip}:{port}");
        }
        // The set of masters changes.
        *masters.lock().unwrap() = vec![("10.0.0.8".to_owned(), 5050)];
        let at = |ip: &str| reserved.guard(ip.parse().unwrap(), 5050, &names);
        let found = (at("10.0.0.7").await, at("10.0.0.8").await);
        assert_eq!(found, (None, daemon("master")));
        // While the name server is unreachable, the last addresses stay guarded.
        names.is_unavailable.store(true, Relaxed);
        let found = reserved.guard("10.0.0.5".parse().unwrap(), 6379, &names).await;
        assert_eq!(found, daemon("store"));
    }

    #[test]
    fn addresses_of_this_machine_are_recognized() {
        for (ip, own) in [
            ("127.0.0.1", true),
            ("127.1.2.3", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_of_this_machine(ip.parse().unwrap()), own, "{ip}");
        }
    }
}
