//! The generated bindings of each world. These types are used only inside `engine`; `convert`
//! converts them to the crate's own.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated code"
)]

pub(super) mod probe {
    wasmtime::component::bindgen!({
        path: ["../../wit/plugin/0.1.0", "../../wit/probe/0.1.0"],
        world: "transom:probe/check-probe",
        exports: { default: async },
    });
}

pub(super) mod matcher {
    wasmtime::component::bindgen!({
        path: ["../../wit/plugin/0.1.0", "../../wit/matcher/0.1.0"],
        world: "transom:matcher/attribute-matcher",
        exports: { default: async },
        with: { "transom:plugin/log": super::probe::transom::plugin::log },
    });
}

pub(super) mod bootstrap {
    wasmtime::component::bindgen!({
        path: ["../../wit/plugin/0.1.0", "../../wit/bootstrap/0.1.0"],
        world: "transom:bootstrap/bootstrap-handler",
        exports: { default: async },
        with: { "transom:plugin/log": super::probe::transom::plugin::log },
    });
}

pub(super) mod events {
    wasmtime::component::bindgen!({
        path: ["../../wit/plugin/0.1.0", "../../wit/events/0.1.0"],
        world: "transom:events/event-filter",
        exports: { default: async },
        with: { "transom:plugin/log": super::probe::transom::plugin::log },
    });
}

pub(super) use probe::transom::plugin::log;
