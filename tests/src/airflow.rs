//! Airflow in Python environments with our distribution installed by pip, and the processes of a
//! complete Airflow.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use transom_testkit::{free_port, retry_until};

use crate::installed;

/// Timeout of Airflow's programs, which start slowly on a busy machine.
pub const AIRFLOW_TIMEOUT: Duration = Duration::from_mins(6);

/// The folder where `cargo xtask test` installs Airflow: `TRANSOM_AIRFLOW`, or next to the build.
pub fn environment() -> PathBuf {
    static ENVIRONMENT: OnceLock<PathBuf> = OnceLock::new();
    find_environment(&ENVIRONMENT, "TRANSOM_AIRFLOW", "airflow")
}

/// The folder of the oldest Airflow that our operator supports.
pub fn airflow_2_environment() -> PathBuf {
    static ENVIRONMENT: OnceLock<PathBuf> = OnceLock::new();
    find_environment(&ENVIRONMENT, "TRANSOM_AIRFLOW_2", "airflow-2")
}

fn find_environment(cell: &OnceLock<PathBuf>, variable: &str, name: &str) -> PathBuf {
    let find = || {
        let dir =
            std::env::var_os(variable).map_or_else(|| installed(&format!("python/{name}")), PathBuf::from);
        install_client(&dir);
        dir
    };
    cell.get_or_init(find).clone()
}

/// Updates an environment's copy of `clients/airflow` from the current sources.
fn install_client(environment: &Path) {
    let mut command = Command::new(environment.join("bin/python"));
    output(
        command
            .arg(root().join("tests/airflow/install.py"))
            .arg(environment),
    );
}

/// The project's own directory.
pub fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("the project")
}

/// A program of an environment, isolated from the environment variables of this machine.
pub fn program(environment: &Path, home: &Path, name: &str) -> Command {
    let bin = environment.join("bin");
    let mut command = Command::new(bin.join(name));
    command
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
        .env("HOME", home)
        .env("AIRFLOW_HOME", home)
        .env("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Runs a command, which must succeed, and returns its output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

/// A process with all its children; killed when dropped.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts a command that writes to a file.
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("a log");
        let child = command
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .process_group(0)
            .spawn()
            .expect("it starts");
        Self { child, log }
    }

    /// The last 60 lines of its output.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Sends SIGKILL to the process and all its children.
    pub fn kill(&mut self) {
        let group = i32::try_from(self.child.id()).expect("a pid");
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("---- {}:\n{}\n----", self.log.display(), self.log());
        }
    }
}

/// An isolated Airflow: database, keys, settings, and the components that a test starts.
pub struct Airflow {
    pub home: tempfile::TempDir,
    /// The port of the API server.
    pub port: u16,
    settings: Vec<(String, String)>,
}

impl Airflow {
    /// Configures an Airflow that runs the DAGs of a folder with our executor. `daemon` is the
    /// address of the workflow port.
    pub fn new(dags: &Path, daemon: &str) -> Self {
        let port = free_port();
        let settings = [
            ("CORE__DAGS_FOLDER", dags.display().to_string()),
            ("CORE__DAGS_ARE_PAUSED_AT_CREATION", "False".to_owned()),
            (
                "CORE__EXECUTOR",
                "transom_airflow.executor.ClusterExecutor".to_owned(),
            ),
            (
                "CORE__EXECUTION_API_SERVER_URL",
                format!("http://127.0.0.1:{port}/execution/"),
            ),
            ("CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True".to_owned()),
            (
                "API_AUTH__JWT_SECRET",
                "a-secret-that-no-container-is-given-0123456789abcdef".to_owned(),
            ),
            ("API__PORT", port.to_string()),
            ("CLUSTER__OPERATOR_API_URL", daemon.to_owned()),
            // Short intervals: Airflow detects a dead scheduler within 10 s.
            ("SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", "10".to_owned()),
            ("SCHEDULER__SCHEDULER_HEARTBEAT_SEC", "1".to_owned()),
            ("SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL", "3".to_owned()),
            ("SCHEDULER__JOB_HEARTBEAT_SEC", "1".to_owned()),
            ("SCHEDULER__ENABLE_HEALTH_CHECK", "False".to_owned()),
        ];
        Self {
            home: tempfile::tempdir().expect("a directory"),
            port,
            settings: settings.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        }
    }

    /// Adds a setting, named `SECTION__KEY`.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A program of the environment with all these settings.
    pub fn command(&self, name: &str) -> Command {
        let mut command = program(&environment(), self.home.path(), name);
        for (name, value) in &self.settings {
            command.env(format!("AIRFLOW__{name}"), value);
        }
        command
    }

    /// Starts a component, which is killed when dropped.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Program {
        let mut command = self.command("airflow");
        command.args(arguments);
        Program::start(command, self.home.path().join(format!("{name}.log")))
    }

    /// Sends a request to the REST API as an administrator: status and body.
    pub async fn request(
        &self,
        http: &reqwest::Client,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let base = format!("http://127.0.0.1:{}", self.port);
        let failed = |error: reqwest::Error| error.to_string();
        let token = http
            .get(format!("{base}/auth/token"))
            .send()
            .await
            .map_err(failed)?;
        let token: Value = token.json().await.map_err(failed)?;
        let token = token["access_token"]
            .as_str()
            .ok_or_else(|| format!("no token: {token}"))?;
        let mut request = http
            .request(method, format!("{base}/api/v2{path}"))
            .bearer_auth(token)
            .header("Accept", "application/json");
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(failed)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

/// Repeats the request until it returns `Ok`, for at most [`AIRFLOW_TIMEOUT`].
pub async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = tokio::time::Instant::now() + AIRFLOW_TIMEOUT;
    retry_until(deadline, Duration::from_millis(500), what, attempt)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}
