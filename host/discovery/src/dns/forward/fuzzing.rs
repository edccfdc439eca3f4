//! Invariants for every packet of clients and resolvers, valid or not. Compiled for tests and the
//! feature `fuzzing` only.
#![allow(clippy::expect_used, reason = "a violation is a panic")]

use super::query::Query;
use super::reply::{Reply, ReplyKind, SizeLimit};
use crate::dns::Transport;
use crate::dns::packet::{Layout, word};

/// Handles a packet as a client's query and as a resolver's reply, and checks the invariants: see
/// [`crate::dns::fuzzing`].
///
/// # Panics
/// If an invariant is violated.
pub(in crate::dns) fn any_packet(packet: &[u8]) {
    let mut queries = vec![Query::probe()];
    match Query::read(packet) {
        Ok(query) => {
            // A forwarded query can be parsed again, and has the same question.
            let sent = query.packet(7);
            let reparsed = Query::read(&sent).expect("a forwarded query is valid");
            assert!(reparsed.question().eq_ignore_ascii_case(query.question()));
            queries.push(query);
        }
        Err(unreadable) => assert!(unreadable.answer().len() <= 512),
    }
    for query in queries {
        let id = word(packet, 0).unwrap_or_default();
        let ReplyKind::Reply(reply) = Reply::classify(&query, id, packet) else {
            continue;
        };
        let lifetime = reply.lifetime(query.kind());
        for transport in [Transport::Udp, Transport::Tcp] {
            let limit = query.max_reply_bytes(transport);
            let answer = reply.encode_for(
                &query,
                lifetime / 2,
                lifetime / 2,
                SizeLimit {
                    bytes: limit,
                    set_truncate_bit: true,
                },
            );
            assert!(answer.len() <= limit, "{} of {limit} bytes", answer.len());
            assert!(Layout::read(&answer).is_some(), "the delivered reply is invalid");
        }
    }
}
