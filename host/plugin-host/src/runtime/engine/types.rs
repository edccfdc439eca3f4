//! Checks by name, before linking, that a component implements the world that its manifest names.

use transom_common::text::{clip, one_line};
use wasmtime::component::types::ComponentItem;

use super::{Compiled, Engine, guest::LOG};
use crate::worlds::WorldName;

/// Why a component does not implement its world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorldMismatch {
    #[error(
        "it imports `{0}`, which the host does not provide; allowed are transom:plugin/log@0.1.0 and WASI 0.2 (io, clocks, random, cli, filesystem, sockets)"
    )]
    ForbiddenImport(String),
    #[error("it does not export `{interface}`, which the world {world} requires{}", hint(.found))]
    MissingInterface {
        interface: &'static str,
        world: &'static str,
        found: Vec<String>,
    },
    #[error("its `{interface}` lacks `{item}`")]
    MissingItem {
        interface: &'static str,
        item: &'static str,
    },
}

fn hint(found: &[String]) -> String {
    match found {
        [] => "; it exports nothing".to_owned(),
        [shown @ .., _more] if shown.len() == MAX_SHOWN_EXPORTS => {
            format!("; it exports {} and more", shown.join(", "))
        }
        all => format!("; it exports {}", all.join(", ")),
    }
}

/// Maximum bytes of the name of an import, and of a shown name of an export. The component chooses
/// names of any length.
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of shown exports.
const MAX_SHOWN_EXPORTS: usize = 8;

fn shown_name(name: &str) -> String {
    one_line(&clip(name, MAX_NAME_BYTES))
}

const WASI: [&str; 6] = [
    "wasi:io/",
    "wasi:clocks/",
    "wasi:random/",
    "wasi:cli/",
    "wasi:filesystem/",
    "wasi:sockets/",
];
const ABOUT: (&str, &[&str]) = ("transom:plugin/about@0.1.0", &["describe", "configure"]);

fn extension_point(world: WorldName) -> (&'static str, &'static [&'static str]) {
    match world {
        WorldName::CheckProbe => (
            "transom:probe/probe@0.1.0",
            &["attempt", "[constructor]attempt", "[method]attempt.next"],
        ),
        WorldName::AttributeMatcher => (
            "transom:matcher/matcher@0.1.0",
            &[
                "validate",
                "agent-set",
                "[constructor]agent-set",
                "[method]agent-set.update",
                "[method]agent-set.evaluate",
                "[method]agent-set.place",
            ],
        ),
        WorldName::BootstrapHandler => ("transom:bootstrap/bootstrap@0.1.0", &["prepare"]),
        WorldName::EventFilter => (
            "transom:events/filter@0.1.0",
            &["view", "[static]view.open", "[method]view.decide"],
        ),
    }
}

/// Checks imports and exports by name, and returns the imports. The functions' types are checked when
/// the trial instance is created.
pub(crate) fn check_types(
    engine: &Engine,
    component: &Compiled,
    world: WorldName,
) -> Result<Vec<String>, WorldMismatch> {
    let engine = &engine.wasmtime;
    let ty = component.0.component_type();
    let imports: Vec<String> = ty.imports(engine).map(|(name, _)| name.to_owned()).collect();
    if let Some(name) = imports.iter().find(|name| !may_import(name)) {
        return Err(WorldMismatch::ForbiddenImport(shown_name(name)));
    }
    for (interface, items) in [extension_point(world), ABOUT] {
        let Some(ComponentItem::ComponentInstance(instance)) = ty.get_export(engine, interface).map(|e| e.ty)
        else {
            let exports = ty.exports(engine).take(MAX_SHOWN_EXPORTS + 1);
            let found = exports.map(|(name, _)| shown_name(name)).collect();
            return Err(WorldMismatch::MissingInterface {
                interface,
                world: world.short(),
                found,
            });
        };
        for item in items {
            if instance.get_export(engine, item).is_none() {
                return Err(WorldMismatch::MissingItem { interface, item });
            }
        }
    }
    Ok(imports)
}

fn may_import(name: &str) -> bool {
    name == LOG
        || name.len() <= MAX_NAME_BYTES
            && (WASI.iter().any(|package| name.starts_with(package))
                && name
                    .split_once('@')
                    .is_some_and(|(_, version)| version.starts_with("0.2.")))
}

#[cfg(test)]
mod tests {
    use super::may_import;

    #[test]
    fn only_known_interface_versions_may_be_imported() {
        for (name, allowed) in [
            ("transom:plugin/log@0.1.0", true),
            ("wasi:io/streams@0.2.9", true),
            ("wasi:cli/environment@0.2.0", true),
            ("wasi:http/outgoing-handler@0.2.0", false),
            ("wasi:io/streams@0.3.0", false),
            ("wasi:io/streams", false),
            ("transom:plugin/log@0.2.0", false),
            ("evil:network/raw", false),
        ] {
            assert_eq!(may_import(name), allowed, "{name}");
        }
    }
}
