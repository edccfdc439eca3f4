//! Real containers for tests: a small image, and a check whether containers can run here.
//!
//! If no runtime works, a test is skipped, and its name and the number of skipped tests are
//! printed. With `TRANSOM_CONTAINERS=required`, as in CI, the test fails.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static SKIPPED_TESTS: AtomicUsize = AtomicUsize::new(0);
/// Locked while the image is imported, because tests run at the same time.
static IMPORT_LOCK: Mutex<()> = Mutex::new(());

/// The image of the tests: a static busybox with a shell, a web server and other programs.
pub const IMAGE: &str = "localhost/transom-test:1";

const PROGRAMS: &[&str] = &[
    "cat", "echo", "env", "httpd", "id", "ls", "mkdir", "pwd", "sh", "sleep", "tail", "test", "touch", "wget",
];

/// A container runtime that has [`IMAGE`].
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The program: `podman` or `docker`.
    pub program: String,
}

impl Runtime {
    /// Returns the runtime for a test, or `None` if the test is skipped. `found`: the runtime, as
    /// in `podman 4.3.1`, or the reason why there is none.
    pub fn for_test(test: &str, found: Result<String, String>) -> Option<Self> {
        let runtime = found.and_then(|found| {
            let program = found.split(' ').next().unwrap_or_default().to_owned();
            import_image(&program).map(|()| Self { program })
        });
        match runtime {
            Ok(runtime) => Some(runtime),
            Err(why) => {
                let required =
                    std::env::var_os("TRANSOM_CONTAINERS").is_some_and(|value| value == "required");
                assert!(!required, "{test}: {why}");
                let count = SKIPPED_TESTS.fetch_add(1, Ordering::Relaxed) + 1;
                println!("skipped ({count} so far): {test}: {why}");
                None
            }
        }
    }

    /// Calls the runtime.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        let output = Command::new(&self.program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// The names of the containers of the cluster with this work directory.
    pub fn names(&self, work_dir: &Path) -> Vec<String> {
        let work_dir = work_dir.canonicalize().unwrap();
        let filter = format!("label=transom.cluster={}", work_dir.display());
        let output = self.run(&["ps", "--all", "--format", "{{.Names}}", "--filter", &filter]);
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn busybox() -> Option<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .map(PathBuf::from)
        .find(|program| program.exists())
}

/// Imports the image, unless it exists.
fn import_image(program: &str) -> Result<(), String> {
    let _import_lock = IMPORT_LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let inspected = Command::new(program).args(["image", "inspect", IMAGE]).output();
    if inspected.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let busybox = busybox().ok_or("there is no busybox: apt-get install busybox-static")?;
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("root/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy(busybox, bin.join("busybox")).unwrap();
    for &name in PROGRAMS {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    let archive = dir.path().join("image.tar");
    let mut tar = Command::new("tar");
    // Programs of every user may read it, whatever the umask of this process.
    tar.arg("--mode=a+rX")
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(dir.path().join("root"))
        .arg(".");
    assert!(tar.status().unwrap().success());
    let mut import = Command::new(program);
    let output = import.arg("import").arg(&archive).arg(IMAGE).output().unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
