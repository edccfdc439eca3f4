//! The paths of pods.

use serde_json::json;

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::pod_status::PodStatus;
use crate::api::pods::PodInstance;
use crate::model::Pod;
use crate::model::lengths::max_length;
use crate::time::Moment;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let input = json!({"$ref": "#/components/schemas/PodInput"});
    let pod = schemas.of::<Pod>();
    paths.add(
        "pods",
        "/v2/pods",
        [
            Operation::new("get", "listPods", "The definitions of all pods")
                .description("`HEAD` tells whether the service has pods.")
                .with_response(200, "The definitions.", &schemas.of::<Vec<Pod>>()),
            Operation::new("post", "createPod", "Creates a pod")
                .with_definition(&input)
                .change()
                .with_response(201, "The definition.", &pod)
                .headers(201, &["Location", "Marathon-Deployment-Id"]),
        ],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}",
        [
            Operation::new("get", "getPod", "The definition of a pod")
                .with_response(200, "The definition.", &pod)
                .with_errors(&[404]),
            Operation::new("put", "putPod", "Replaces the definition of a pod")
                .with_definition(&input)
                .change()
                .with_response(200, "The definition.", &pod)
                .headers(200, &["Marathon-Deployment-Id"])
                .with_errors(&[404]),
            Operation::new("delete", "deletePod", "Deletes a pod")
                .deletion()
                .with_empty_response(202, "The deployment is named by both headers.")
                .headers(202, &["Location", "Marathon-Deployment-Id"])
                .with_errors(&[404]),
        ],
    );
    add_instances(paths, schemas);
}

/// The status, the versions and the instances of pods.
fn add_instances(paths: &mut Paths, schemas: &mut Schemas) {
    let status = schemas.of::<PodStatus<'_>>();
    let instance = schemas.of::<PodInstance<'_>>();
    paths.add(
        "pods",
        "/v2/pods/::status",
        [
            Operation::new("get", "listPodStatuses", "The status of all pods").with_response(
                200,
                "The pods with their instances.",
                &schemas.of::<Vec<PodStatus<'_>>>(),
            ),
        ],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}::status",
        [Operation::new(
            "get",
            "getPodStatus",
            "The status of a pod, its instances and their containers",
        )
        .with_response(200, "The pod with its instances.", &status)
        .with_errors(&[404])],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}::versions",
        [Operation::new(
            "get",
            "listVersionsOfPod",
            "The times of the kept definitions of a pod",
        )
        .with_response(200, "The times, newest first.", &schemas.of::<Vec<Moment>>())
        .with_errors(&[404])],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}::versions/{version}",
        [
            Operation::new("get", "getVersionOfPod", "A kept definition of a pod")
                .with_response(200, "The definition.", &schemas.of::<Pod>())
                .with_errors(&[404, 422]),
        ],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}::instances",
        [
            Operation::new("delete", "killInstancesOfPod", "Kills instances of a pod")
                .with_parameters(&["wipe"])
                .with_body(
                    &json!({"type": "array", "maxItems": max_length("ids"), "items": {"type": "string"}}),
                )
                .change()
                .with_response(
                    200,
                    "The killed instances, as they were before. Unknown ids are skipped.",
                    &schemas.of::<Vec<PodInstance<'_>>>(),
                )
                .with_errors(&[404]),
        ],
    );
    paths.add(
        "pods",
        "/v2/pods/{id}::instances/{instance}",
        [
            Operation::new("delete", "killInstanceOfPod", "Kills an instance of a pod")
                .with_parameters(&["wipe"])
                .change()
                .with_response(200, "The instance, as it was before.", &instance)
                .with_errors(&[404]),
        ],
    );
}
