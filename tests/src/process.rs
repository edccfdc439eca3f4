//! The `transom` binary as a child process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use transom_testkit::WAIT_TIMEOUT;

const BINARY: (&str, &str) = ("TRANSOM_BIN", "transom");
const COMPONENTS: (&str, &str) = ("TRANSOM_COMPONENTS", "components");

/// The binary under test: `TRANSOM_BIN`, or the one next to the test's own executable.
pub fn binary() -> PathBuf {
    find_built(BINARY)
}

/// The user who runs the tests. The tasks of a framework may run as this user.
pub fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// The directory of the first-party components; `cargo xtask test` builds them.
pub fn components() -> PathBuf {
    find_built(COMPONENTS)
}

/// Checks that the binary and the components are built; the error contains the missing ones.
pub fn check_built() -> Result<(), String> {
    for (variable, name) in [BINARY, COMPONENTS] {
        match find(variable, name) {
            Some(path) if path.exists() => {}
            Some(path) => return Err(format!("{variable}: {} does not exist", path.display())),
            None => {
                return Err(format!(
                    "no `{name}` beside this program, and {variable} is not set"
                ));
            }
        }
    }
    Ok(())
}

/// The path of the stand-in for the orchestrator, as a link in `folder`: the setting that names the
/// program separates words by spaces, which the path of the build may contain.
pub fn orchestrator(folder: &Path) -> PathBuf {
    let link = folder.join("orchestrator");
    let program = binary().with_file_name("orchestrator");
    assert!(program.exists(), "{} is not built", program.display());
    match std::os::unix::fs::symlink(program, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            panic!("{}: {error}", link.display())
        }
        _ => link,
    }
}

fn find_built((variable, name): (&str, &str)) -> PathBuf {
    find(variable, name)
        .unwrap_or_else(|| panic!("no `{name}` found: `cargo xtask test` builds everything that tests need"))
}

fn find(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let executable = std::env::current_exe().expect("the test's own path");
    executable
        .ancestors()
        .skip(1)
        .map(|dir| dir.join(name))
        .find(|path| path.exists())
}

/// A running `transom`; killed when dropped.
pub struct Transom {
    child: Child,
    output: Arc<Mutex<Vec<String>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Transom {
    /// Starts `transom ARGUMENTS` in `dir`, and collects its output.
    pub fn start<I, S>(dir: &Path, arguments: I) -> Transom
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        Transom::start_with(dir, arguments, &[])
    }

    /// Starts it with additional environment variables.
    pub fn start_with<I, S>(dir: &Path, arguments: I, variables: &[(&str, &str)]) -> Transom
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(dir);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        Transom::spawn(command)
    }

    /// Starts this command and collects its output.
    pub fn spawn(mut command: Command) -> Transom {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("transom starts");
        let output = Arc::new(Mutex::new(Vec::new()));
        let streams: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("piped")),
            Box::new(child.stderr.take().expect("piped")),
        ];
        let readers = streams
            .into_iter()
            .map(|stream| collect_lines(stream, output.clone()))
            .collect();
        Transom {
            child,
            output,
            readers,
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All output so far, of both streams.
    pub fn output(&self) -> String {
        self.output.lock().expect("lines").join("\n")
    }

    /// Waits for a line for which `pick` returns a value.
    pub fn wait_for_line<T>(&mut self, what: &str, pick: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(found) = self
                .output
                .lock()
                .expect("lines")
                .iter()
                .find_map(|line| pick(line))
            {
                return found;
            }
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("transom ended ({status}) before {what}:\n{}", self.output());
            }
            assert!(
                Instant::now() < deadline,
                "no {what} in the output:\n{}",
                self.output()
            );
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Sends SIGINT, as Ctrl-C does, and waits; panics when it does not stop in time.
    pub fn interrupt(mut self) -> (ExitStatus, String) {
        self.signal(Signal::SIGINT);
        let status = self.wait();
        (status, self.output())
    }

    /// Sends SIGTERM, as a supervisor does, and waits; panics when it does not stop in time.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        (status, self.output())
    }

    /// Sends SIGHUP, as a terminal does that is closed.
    pub fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Suspends it with SIGSTOP, until [`Transom::resume`].
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Resumes it with SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits until it ends without a signal.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                for reader in self.readers.drain(..) {
                    let _ = reader.join();
                }
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "transom did not end:\n{}",
                self.output()
            );
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("alive");
    }
}

impl Drop for Transom {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // SIGTERM before SIGKILL: a cluster then ends its tasks, too.
            let pid = i32::try_from(self.child.id()).expect("a pid");
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            let deadline = Instant::now() + Duration::from_secs(20);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::park_timeout(Duration::from_millis(20));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if thread::panicking() {
            eprintln!("---- transom wrote:\n{}\n----", self.output());
        }
    }
}

fn collect_lines(stream: Box<dyn Read + Send>, output: Arc<Mutex<Vec<String>>>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            output.lock().expect("lines").push(line);
        }
    })
}
