//! Executes the shell commands of a page, block by block, in a folder that looks like the repository.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::authors::equip;
use crate::process::{binary, components};

/// A folder with what a page's commands find in the repository.
pub fn repository() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let target = dir.path().join("target");
    fs::create_dir_all(target.join("debug")).expect("made");
    symlink(binary(), target.join("debug/transom")).expect("linked");
    symlink(components(), target.join("components")).expect("linked");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["README.md", "examples"] {
        symlink(root.join(name), dir.path().join(name)).expect("linked");
    }
    dir
}

/// How long a page may take, in seconds: a command may wait for a condition that never comes.
const TIMEOUT: &str = "600";

/// A shell that keeps its folder and its variables from one block to the next.
pub struct Shell {
    child: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts it in a folder, with variables.
    pub fn start(dir: &Path, variables: &[(&str, &str)]) -> Shell {
        let mut bash = Command::new("timeout");
        bash.args([TIMEOUT, "bash"]);
        equip(&mut bash);
        let mut child = bash
            .current_dir(dir)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut commands = child.stdin.take().expect("piped");
        // Everything in one stream; the first command that fails ends it.
        writeln!(commands, "set -e; exec 2>&1").expect("bash reads");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Shell {
            child,
            commands,
            output,
        }
    }

    /// Runs a block to its end and returns what it printed.
    pub fn run(&mut self, block: &str) -> String {
        const END: &str = "--- the block is done ---";
        writeln!(self.commands, "{block}\necho '{END}'").expect("bash reads");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).expect("text");
            assert!(
                length > 0,
                "a command failed, or the page took {TIMEOUT} s:\n{block}\n{printed}"
            );
            // Output without a newline at its end stands before the mark.
            if let Some(rest) = line.trim_end().strip_suffix(END) {
                printed.push_str(rest);
                return printed;
            }
            printed.push_str(&line);
        }
    }

    /// Ends it.
    pub fn end(mut self) {
        drop(self.commands);
        assert!(self.child.wait().expect("a child").success());
    }
}

/// The blocks of shell commands, in order.
pub fn blocks(page: &str) -> Vec<&str> {
    let fences = page.split("```sh\n").skip(1);
    fences
        .map(|rest| rest.split("```").next().unwrap_or(rest))
        .collect()
}
