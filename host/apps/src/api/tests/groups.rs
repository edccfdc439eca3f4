//! Groups, lists of apps, and deployments over several apps.

mod deployments;
mod requests;

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;

impl World {
    /// Waits until there is no deployment.
    async fn quiet(&self) {
        wait_for("there is no deployment", async || {
            self.get("/v2/deployments").await == json!([])
        })
        .await;
    }

    /// Ends all tasks of the apps below a group.
    async fn end_all(&self, group: &str) {
        let tasks = self.get("/v2/tasks").await;
        for task in tasks["tasks"].as_array().unwrap() {
            if task["appId"].as_str().unwrap().starts_with(group) {
                let id = task["id"].as_str().unwrap();
                self.scheduler.update(id, TaskState::Killed, None);
            }
        }
    }

    /// Launches the pending tasks whose ids begin with `group`, and reports them as running.
    async fn launch_below(&self, group: &str) {
        for request in self.scheduler.submitted() {
            let id = request.id.as_str();
            if id.starts_with(group) {
                self.scheduler.launch(id).await;
                self.scheduler.update(id, TaskState::Running, None);
            }
        }
    }

    async fn ids(&self) -> Vec<String> {
        let apps = self.get("/v2/apps").await;
        let apps = apps["apps"].as_array().unwrap().iter();
        apps.map(|app| app["id"].as_str().unwrap().to_owned()).collect()
    }
}

fn shop() -> Value {
    json!({
        "id": "/shop",
        "groups": [
            {"id": "db", "apps": [sleeper("pg")]},
            {"id": "web", "dependencies": ["/shop/db"], "apps": [sleeper("api"), sleeper("ui")]},
        ],
    })
}

fn actions(step: &Value) -> Vec<String> {
    let actions = step["actions"].as_array().unwrap().iter();
    let text = |action: &Value| format!("{} {}", action["action"], action["app"]).replace('"', "");
    actions.map(text).collect()
}

#[tokio::test]
async fn group_is_created_in_the_order_of_its_dependencies() {
    let world = World::start().await;
    let mut events = world
        .listen("?event_type=deployment_step_success&event_type=group_change_success&plan-format=light")
        .await;
    let planned = world.send("PUT", "/v2/groups?dryRun=true", shop()).await;
    assert_eq!(planned.status, 200, "{planned:?}");
    let steps = planned.body["steps"].as_array().unwrap();
    assert_eq!(
        steps.iter().map(actions).collect::<Vec<_>>(),
        [
            vec![
                "StartApplication /shop/db/pg",
                "StartApplication /shop/web/api",
                "StartApplication /shop/web/ui"
            ],
            vec!["ScaleApplication /shop/db/pg"],
            vec!["ScaleApplication /shop/web/api", "ScaleApplication /shop/web/ui"],
        ]
    );
    assert_eq!(world.ids().await, Vec::<String>::new());

    world.scheduler.set_immediate_launches(false);
    let created = world.send("POST", "/v2/groups", shop()).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.headers["location"], "/shop");
    assert_eq!(
        created.headers["marathon-deployment-id"],
        created.body["deploymentId"].as_str().unwrap()
    );
    assert_eq!(events.next().await.data["groupId"], "/shop");
    assert_eq!(
        actions(&events.next().await.data["currentStep"]).len(),
        3,
        "the first step creates the three apps without instances"
    );
    let deployment = &world.get("/v2/deployments").await[0];
    assert_eq!(
        (&deployment["currentStep"], &deployment["totalSteps"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(
        deployment["affectedApps"],
        json!(["/shop/db/pg", "/shop/web/api", "/shop/web/ui"])
    );
    let waiting = world.get("/v2/apps/shop/web/api").await;
    assert_eq!(
        waiting["app"]["deployments"],
        json!([{"id": created.body["deploymentId"]}])
    );
    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    assert_eq!(
        actions(&events.next().await.data["currentStep"]),
        ["ScaleApplication /shop/db/pg"]
    );
    world.quiet().await;
    let again = world.send("POST", "/v2/groups", shop()).await;
    assert_eq!(again.status, 409);
    assert_eq!(
        again.body["message"],
        "Group /shop is already created. Use PUT to change this group."
    );
    world.stop().await;
}

#[tokio::test]
async fn group_is_shown_with_the_requested_parts() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.send("POST", "/v2/apps", sleeper("/other")).await;
    world.quiet().await;
    let root = world.get("/v2/groups").await;
    assert_eq!(root["id"], "/");
    assert_eq!(root["apps"][0]["id"], "/other");
    let shop = &root["groups"][0];
    assert_eq!(shop["groups"][1]["id"], "/shop/web");
    assert_eq!(shop["groups"][1]["dependencies"], json!(["/shop/db"]));
    assert_eq!(shop["groups"][1]["apps"][1]["id"], "/shop/web/ui");
    assert_eq!(shop["groups"][1]["apps"][1]["tasksRunning"], 1);
    assert_eq!(root["pods"], json!([]));

    let names = world.get("/v2/groups/shop?embed=group.groups").await;
    assert_eq!((names.get("apps"), names.get("pods")), (None, None));
    assert_eq!(names["groups"][0]["id"], "/shop/db");
    let apps = world
        .get("/v2/groups/shop/web?embed=group.apps&embed=group.apps.tasks")
        .await;
    assert_eq!(apps["apps"][0]["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(apps.get("groups"), None);

    let below = world.get("/v2/apps/shop/web/*").await;
    assert_eq!(below["*"].as_array().unwrap().len(), 2);
    let tasks = world.get("/v2/apps/shop/*/tasks").await;
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 3);
    let listed = world.get("/v2/groups/shop/apps").await;
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let missing = world.call("GET", "/v2/groups/absent", None).await;
    assert_eq!(
        (missing.status, &missing.body["message"]),
        (404, &json!("Group '/absent' does not exist"))
    );
    world.stop().await;
}

#[tokio::test]
async fn groups_and_their_history_survive_a_restart() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let before = world.get("/v2/groups").await;
    let versions = world.get("/v2/groups/shop/versions").await;
    let world = world.restart().await;
    assert_eq!(world.get("/v2/groups").await, before);
    assert_eq!(world.get("/v2/groups/shop/versions").await, versions);
    world.stop().await;
}

#[tokio::test]
async fn group_is_scaled_deleted_and_rolled_back() {
    let world = World::start().await;
    let first = world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let pg = world.settled("/shop/db/pg", 1).await["tasks"][0]["id"].clone();
    let scaled = world
        .send("PUT", "/v2/groups/shop/web", json!({"scaleBy": 1.5}))
        .await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    world.settled("/shop/web/api", 2).await;
    world.settled("/shop/web/ui", 2).await;
    let deleted = world.call("DELETE", "/v2/groups/shop/web", None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    world.quiet().await;
    assert_eq!(world.ids().await, ["/shop/db/pg"]);
    assert_eq!(world.call("GET", "/v2/groups/shop/web", None).await.status, 404);

    let versions = world.get("/v2/groups/shop/versions").await;
    assert_eq!(versions.as_array().unwrap().len(), 3, "{versions}");
    let url = format!(
        "/v2/groups/shop/versions/{}",
        first.body["version"].as_str().unwrap()
    );
    let past = world.get(&url).await;
    let web = &past["groups"][1];
    assert_eq!(
        (&web["id"], &web["dependencies"]),
        (&json!("/shop/web"), &json!(["/shop/db"]))
    );
    assert_eq!(
        (&web["apps"][0]["id"], &web["apps"][0]["instances"]),
        (&json!("/shop/web/api"), &json!(1))
    );
    // Past definitions of deleted apps are kept for the history of the group, also after a restart.
    let world = world.restart().await;
    let back = json!({"version": first.body["version"]});
    let rolled = world.send("PUT", "/v2/groups/shop", back).await;
    assert_eq!(rolled.status, 200, "{rolled:?}");
    world.settled("/shop/web/api", 1).await;
    world.settled("/shop/web/ui", 1).await;
    let kept = world.settled("/shop/db/pg", 1).await;
    assert_eq!(kept["tasks"][0]["id"], pg, "an untouched app keeps its task");
    assert_eq!(
        world.get("/v2/groups/shop/web").await["dependencies"],
        json!(["/shop/db"])
    );
    let never = json!({"version": "2020-01-01T00:00:00.000Z"});
    let unknown = world.send("PUT", "/v2/groups/shop", never).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
    world.stop().await;
}

#[tokio::test]
async fn group_change_is_rejected_as_a_whole() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let mut wrong = shop();
    wrong["groups"][0]["apps"][0]["cpus"] = json!(2);
    wrong["groups"][1]["apps"][1] = json!({"id": "ui", "cmd": "sleep 1", "instances": -1});
    let rejected = world.send("PUT", "/v2/groups", wrong.clone()).await;
    assert_eq!(rejected.status, 422, "{rejected:?}");
    assert_eq!(
        rejected.body["details"][0]["path"],
        "/groups(1)/apps(1)/instances"
    );
    wrong["groups"][1]["apps"][1] = sleeper("ui");
    wrong["groups"][0]["dependencies"] = json!(["/shop/web"]);
    let cyclic = world.send("PUT", "/v2/groups", wrong).await;
    assert_eq!(cyclic.status, 422, "{cyclic:?}");
    assert!(
        cyclic.body.to_string().contains("cyclic dependencies"),
        "{cyclic:?}"
    );
    assert_eq!(world.get("/v2/apps/shop/db/pg").await["app"]["cpus"], 1);
    let role = world
        .send("PATCH", "/v2/groups/shop/db", json!({"enforceRole": true}))
        .await;
    assert_eq!(
        (role.status, &role.body["details"][0]["path"]),
        (422, &json!("/enforceRole")),
        "not a top-level group"
    );
    let kept = world
        .send("PATCH", "/v2/groups/shop", json!({"enforceRole": false}))
        .await;
    assert_eq!(kept.status, 200, "{kept:?}");
    assert_eq!(world.ids().await.len(), 3);
    world.stop().await;
}

#[tokio::test]
async fn cancelled_deletion_of_a_group_leaves_its_apps() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    world.scheduler.set_immediate_kills(false);
    let deleted = world.call("DELETE", "/v2/groups/shop", None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert_eq!(world.ids().await, Vec::<String>::new());
    // The forced change of one app cancels the deletion of all of them.
    let forced = world
        .send("PUT", "/v2/apps/shop/db/pg?force=true", sleeper("/shop/db/pg"))
        .await;
    assert_eq!(forced.status, 201, "{forced:?}");
    assert_eq!(
        world.ids().await,
        ["/shop/db/pg", "/shop/web/api", "/shop/web/ui"]
    );
    world.end_all("").await;
    for app in ["/shop/db/pg", "/shop/web/api", "/shop/web/ui"] {
        world.settled(app, 1).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn reverted_group_change_restores_only_what_it_changed() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let tasks = |shown: &Value| shown["tasks"].clone();
    let api = tasks(&world.settled("/shop/web/api", 1).await);
    let pg = tasks(&world.settled("/shop/db/pg", 1).await);
    world.scheduler.set_immediate_launches(false);
    let mut changed = shop();
    changed["groups"][0]["apps"][0]["cmd"] = json!("sleep 2");
    changed["groups"][1]["apps"] = json!([sleeper("api")]);
    changed["groups"][1]["groups"] = json!([{"id": "new", "apps": [sleeper("x")]}]);
    let change = world.send("PUT", "/v2/groups", changed).await;
    assert_eq!(change.status, 200, "{change:?}");
    let later = world.send("POST", "/v2/apps", sleeper("/shop/later")).await;
    assert_eq!(later.status, 201);
    let id = change.body["deploymentId"].as_str().unwrap();
    world.scheduler.set_immediate_launches(true);
    let reverted = world.call("DELETE", &format!("/v2/deployments/{id}"), None).await;
    assert_eq!(reverted.status, 200, "{reverted:?}");
    world.scheduler.launch_all();
    world.quiet().await;
    assert_eq!(
        world.ids().await,
        ["/shop/db/pg", "/shop/later", "/shop/web/api", "/shop/web/ui"]
    );
    assert_eq!(
        world.call("GET", "/v2/groups/shop/web/new", None).await.status,
        404
    );
    assert_eq!(tasks(&world.settled("/shop/web/api", 1).await), api, "untouched");
    assert_eq!(
        tasks(&world.settled("/shop/db/pg", 1).await),
        pg,
        "the app keeps its task, because its definition is the earlier one again"
    );
    world.settled("/shop/web/ui", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn listed_apps_are_changed_by_one_deployment() {
    let world = World::start().await;
    let missing = world
        .send("PATCH", "/v2/apps", json!([{"id": "/a", "cpus": 2}]))
        .await;
    assert_eq!(missing.status, 404, "{missing:?}");
    let created = world
        .send("PUT", "/v2/apps", json!([sleeper("/a"), sleeper("/b")]))
        .await;
    assert_eq!(created.status, 200, "{created:?}");
    world.settled("/a", 1).await;
    world.settled("/b", 1).await;
    let changed = world
        .send(
            "PATCH",
            "/v2/apps",
            json!([{"id": "/a", "instances": 2}, {"id": "/b", "labels": {"k": "v"}}]),
        )
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    world.settled("/a", 2).await;
    assert_eq!(world.get("/v2/apps/b").await["app"]["labels"]["k"], "v");
    let versions = world.get("/v2/apps/a/versions").await["versions"].clone();
    let first = &versions[1];
    let back = json!([{"id": "/a", "version": first}, {"id": "/b", "labels": {"k": "w"}}]);
    let restored = world.send("PUT", "/v2/apps", back).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    world.settled("/a", 1).await;
    assert_eq!(world.get("/v2/apps/b").await["app"]["labels"]["k"], "w");
    let both = json!([{"id": "/b", "cpus": 2}, {"id": "/a", "version": first, "cpus": 2}]);
    let rejected = world.send("PATCH", "/v2/apps", both).await;
    let expected = json!([{
        "path": "/(1)/version", "errors": ["The 'version' field may only be combined with the 'id' field."],
    }]);
    assert_eq!((rejected.status, &rejected.body["details"]), (422, &expected));
    let unknown = json!([{"id": "/a", "version": "2015-01-01T00:00:00.000Z"}]);
    assert_eq!(world.send("PUT", "/v2/apps", unknown).await.status, 404);
    let wrong = json!([{"id": "/a", "cpus": -1}, {"cmd": "sleep 1"}]);
    let rejected = world.send("PUT", "/v2/apps", wrong).await;
    assert_eq!(rejected.status, 422, "{rejected:?}");
    assert_eq!(rejected.body["details"][0]["path"], "/(0)/cpus");
    let twice = world
        .send("PUT", "/v2/apps", json!([sleeper("/a"), sleeper("/a")]))
        .await;
    assert_eq!(twice.body["details"][0]["path"], "/(1)/id", "{twice:?}");
    let nameless = world.send("PUT", "/v2/apps", json!([{"cmd": "sleep 1"}])).await;
    assert_eq!(nameless.body["details"][0]["path"], "/(0)/id", "{nameless:?}");
    world.stop().await;
}

#[tokio::test]
async fn group_change_without_the_store_changes_nothing() {
    let config = crate::Config {
        store_timeout: std::time::Duration::from_millis(300),
        ..crate::Config::default()
    };
    let world = World::start_with(config).await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    world.store.hold_after(0);
    let rejected = world.call("DELETE", "/v2/groups/shop", None).await;
    assert_eq!(rejected.status, 503, "{rejected:?}");
    assert_eq!(world.ids().await.len(), 3);
    world.store.release();
    world.settled("/shop/web/ui", 1).await;
    assert_eq!(world.get("/v2/deployments").await, json!([]));
    world.stop().await;
}

#[tokio::test]
async fn app_may_have_the_role_of_its_top_level_group() {
    let world = World::start().await;
    let mut app = sleeper("/dev/team/web");
    app["role"] = json!("other");
    let rejected = world.send("POST", "/v2/apps", app.clone()).await;
    let errors = json!([{"path": "/role", "errors": ["got other, expected one of: [*, dev]"]}]);
    assert_eq!((rejected.status, &rejected.body["details"]), (422, &errors));
    app["role"] = json!("dev");
    let created = world.send("POST", "/v2/apps", app).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.settled("/dev/team/web", 1).await;
    assert!(world.scheduler.roles().contains("dev"));
    // Other apps in the group have the default role.
    let created = world.send("POST", "/v2/apps", sleeper("/dev/api")).await;
    assert_eq!(created.body["role"], "*");
    world.stop().await;
}

#[tokio::test]
async fn group_enforces_its_role_on_new_apps_and_the_framework_gets_it() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/dev/old")).await;
    world.quiet().await;
    let enforced = world
        .send("PATCH", "/v2/groups/dev", json!({"enforceRole": true}))
        .await;
    assert_eq!(enforced.status, 200, "{enforced:?}");
    let group = world.get("/v2/groups/dev").await;
    assert_eq!(group["enforceRole"], true);
    let created = world.send("POST", "/v2/apps", sleeper("/dev/team/new")).await;
    assert_eq!((created.status, &created.body["role"]), (201, &json!("dev")));
    let mut other = sleeper("/dev/other");
    other["role"] = json!("*");
    let rejected = world.send("POST", "/v2/apps", other).await;
    assert_eq!(
        (rejected.status, &rejected.body["details"]),
        (
            422,
            &json!([{"path": "/role", "errors": ["got *, expected one of: [dev]"]}])
        )
    );
    // An existing app with another role keeps it.
    let changed = world
        .send("PUT", "/v2/apps/dev/old", json!({"instances": 2}))
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(world.get("/v2/apps/dev/old").await["app"]["role"], "*");
    world.settled("/dev/team/new", 1).await;
    assert!(
        world.scheduler.roles().contains("dev"),
        "the framework subscribes with the role"
    );
    world.quiet().await;
    let world = world.restart().await;
    let created = world.send("POST", "/v2/apps", sleeper("/dev/later")).await;
    assert_eq!(created.body["role"], "dev");
    world.stop().await;
}
