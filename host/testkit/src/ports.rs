//! Ports that no process uses at the moment.

use std::net::{Ipv4Addr, TcpListener};

use rand::Rng;

/// A free port of the loopback interface. Another process may take it before it is used: where a
/// program can choose its port (port 0), let it choose.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// The first of `count` consecutive ports, free on all addresses and below the system's ephemeral
/// ports.
pub fn free_ports(count: u16) -> u16 {
    let mut random = rand::rng();
    for _ in 0..200 {
        let first: u16 = random.random_range(12_000..32_000 - count);
        let is_free = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        if (first..first + count).all(is_free) {
            return first;
        }
    }
    panic!("there are no {count} consecutive free ports");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_can_be_bound() {
        let _one = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
        let first = free_ports(20);
        let _last = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 19)).unwrap();
        assert!(first >= 12_000 && first + 19 < 32_768, "{first}");
    }
}
