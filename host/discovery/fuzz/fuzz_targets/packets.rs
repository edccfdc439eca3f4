//! Any bytes as a DNS packet: never a panic, never an answer larger than allowed, the same answer by the quick way as by the long
//! one. What is found is kept in `corpus/packets`, which a test of the crate goes through as well.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| transom_discovery::dns::fuzzing::any_packet(packet));
