//! Components as files: read where the build left them, changed, and put into a daemon's directory by rename.

use std::fs;
use std::path::Path;

use crate::process::components;

/// A component and its manifest, not yet installed.
#[derive(Clone, Debug)]
pub struct Plugin {
    pub wasm: Vec<u8>,
    pub manifest: String,
}

impl Plugin {
    /// A first-party component.
    pub fn first_party(name: &str) -> Plugin {
        Plugin::read(&components(), name)
    }

    /// One of `tests/guests`.
    pub fn odd(name: &str) -> Plugin {
        Plugin::read(&components().join("tests"), name)
    }

    /// One of `examples/plugins`.
    pub fn example(name: &str) -> Plugin {
        Plugin::read(&components().join("examples"), name)
    }

    fn read(dir: &Path, name: &str) -> Plugin {
        let path = |extension: &str| dir.join(format!("{name}.{extension}"));
        let wasm =
            fs::read(path("wasm")).unwrap_or_else(|error| panic!("{}: {error}", path("wasm").display()));
        let manifest = fs::read_to_string(path("toml")).expect("a manifest");
        Plugin { wasm, manifest }
    }

    /// The same component with one more custom section: other bytes, other digest, same behaviour.
    pub fn stamped(&self, stamp: u64) -> Plugin {
        let mut wasm = self.wasm.clone();
        let content = stamp.to_le_bytes();
        let name = b"stamp";
        wasm.push(0);
        wasm.push(u8::try_from(1 + name.len() + content.len()).expect("short"));
        wasm.push(u8::try_from(name.len()).expect("short"));
        wasm.extend_from_slice(name);
        wasm.extend_from_slice(&content);
        Plugin {
            wasm,
            manifest: self.manifest.clone(),
        }
    }

    /// With another configuration, in TOML, in place of the manifest's own.
    pub fn config(mut self, table: &str) -> Plugin {
        if let Some(at) = self.manifest.find("[config]") {
            self.manifest.truncate(at);
        }
        self.manifest.push_str("\n[config]\n");
        self.manifest.push_str(table);
        self.manifest.push('\n');
        self
    }

    /// Puts both files in place, each by a rename.
    pub fn install(&self, dir: &Path, name: &str) {
        place(dir, &format!("{name}.toml"), self.manifest.as_bytes());
        place(dir, &format!("{name}.wasm"), &self.wasm);
    }
}

/// Takes a plugin away.
pub fn remove(dir: &Path, name: &str) {
    fs::remove_file(dir.join(format!("{name}.wasm"))).expect("removed");
}

fn place(dir: &Path, name: &str, bytes: &[u8]) {
    let aside = dir.join(format!(".{name}.aside"));
    fs::write(&aside, bytes).expect("written");
    fs::rename(&aside, dir.join(name)).expect("renamed");
}
