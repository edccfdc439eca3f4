//! What holds for packets of clients and resolvers, whatever is in them. For tests and the feature
//! `fuzzing` alone.
#![allow(clippy::expect_used, reason = "a failure is the answer")]

use super::query::Query;
use super::reply::{Reply, ReplyKind, SizeLimit};
use crate::dns::Transport;
use crate::dns::packet::{Layout, word};

/// What holds for a packet that a client or a resolver sends, whatever is in it: see
/// [`crate::dns::fuzzing`].
///
/// # Panics
/// When it does not hold.
pub(in crate::dns) fn any_packet(packet: &[u8]) {
    let mut queries = vec![Query::probe()];
    match Query::read(packet) {
        Ok(query) => {
            // A forwarded query can be parsed again, and has the same question.
            let sent = query.packet(7);
            let again = Query::read(&sent).expect("a query");
            assert!(again.question().eq_ignore_ascii_case(query.question()));
            queries.push(query);
        }
        Err(unreadable) => assert!(unreadable.answer().len() <= 512),
    }
    for query in queries {
        let id = word(packet, 0).unwrap_or_default();
        let ReplyKind::Reply(reply) = Reply::hear(&query, id, packet) else {
            continue;
        };
        let left = reply.lifetime(query.kind());
        for over in [Transport::Udp, Transport::Tcp] {
            let limit = query.limit(over);
            let given = reply.deliver(
                &query,
                left / 2,
                left / 2,
                SizeLimit {
                    bytes: limit,
                    set_truncate_bit: true,
                },
            );
            assert!(given.len() <= limit, "{} of {limit} bytes", given.len());
            assert!(Layout::read(&given).is_some(), "a reply that cannot be read");
        }
    }
}
