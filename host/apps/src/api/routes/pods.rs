//! The routes of pods.

use serde_json::{Value, json};
use transom_web::routes::{Route, Schemas};

use super::operation::{Operation, delete, post, put};
use crate::api::pod_status::PodStatus;
use crate::api::pods::PodInstance;
use crate::api::{Api, pods};
use crate::model::Pod;
use crate::model::lengths::max_length;
use crate::time::Moment;

fn input(_: &mut Schemas) -> Value {
    json!({"$ref": "#/components/schemas/PodInput"})
}

fn ids(_: &mut Schemas) -> Value {
    json!({"type": "array", "maxItems": max_length("ids"), "items": {"type": "string"}})
}

pub(super) fn routes() -> Vec<Route<Api>> {
    vec![
        Route::get("/v2/pods", "listPods", "The definitions of all pods", pods::list)
            .description("`HEAD` tells whether the service has pods.")
            .returns::<Vec<Pod>>("The definitions."),
        post("/v2/pods", "createPod", "Creates a pod", pods::create)
            .definition(input)
            .change()
            .response(201, "The definition.", Schemas::of::<Pod>)
            .headers(&["Location", "Marathon-Deployment-Id"]),
        Route::get("/v2/pods/{id}", "getPod", "The definition of a pod", pods::get)
            .returns::<Pod>("The definition.")
            .errors(&[404]),
        put(
            "/v2/pods/{id}",
            "putPod",
            "Replaces the definition of a pod",
            pods::put,
        )
        .definition(input)
        .change()
        .returns::<Pod>("The definition.")
        .headers(&["Marathon-Deployment-Id"])
        .errors(&[404]),
        delete("/v2/pods/{id}", "deletePod", "Deletes a pod", pods::delete)
            .deletion()
            .empty(202, "The deployment is named by both headers.")
            .headers(&["Location", "Marathon-Deployment-Id"])
            .errors(&[404]),
        Route::get(
            "/v2/pods/::status",
            "listPodStatuses",
            "The status of all pods",
            pods::get,
        )
        .routed_by("/v2/pods/{*path}")
        .returns::<Vec<PodStatus<'_>>>("The pods with their instances."),
        Route::get(
            "/v2/pods/{id}::status",
            "getPodStatus",
            "The status of a pod, its instances and their containers",
            pods::get,
        )
        .parameters(&["embedPod"])
        .returns::<PodStatus<'_>>("The pod with its instances.")
        .errors(&[404]),
        Route::get(
            "/v2/pods/{id}::versions",
            "listVersionsOfPod",
            "The times of the kept definitions of a pod",
            pods::get,
        )
        .returns::<Vec<Moment>>("The times, newest first.")
        .errors(&[404]),
        Route::get(
            "/v2/pods/{id}::versions/{version}",
            "getVersionOfPod",
            "A kept definition of a pod",
            pods::get,
        )
        .returns::<Pod>("The definition.")
        .errors(&[404, 422]),
        delete(
            "/v2/pods/{id}::instances",
            "killInstancesOfPod",
            "Kills instances of a pod",
            pods::delete,
        )
        .parameters(&["wipe"])
        .document(ids)
        .change()
        .returns::<Vec<PodInstance<'_>>>(
            "The killed instances, as they were before. Unknown ids are skipped.",
        )
        .errors(&[404]),
        delete(
            "/v2/pods/{id}::instances/{instance}",
            "killInstanceOfPod",
            "Kills an instance of a pod",
            pods::delete,
        )
        .parameters(&["wipe"])
        .change()
        .returns::<PodInstance<'_>>("The instance, as it was before.")
        .errors(&[404]),
    ]
}
