//! Executes the shell commands of a page, block by block, in a folder with the files of the
//! repository that the page uses.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::authors::set_build_environment;
use crate::process::{binary, components};

/// Creates a folder with links to the files of the repository that the commands of a page use.
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

/// Timeout of a page in seconds: a command may wait for a condition that is never satisfied.
const TIMEOUT: &str = "600";

/// A shell that keeps its folder and its variables from one block to the next.
pub struct Shell {
    child: Child,
    commands: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts a shell in a folder, with additional environment variables.
    pub fn start(dir: &Path, variables: &[(&str, &str)]) -> Shell {
        let mut bash = Command::new("timeout");
        bash.args([TIMEOUT, "bash"]);
        set_build_environment(&mut bash);
        let mut child = bash
            .current_dir(dir)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut commands = child.stdin.take().expect("piped");
        // All output goes to one stream; the first failed command ends the shell.
        writeln!(commands, "set -e; exec 2>&1").expect("bash reads");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Shell {
            child,
            commands,
            output,
        }
    }

    /// Runs a block and returns its output.
    pub fn run(&mut self, block: &str) -> String {
        const END_MARK: &str = "--- the block is done ---";
        writeln!(self.commands, "{block}\necho '{END_MARK}'").expect("bash reads");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).expect("text");
            assert!(
                length > 0,
                "a command failed, or the page took {TIMEOUT} s:\n{block}\n{printed}"
            );
            // If the output does not end with a newline, the mark is on the same line.
            if let Some(rest) = line.trim_end().strip_suffix(END_MARK) {
                printed.push_str(rest);
                return printed;
            }
            printed.push_str(&line);
        }
    }

    /// Ends the shell.
    pub fn end(mut self) {
        drop(self.commands);
        assert!(self.child.wait().expect("a child").success());
    }
}

/// The blocks of shell commands, in order.
pub fn blocks(page: &str) -> Vec<&str> {
    blocks_in(page, "sh")
}

/// The blocks in a language, in order.
pub fn blocks_in<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fences = page.split("```").skip(1).step_by(2);
    let blocks = fences.filter_map(|block| block.split_once('\n'));
    blocks
        .filter(|(name, _)| *name == language)
        .map(|(_, text)| text)
        .collect()
}
