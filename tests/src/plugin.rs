//! Components as files: read from the build, modified, and installed in a daemon's directory by
//! rename.

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
    /// A component of the project.
    pub fn first_party(name: &str) -> Plugin {
        Plugin::read(&components(), name)
    }

    /// A component of `tests/guests`.
    pub fn test_guest(name: &str) -> Plugin {
        Plugin::read(&components().join("tests"), name)
    }

    /// An example of `examples/plugins`.
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

    /// The same component with an additional custom section: the bytes and the digest change, the
    /// behaviour does not.
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

    /// A component with one core module that takes minutes to compile on any machine, and with this
    /// component's manifest.
    pub fn slow_to_compile(&self) -> Plugin {
        const FUNCTIONS: usize = 40_000;
        let section = |id: u8, content: &[u8]| [&[id][..], &leb128(content.len()), content].concat();
        // local.get 0, local.get 0, i32.mul, local.get 0, i32.add, local.set 0
        let work = [0x20, 0, 0x20, 0, 0x6c, 0x20, 0, 0x6a, 0x21, 0].repeat(50);
        let body = [&[0][..], &work, &[0x20, 0, 0x0b]].concat();
        let code = [leb128(body.len()), body].concat();
        let module = [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]),
            section(3, &[leb128(FUNCTIONS), vec![0; FUNCTIONS]].concat()),
            section(10, &[leb128(FUNCTIONS), code.repeat(FUNCTIONS)].concat()),
        ]
        .concat();
        Plugin {
            wasm: [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module)].concat(),
            manifest: self.manifest.clone(),
        }
    }

    /// Replaces bytes that occur exactly once by the same number of other bytes.
    pub fn patched(mut self, from: &[u8], to: &[u8]) -> Plugin {
        assert_eq!(from.len(), to.len());
        let positions: Vec<usize> = (0..self.wasm.len())
            .filter(|at| self.wasm[*at..].starts_with(from))
            .collect();
        let [at] = positions[..] else {
            panic!("the bytes do not occur exactly once, but at {positions:?}")
        };
        self.wasm[at..at + to.len()].copy_from_slice(to);
        self
    }

    /// Replaces the manifest's configuration, in TOML.
    pub fn config(mut self, table: &str) -> Plugin {
        if let Some(at) = self.manifest.find("[config]") {
            self.manifest.truncate(at);
        }
        self.manifest.push_str("\n[config]\n");
        self.manifest.push_str(table);
        self.manifest.push('\n');
        self
    }

    /// Installs both files, each by a rename.
    pub fn install(&self, dir: &Path, name: &str) {
        install_file(dir, &format!("{name}.toml"), self.manifest.as_bytes());
        install_file(dir, &format!("{name}.wasm"), &self.wasm);
    }
}

/// A number in LEB128, the encoding of Wasm binaries.
fn leb128(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).expect("seven bits"));
    bytes
}

/// Removes a plugin.
pub fn remove(dir: &Path, name: &str) {
    fs::remove_file(dir.join(format!("{name}.wasm"))).expect("removed");
}

fn install_file(dir: &Path, name: &str, bytes: &[u8]) {
    let temporary = dir.join(format!(".{name}.aside"));
    fs::write(&temporary, bytes).expect("written");
    fs::rename(&temporary, dir.join(name)).expect("renamed");
}
