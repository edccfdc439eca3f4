//! Which connections a port keeps when it has its maximum: pure rules, without clock and sockets.
//!
//! A connection is idle until its first request is complete and between two requests, otherwise
//! busy. When the table is full, a new connection replaces another one:
//!
//! 1. an idle one of a network that has a quarter of the port or more,
//! 2. an idle one of another network,
//! 3. a busy one of the network that has more than half of the port.
//!
//! Of several, one without a successful authenticated request goes first, then one of the network
//! and the address with the most connections, then the one that has been idle longest. A network
//! with a quarter of the port replaces only connections by rule 1, so it never displaces others
//! than such networks; if there is none, its new connection has to wait.
//!
//! So a flood from one network replaces its own connections, and a client elsewhere always gets in.
//! A client in the same network gets in too, and keeps its connection until as many newer ones have
//! come as the port has room for.

#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::Network;

/// Identifies a connection. Ids are never used again.
pub(super) type Id = u64;

/// The queue in which a connection waits to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Idle, without a successful authenticated request.
    Unknown,
    /// Idle, after one.
    Known,
    Busy,
}

#[derive(Debug)]
struct Connection<T> {
    client: IpAddr,
    class: Class,
    is_known: bool,
    /// Its position in its queue.
    position: u64,
    payload: T,
}

/// The connections of an address.
#[derive(Debug)]
struct Address {
    network: Network,
    count: usize,
    /// For each [`Class`] the connections by the order in which they entered it.
    queues: [BTreeMap<u64, Id>; 3],
}

/// A connection that has to be closed, because another one takes its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evicted<T> {
    /// Its client.
    pub(super) client: IpAddr,
    /// What was inserted with it.
    pub(super) payload: T,
}

/// The open connections of a port, each with a payload.
#[derive(Debug)]
pub(super) struct ConnectionTable<T> {
    max: usize,
    /// The next id, and the next position in a queue.
    next: u64,
    connections: HashMap<Id, Connection<T>>,
    addresses: HashMap<IpAddr, Address>,
    networks: HashMap<Network, usize>,
}

impl<T> ConnectionTable<T> {
    /// A table for at most `max` connections.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            next: 0,
            connections: HashMap::new(),
            addresses: HashMap::new(),
            networks: HashMap::new(),
        }
    }

    /// The number of open connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether a new connection replaces another one.
    pub(super) fn is_full(&self) -> bool {
        self.connections.len() >= self.max
    }

    /// The network with the most connections, and their number.
    pub(super) fn largest(&self) -> Option<(Network, usize)> {
        let counts = self.networks.iter().map(|(network, count)| (*network, *count));
        counts.max_by_key(|(_, count)| *count)
    }

    /// Adds an idle connection. If the table is full, the result contains the one that it replaces;
    /// `None` if no other connection has to make room for it.
    pub(super) fn insert(&mut self, client: IpAddr, payload: T) -> Option<(Id, Option<Evicted<T>>)> {
        let client = client.to_canonical();
        let mut evicted = None;
        if self.is_full() {
            let victim = self.victim(Network::of(client))?;
            evicted = self.remove(victim);
        }
        let id = self.next();
        let connection = Connection {
            client,
            class: Class::Unknown,
            is_known: false,
            position: 0,
            payload,
        };
        let network = Network::of(client);
        *self.networks.entry(network).or_default() += 1;
        let address = self.addresses.entry(client).or_insert_with(|| Address {
            network,
            count: 0,
            queues: Default::default(),
        });
        address.count += 1;
        self.connections.insert(id, connection);
        self.enter(id, Class::Unknown);
        Some((id, evicted))
    }

    /// Removes the idle connection that would be replaced next, for a port that lacks resources.
    pub(super) fn evict(&mut self) -> Option<Evicted<T>> {
        let victim = self.idle_victim()?.1;
        self.remove(victim)
    }

    /// Marks a connection busy: a request has arrived.
    pub(super) fn begin(&mut self, id: Id) {
        self.enter(id, Class::Busy);
    }

    /// Marks a connection idle: its response has been written.
    pub(super) fn end(&mut self, id: Id) {
        let is_known = self.connections.get(&id).is_some_and(|it| it.is_known);
        self.enter(id, if is_known { Class::Known } else { Class::Unknown });
    }

    /// Marks that a request of this connection had valid credentials.
    pub(super) fn authenticated(&mut self, id: Id) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_known = true;
            if connection.class == Class::Unknown {
                self.enter(id, Class::Known);
            }
        }
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&mut self, id: Id) -> Option<Evicted<T>> {
        let connection = self.connections.remove(&id)?;
        let client = connection.client;
        if let Some(address) = self.addresses.get_mut(&client) {
            address.queues[connection.class as usize].remove(&connection.position);
            address.count -= 1;
            if let Some(count) = self.networks.get_mut(&address.network) {
                *count -= 1;
                if *count == 0 {
                    self.networks.remove(&address.network);
                }
            }
            if address.count == 0 {
                self.addresses.remove(&client);
            }
        }
        Some(Evicted {
            client,
            payload: connection.payload,
        })
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Moves a connection to the end of a queue.
    fn enter(&mut self, id: Id, class: Class) {
        let position = self.next();
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(address) = self.addresses.get_mut(&connection.client) else {
            return;
        };
        address.queues[connection.class as usize].remove(&connection.position);
        address.queues[class as usize].insert(position, id);
        (connection.class, connection.position) = (class, position);
    }

    fn count_of(&self, network: Network) -> usize {
        self.networks.get(&network).copied().unwrap_or_default()
    }

    /// Whether a network has a quarter of the port.
    fn has_share(&self, network: Network) -> bool {
        self.count_of(network) >= (self.max / 4).max(1)
    }

    fn victim(&self, newcomer: Network) -> Option<Id> {
        let is_light = !self.has_share(newcomer);
        match self.idle_victim() {
            Some((network, id)) if is_light || self.has_share(network) => Some(id),
            _ if is_light => self.busy_victim(),
            _ => None,
        }
    }

    fn idle_victim(&self) -> Option<(Network, Id)> {
        let idle = self.addresses.values().flat_map(|address| {
            [Class::Unknown, Class::Known]
                .into_iter()
                .filter_map(move |class| {
                    let (position, id) = address.queues[class as usize].first_key_value()?;
                    let rank = (
                        self.has_share(address.network),
                        class == Class::Unknown,
                        self.count_of(address.network),
                        address.count,
                        Reverse(*position),
                    );
                    Some((rank, (address.network, *id)))
                })
        });
        idle.max_by_key(|(rank, _)| *rank).map(|(_, found)| found)
    }

    fn busy_victim(&self) -> Option<Id> {
        let (largest, count) = self.largest()?;
        if count <= self.max / 2 {
            return None;
        }
        let addresses = self.addresses.values().filter(|it| it.network == largest);
        let oldest = addresses.filter_map(|it| it.queues[Class::Busy as usize].first_key_value());
        oldest.min_by_key(|(position, _)| **position).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A table whose connections are named by text. Each step of a script is one word: `+name@address`
    /// adds a connection, and fails if it is rejected; `!name@address` is rejected; `name>` is busy,
    /// `name<` is idle again, `name*` is authenticated, `-name` has ended.
    struct Script {
        table: ConnectionTable<String>,
        ids: HashMap<String, Id>,
    }

    impl Script {
        fn of(max: usize) -> Self {
            Self {
                table: ConnectionTable::new(max),
                ids: HashMap::new(),
            }
        }

        /// Runs steps and returns the evicted connections.
        fn run(&mut self, steps: &str) -> Vec<String> {
            let mut evicted = Vec::new();
            for step in steps.split_whitespace() {
                if let Some(added) = step.strip_prefix('+') {
                    let (name, client) = added.split_once('@').unwrap();
                    let (id, out) = self.table.insert(ip(client), name.to_owned()).expect(step);
                    self.ids.insert(name.to_owned(), id);
                    evicted.extend(out.map(|out| out.payload));
                } else if let Some(rejected) = step.strip_prefix('!') {
                    let (name, client) = rejected.split_once('@').unwrap();
                    assert!(self.table.insert(ip(client), name.to_owned()).is_none(), "{step}");
                } else if let Some(name) = step.strip_prefix('-') {
                    assert!(self.table.remove(self.ids[name]).is_some(), "{step}");
                } else {
                    let (name, change) = step.split_at(step.len() - 1);
                    let id = self.ids[name];
                    match change {
                        ">" => self.table.begin(id),
                        "<" => self.table.end(id),
                        _ => self.table.authenticated(id),
                    }
                }
                assert!(self.table.len() <= self.table.max);
            }
            evicted
        }
    }

    #[test]
    fn the_connection_that_makes_room_is_chosen_by_the_rules() {
        for (max, steps, expected) in [
            // There is room.
            (
                4,
                "+a@10.0.0.1 +b@10.0.0.1 -a +c@10.0.0.1 +d@10.0.0.1 +e@10.0.0.1",
                "",
            ),
            // The oldest idle one of the same address goes first.
            (
                3,
                "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 +d@10.0.0.1 +e@10.0.0.1",
                "a b",
            ),
            // A request makes a connection younger.
            (3, "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 a> a< +d@10.0.0.1", "b"),
            // Busy ones are kept.
            (3, "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 a> b> +d@10.0.0.1", "c"),
            // Authenticated ones are kept longer, also if they were authenticated while busy.
            (
                3,
                "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 a* b> b* b< +d@10.0.0.1 +e@10.0.0.1",
                "c d",
            ),
            (2, "+a@10.0.0.1 +b@10.0.0.1 a* b* +c@10.0.0.1", "a"),
            // The network with the most connections, in it the address with the most.
            (
                4,
                "+a@10.0.0.1 +b@10.0.1.1 +c@10.0.1.2 +d@10.0.1.2 +e@10.0.2.1",
                "c",
            ),
            (
                4,
                "+a@2001:db8::1 +b@2001:db8:0:1::1 +c@2001:db8:0:1::2 +d@2001:db8:0:1::2 +e@10.0.0.1",
                "c",
            ),
            // Outside of networks with a quarter of the port, those without credentials go first.
            (
                8,
                "+a@10.0.0.1 +b@10.0.1.1 +c@10.0.2.1 +d@10.0.3.1 +e@10.0.4.1 +f@10.0.5.1 +g@10.0.6.1 \
                 +h@10.0.7.1 a* b* +i@10.0.8.1",
                "c",
            ),
            // A network with a quarter goes before them, with credentials or without.
            (
                8,
                "+a@10.0.0.1 +b@10.0.0.2 +c@10.0.0.3 a* b* c* +d@10.0.3.1 +e@10.0.4.1 +f@10.0.5.1 \
                 +g@10.0.6.1 +h@10.0.7.1 +i@10.0.8.1",
                "a",
            ),
            // Busy ones only of a network with more than half of the port.
            (
                4,
                "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 +d@10.0.1.1 a> b> c> d> +e@10.0.2.1",
                "a",
            ),
            (
                4,
                "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.1.1 +d@10.0.1.1 a> b> c> d> !e@10.0.2.1",
                "",
            ),
            // A network with a quarter of the port displaces no others, and no busy ones.
            (
                8,
                "+a@10.0.0.1 +b@10.0.0.1 +c@10.0.0.1 +d@10.0.0.1 +e@10.0.0.1 +f@10.0.0.1 +g@10.0.0.1 \
                 +h@10.0.1.1 a> b> c> d> e> f> g> !i@10.0.0.2 +j@10.0.2.1",
                "h",
            ),
        ] {
            assert_eq!(Script::of(max).run(steps).join(" "), expected, "{max}: {steps}");
        }
    }

    #[test]
    fn a_flood_displaces_itself_and_a_client_stays_for_as_many_connections_as_the_port_has() {
        for client in ["10.0.0.1", "10.0.0.2", "192.0.2.1"] {
            let mut script = Script::of(100);
            for number in 0..150 {
                script.run(&format!("+f{number}@10.0.0.1"));
            }
            assert_ne!(script.run(&format!("+client@{client}")), ["client"]);
            for number in 0..99 {
                let evicted = script.run(&format!("+g{number}@10.0.0.1"));
                assert!(evicted[0].starts_with('f'), "{client}: {evicted:?}");
            }
            script.run("client> client* client<");
            for number in 0..1000 {
                let evicted = script.run(&format!("+h{number}@10.0.0.1"));
                assert_ne!(evicted, ["client"]);
            }
        }
    }

    #[test]
    fn counts_of_ended_connections_are_forgotten() {
        let mut script = Script::of(4);
        script.run("+a@10.0.0.1 +b@10.0.0.2 +c@10.0.1.1 a> b*");
        assert_eq!(script.table.largest().unwrap().1, 2);
        script.run("-a -b -c");
        assert!(script.table.connections.is_empty());
        assert_eq!(script.table.largest(), None);
        assert!(script.table.addresses.is_empty());
        // Changes of a connection that has ended change nothing.
        script.run("a> a* a<");
        assert!(script.table.connections.is_empty());
        assert_eq!(script.table.evict(), None);
        script.run("+d@10.0.0.1 +e@10.0.0.1");
        assert_eq!(script.table.evict().unwrap().payload, "d");
    }
}
