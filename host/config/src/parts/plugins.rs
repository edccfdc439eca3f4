//! The configuration of the plugin host, from `[plugins]`.

use std::sync::Arc;
use std::time::Duration;

use super::registries;
use crate::Plugins;

/// The command with which the daemon starts itself to compile a component.
pub const COMPILE_COMMAND: [&str; 2] = ["plugin", "compile"];

/// Minimum wall-clock time after which a compilation is given up and retried.
const COMPILE_WALL_CLOCK: Duration = Duration::from_mins(5);

/// The configuration. `store`: the store of the admission records, and the prefix of their keys. Each daemon has its own
/// prefix, because it has its own plugin directory. `reserved`: addresses that neither probes nor
/// registry clients may connect to.
pub fn config(
    section: Plugins,
    store: Option<(Arc<dyn transom_store::Store>, String)>,
    reserved: transom_plugin_host::Reserved,
) -> anyhow::Result<transom_plugin_host::Config> {
    let bindings = section.bindings;
    let (store, prefix) = store.unzip();
    let recording = section.recording;
    let state_dir = section.state_dir.unwrap_or_else(|| section.dir.join(".transom"));
    let calls = recording.dir.unwrap_or_else(|| state_dir.join("calls"));
    Ok(transom_plugin_host::Config {
        recording: recording.enabled.then(|| transom_plugin_host::Recording {
            sample_percent: recording.sample_percent,
            max_size: recording.max_bytes,
            max_age: Duration::from_secs(recording.max_age_seconds),
            ..transom_plugin_host::Recording::new(calls)
        }),
        registries: registries::registries(&section.oci)?,
        signatures: registries::signatures(&section.signatures)?,
        reserved,
        store,
        prefix: prefix.unwrap_or_default(),
        bindings: transom_plugin_host::Bindings {
            matchers: bindings.matcher.names().to_vec(),
            filters: bindings.filter.names().to_vec(),
            bootstrap: bindings.bootstrap,
            http: bindings.http,
            tcp: bindings.tcp,
            exec: bindings.exec,
        },
        compile_timeout: Duration::from_secs(section.compile_timeout_seconds),
        compile_wall_clock: COMPILE_WALL_CLOCK.max(Duration::from_secs(section.compile_timeout_seconds * 10)),
        compiler: transom_plugin_host::Compiler::Process(transom_plugin_host::CompileProcess {
            program: "/proc/self/exe".into(),
            arguments: COMPILE_COMMAND.map(Into::into).to_vec(),
            memory: section.compile_memory_bytes,
        }),
        private: Some(state_dir),
        ..transom_plugin_host::Config::new(section.dir)
    })
}
