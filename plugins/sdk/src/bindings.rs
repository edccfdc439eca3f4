//! The generated bindings of all worlds; the other modules wrap them.

#![allow(
    missing_docs,
    unsafe_code,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]

wit_bindgen::generate!({
    path: [
        "wit/plugin/0.1.0",
        "wit/probe/0.1.0",
        "wit/matcher/0.1.0",
        "wit/events/0.1.0",
        "wit/bootstrap/0.1.0",
    ],
    inline: "
        package transom:sdk@0.1.0;
        world every-point {
            import transom:plugin/log@0.1.0;
            export transom:plugin/about@0.1.0;
            export transom:probe/probe@0.1.0;
            export transom:matcher/matcher@0.1.0;
            export transom:events/filter@0.1.0;
            export transom:bootstrap/bootstrap@0.1.0;
        }
    ",
    world: "transom:sdk/every-point",
    generate_all,
    additional_derives: [PartialEq],
    pub_export_macro: true,
});

/// The custom sections in which a component declares its world; see `build.rs`.
pub mod worlds {
    pub const PROBE: [u8; include_bytes!(concat!(env!("OUT_DIR"), "/probe")).len()] =
        *include_bytes!(concat!(env!("OUT_DIR"), "/probe"));
    pub const MATCHER: [u8; include_bytes!(concat!(env!("OUT_DIR"), "/matcher")).len()] =
        *include_bytes!(concat!(env!("OUT_DIR"), "/matcher"));
    pub const EVENTS: [u8; include_bytes!(concat!(env!("OUT_DIR"), "/events")).len()] =
        *include_bytes!(concat!(env!("OUT_DIR"), "/events"));
    pub const BOOTSTRAP: [u8; include_bytes!(concat!(env!("OUT_DIR"), "/bootstrap")).len()] =
        *include_bytes!(concat!(env!("OUT_DIR"), "/bootstrap"));
}
