//! Checks before the first instance that a component fits into the instance pool and its own
//! limits.
//!
//! The engine does not load a component that exceeds its pool. The component is then loaded in an
//! engine without a pool and its requirements are read from there, so that the error names the
//! limit. For requirements that only the engine counts (core instances, their sizes) the error
//! quotes the engine.

use wasmtime::{Config as EngineConfig, Engine as Wasmtime, component::Component};

use super::{Compiled, CompiledArtifact, common_config};
use crate::manifest::limits::{Limits, MAX_MEMORY, MAX_TABLE};

/// Maximum memories of a component.
pub(super) const MAX_MEMORIES: u32 = 1;
/// Maximum tables of a component.
pub(super) const MAX_TABLES: u32 = 4;
/// Maximum core instances of a component: Python needs 14, most have 1 to 4.
pub(super) const MAX_CORE_INSTANCES: u32 = 32;
/// Maximum bytes of the engine's data for a core instance.
pub(super) const MAX_CORE_INSTANCE_SIZE: usize = 1 << 20;
/// Maximum bytes of the engine's data for all core instances of a component.
pub(super) const MAX_COMPONENT_INSTANCE_SIZE: usize = 1 << 20;

/// Bytes of a page of linear memory.
const PAGE_BYTES: u64 = 64 << 10;

/// The exceeded limit. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExceedsPool {
    #[error("it has {found} memories, a plugin may have {MAX_MEMORIES}")]
    Memories { found: u32 },
    #[error("it starts with {found} bytes of memory, {limit} are allowed (limits.memory)")]
    Memory { found: u64, limit: u64 },
    #[error("it has {found} tables, a plugin may have {MAX_TABLES}")]
    Tables { found: u32 },
    #[error("it starts with a table of {found} elements, {limit} are allowed (limits.table)")]
    Table { found: u64, limit: u64 },
    #[error("it does not fit into the pool of instances: {0}")]
    Pool(String),
    #[error(
        "it instantiates core modules that it imports, so its resources cannot be checked before it starts"
    )]
    Unknown,
}

/// The initial resources of a component.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    memories: u32,
    /// Bytes of the largest memory.
    memory: u64,
    tables: u32,
    /// Elements of the largest table.
    table: u64,
}

impl Needs {
    fn of(component: &Component) -> Option<Needs> {
        let needs = component.resources_required()?;
        Some(Needs {
            memories: needs.num_memories,
            memory: needs
                .max_initial_memory_size
                .unwrap_or(0)
                .saturating_mul(PAGE_BYTES),
            tables: needs.num_tables,
            table: needs.max_initial_table_size.unwrap_or(0),
        })
    }

    /// Compares the needs with the limits of bytes of memory and elements of a table.
    fn fit(self, memory: u64, table: u64) -> Result<(), ExceedsPool> {
        if self.memories > MAX_MEMORIES {
            return Err(ExceedsPool::Memories { found: self.memories });
        }
        if self.memory > memory {
            return Err(ExceedsPool::Memory {
                found: self.memory,
                limit: memory,
            });
        }
        if self.tables > MAX_TABLES {
            return Err(ExceedsPool::Tables { found: self.tables });
        }
        if self.table > table {
            return Err(ExceedsPool::Table {
                found: self.table,
                limit: table,
            });
        }
        Ok(())
    }
}

impl Compiled {
    /// Checks that instances of the component can start within these limits.
    pub(crate) fn fits(&self, limits: &Limits) -> Result<(), ExceedsPool> {
        let needs = Needs::of(&self.0).ok_or(ExceedsPool::Unknown)?;
        needs.fit(limits.memory, limits.table)
    }
}

/// Returns the limit of the pool that the code exceeds. `message` is the engine's error. None if the
/// code does not load without a pool either.
pub(super) fn too_large(
    artifact: &CompiledArtifact,
    load: LoadComponent,
    message: &str,
) -> Option<ExceedsPool> {
    let mut config = EngineConfig::new();
    let engine = Wasmtime::new(common_config(&mut config)).ok()?;
    let component = load(&engine, artifact).ok()?;
    let Some(needs) = Needs::of(&component) else {
        return Some(ExceedsPool::Unknown);
    };
    let exceeded = needs.fit(MAX_MEMORY, MAX_TABLE).err();
    Some(exceeded.unwrap_or_else(|| ExceedsPool::Pool(message.to_owned())))
}

/// Loads compiled code.
pub(super) type LoadComponent = fn(&Wasmtime, &CompiledArtifact) -> wasmtime::Result<Component>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::engine::{CompileError, CompiledArtifact, Engine};

    /// An unsigned number in the encoding of WebAssembly (LEB128).
    fn number(mut value: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [&[id][..], &number(content.len() as u32), content].concat()
    }

    /// A list with `count` copies of `entry`.
    fn list(count: u32, entry: &[u8]) -> Vec<u8> {
        [number(count), entry.repeat(count as usize)].concat()
    }

    /// A component with `instances` instances of a core module with these sections.
    fn component(sections: &[Vec<u8>], instances: u32) -> Vec<u8> {
        let module = [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat();
        [
            b"\0asm\x0d\0\x01\0".to_vec(),
            section(1, &module),
            section(2, &list(instances, &[0, 0, 0])),
        ]
        .concat()
    }

    fn memories(count: u32, pages: u32) -> Vec<u8> {
        section(5, &list(count, &[&[0][..], &number(pages)].concat()))
    }

    fn tables(count: u32, elements: u32) -> Vec<u8> {
        section(4, &list(count, &[&[0x70, 0][..], &number(elements)].concat()))
    }

    /// Mutable globals, each of which takes 16 bytes in the engine.
    fn globals(count: u32) -> Vec<u8> {
        section(6, &list(count, &[0x7f, 1, 0x41, 0, 0x0b]))
    }

    fn verdict(engine: &Engine, component: &[u8], limits: &Limits) -> Result<(), String> {
        let artifact = Engine::precompile(component).unwrap();
        match engine.load(&artifact) {
            Ok(compiled) => compiled.fits(limits).map_err(|exceeded| exceeded.to_string()),
            Err(CompileError::ExceedsPool(exceeded)) => Err(exceeded.to_string()),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn exceeded_limit_is_named() {
        let engine = Engine::new(1).unwrap();
        let limits = Limits {
            memory: 2 * PAGE_BYTES,
            table: 10,
            ..Limits::default()
        };
        for (sections, instances, expected) in [
            (vec![tables(4, 10), memories(1, 2), globals(10)], 1, None),
            (vec![], 32, None),
            (
                vec![memories(2, 1)],
                1,
                Some("it has 2 memories, a plugin may have 1"),
            ),
            (
                vec![memories(1, 3)],
                1,
                Some("it starts with 196608 bytes of memory, 131072 are allowed (limits.memory)"),
            ),
            // More than a slot of the pool has.
            (
                vec![memories(1, 8193)],
                1,
                Some("it starts with 536936448 bytes of memory, 536870912 are allowed (limits.memory)"),
            ),
            (
                vec![tables(5, 1)],
                1,
                Some("it has 5 tables, a plugin may have 4"),
            ),
            (
                vec![tables(1, 1)],
                5,
                Some("it has 5 tables, a plugin may have 4"),
            ),
            (
                vec![tables(1, 11)],
                1,
                Some("it starts with a table of 11 elements, 10 are allowed (limits.table)"),
            ),
            (
                vec![tables(1, 50_001)],
                1,
                Some("it starts with a table of 50001 elements, 50000 are allowed (limits.table)"),
            ),
            (
                vec![],
                33,
                Some(
                    "it does not fit into the pool of instances: The component transitively contains 33 core module \
                     instances, which exceeds the configured maximum of 32",
                ),
            ),
            (
                vec![globals(70_000)],
                1,
                Some(
                    "it does not fit into the pool of instances: instance allocation for this module requires",
                ),
            ),
            (
                vec![globals(20_000)],
                4,
                Some(
                    "it does not fit into the pool of instances: instance allocation for this component requires",
                ),
            ),
        ] {
            let found = verdict(&engine, &component(&sections, instances), &limits);
            match (&found, expected) {
                (Ok(()), None) => {}
                (Err(message), Some(expected)) if message.starts_with(expected) => {}
                _ => panic!("{found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn garbage_is_reported_as_invalid_and_not_as_too_large() {
        let engine = Engine::new(1).unwrap();
        let error = engine.load(&CompiledArtifact::garbage()).err().unwrap();
        assert!(matches!(error, CompileError::Invalid(_)), "{error}");
    }
}
