//! Handles any bytes as a DNS packet: no panic, no answer above the size limit, and equal answers
//! from the fast path and the handler. Findings are kept in `corpus/packets`, which a test of the
//! crate replays.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| transom_discovery::dns::fuzzing::any_packet(packet));
