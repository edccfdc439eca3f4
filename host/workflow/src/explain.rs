//! Explains to operators where a pending job may run. See [`Explain`].

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use transom_cluster::TaskId;
use transom_framework::{Explain, Leader, PlacementExplanation, explain_pending};
use transom_plugin_host::printable;
use transom_web::ApiError;

use crate::core::term::Handles;
use crate::ids::JobId;
use crate::job_index::JobIndex;

/// Explains where pending jobs may run.
#[derive(Clone, Debug)]
pub struct Explainer {
    pub(crate) framework: String,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) leader: Leader<Handles>,
}

#[async_trait]
impl Explain for Explainer {
    /// Explains which agents may run a job. The job has to be pending, because a job runs once.
    async fn explain(&self, id: &str) -> Result<PlacementExplanation, ApiError> {
        let job = JobId::parse(id).map_err(|problem| {
            ApiError::bad_request(format!("the job's id {problem}, as /v0/queue lists it"))
        })?;
        let handles = self.leader.handles_for_operator(&self.framework)?;
        let run = self.index.get(&job).ok_or_else(|| {
            ApiError::not_found(format!(
                "no job is called {:?}; `GET /v0/queue` of the workflow port lists the pending ones (`task_id`)",
                printable(id)
            ))
        })?;
        let explained = explain_pending(id, &*handles.scheduler, &run.task).await?;
        explained.ok_or_else(|| {
            // The job may have been launched meanwhile.
            let state = self.index.get(&job).map_or(run.state, |run| run.state);
            ApiError::new(
                StatusCode::CONFLICT,
                format!(
                    "the job {:?} is not pending, its state is {state}, and only pending jobs are explained; \
                     `GET /v0/queue` of the workflow port lists them",
                    printable(id)
                ),
            )
        })
    }

    fn probe_rejection(&self, task: &str) -> Option<String> {
        let of_task = self.index.active(&TaskId::from(task)).map(|job| job.id.clone());
        let job = of_task.or_else(|| Some(self.index.get(&JobId::parse(task).ok()?)?.id.clone()))?;
        Some(format!(
            "the task belongs to the job {:?} of the workflow service, and jobs have no checks",
            printable(job.as_str())
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use transom_scheduler::SchedulerApi;

    use super::*;
    use crate::testing::Site;

    /// Status and text of a rejection.
    async fn rejected(site: &Site, id: &str) -> (StatusCode, String) {
        let error = site.explainer.explain(id).await.unwrap_err();
        (error.status(), error.message().to_owned())
    }

    #[tokio::test]
    async fn pending_job_is_explained_with_the_run_spec_of_its_request() {
        let site = Site::start().await;
        let job = |id: &str| json!({"workflow_task_id": id, "command": ["true"], "attributes": ["rack:r1"]});
        site.queue(job("waits")).await;
        site.queue(job("runs")).await;
        let requested = site.scheduler.submitted();
        let requested = requested.iter().find(|request| request.id.as_str() == "waits");
        let explained = site.explainer.explain("waits").await.unwrap();
        assert_eq!(
            (explained.id.as_str(), explained.subscribed),
            ("waits", site.scheduler.subscription().connected)
        );
        assert_eq!(
            (explained.matchers.constraints, explained.matchers.instances),
            (vec![requested.unwrap().spec.id.clone()], 1)
        );

        site.scheduler.launch("runs").await;
        for (id, status, part) in [
            ("runs", StatusCode::CONFLICT, "its state is TASK_STAGING"),
            ("absent", StatusCode::NOT_FOUND, "`GET /v0/queue`"),
            ("", StatusCode::BAD_REQUEST, "is empty"),
        ] {
            let (found, text) = rejected(&site, id).await;
            assert_eq!(found, status, "{id}: {text}");
            assert!(text.contains(part), "{id}: {text}");
        }
    }

    #[tokio::test]
    async fn job_has_no_check_to_explain() {
        let site = Site::start().await;
        site.queue(json!({"workflow_task_id": "a b", "command": ["true"]}))
            .await;
        let active = site.get("/v0/queue").await.json();
        assert_eq!(active["queue"][0]["task_id"], Value::from("a b"));
        let task = site
            .explainer
            .index
            .get(&JobId::parse("a b").unwrap())
            .unwrap()
            .task
            .clone();
        for name in ["a b", task.as_str()] {
            let reason = site.explainer.probe_rejection(name);
            assert!(reason.is_some_and(|it| it.contains("no checks")), "{name}");
        }
        assert_eq!(site.explainer.probe_rejection("absent"), None);
    }
}
