//! Any bytes as a DNS packet: never a panic, never an answer above the size limit, and equal
//! answers of the fast path and the handler. Findings are kept in `corpus/packets`, which a test of
//! the crate replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| transom_discovery::dns::fuzzing::any_packet(packet));
