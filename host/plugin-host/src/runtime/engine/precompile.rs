//! Compiles a component on the current thread and on the compiler's threads.

use transom_common::text::one_line;
use wasmtime::{Config as EngineConfig, Engine as Wasmtime};

use super::{CompileError, CompiledArtifact, common_config};

/// Creates an engine that compiles code for the serving engine.
pub(super) fn compiling_engine() -> Result<Wasmtime, CompileError> {
    let mut config = EngineConfig::new();
    common_config(&mut config);
    Wasmtime::new(&config).map_err(|error| CompileError::Invalid(one_line(&format!("{error:#}"))))
}

/// Compiles in a separate engine, whose memory is freed afterwards. Blocks for milliseconds to
/// minutes.
pub(crate) fn precompile(component: &[u8]) -> Result<CompiledArtifact, CompileError> {
    compiling_engine()?
        .precompile_component(component)
        .map(CompiledArtifact)
        .map_err(|error| CompileError::Invalid(one_line(&format!("{error:#}"))))
}
