//! A cluster and a daemon with the workflow service, for the tests of that service.
#![allow(dead_code, reason = "not every test asks everything")]

use std::fs;

use reqwest::StatusCode;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::Transom;
use transom_tests::site::Site;

const SECTION: &str =
    "[workflow]\nport = 0\ncontainers = false\napi_username = \"user\"\napi_password = \"password\"\n";

pub(crate) struct Workflow {
    pub(crate) site: Site,
    pub(crate) scratch: tempfile::TempDir,
}

impl Workflow {
    pub(crate) async fn start() -> Self {
        Self {
            site: Site::start_with(SECTION).await,
            scratch: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.site.addresses["workflow"])
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base())
    }

    pub(crate) fn flag(&self, name: &str) -> String {
        self.scratch.path().join(name).display().to_string()
    }

    /// A command that runs until a file exists.
    pub(crate) fn command_until(&self, flag: &str) -> Value {
        json!([
            "/bin/sh",
            "-c",
            format!("while [ ! -e '{}' ]; do sleep 0.05; done", self.flag(flag))
        ])
    }

    pub(crate) fn raise_flag(&self, flag: &str) {
        fs::write(self.flag(flag), "").expect("written");
    }

    pub(crate) async fn queue(&self, body: Value) {
        let answer = self.site.http.post(self.url("/v0/queue_command")).json(&body);
        let answer = answer.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        assert_eq!((status, text.as_str()), (StatusCode::OK, "Ok"));
    }

    pub(crate) async fn wait_for_state(&self, id: &str, state: &str) -> Value {
        eventually(&format!("{id} to show {state}"), || async {
            let seen = self.site.get(&self.url(&format!("/v0/task/{id}"))).await?;
            if seen["status"]["state"] == state {
                Ok(seen)
            } else {
                Err(seen.to_string())
            }
        })
        .await
    }

    pub(crate) async fn log(&self, id: &str) -> String {
        let answer = self.site.http.get(self.url(&format!("/v0/task/{id}/log")));
        answer
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("a text")
    }

    /// Runs `transom job run` to its end. Returns whether it succeeded, and its output.
    pub(crate) fn job_run(&self, arguments: &[&str]) -> (bool, String) {
        let mut run = self.start_job_run(arguments);
        let status = run.wait();
        (status.success(), run.output())
    }

    pub(crate) fn start_job_run(&self, arguments: &[&str]) -> Transom {
        let base = self.base();
        let fixed = ["job", "run", "--url", &base, "--poll-interval", "0.1"];
        let with_credentials = ["--username", "user", "--password", "password"];
        let all: Vec<&str> = [&fixed[..], &with_credentials, arguments].concat();
        Transom::start(self.scratch.path(), all)
    }

    pub(crate) fn launches(&self, id: &str) -> usize {
        let launches = self.site.cluster.launches();
        let of_job = |task: &str| task == id || task.starts_with(&format!("{id}."));
        launches
            .iter()
            .filter(|(task, _)| of_job(task))
            .map(|(_, times)| times)
            .sum()
    }
}
