//! The table of routes in the documentation.

use std::collections::BTreeMap;

use crate::testing::World;

/// Every documented method of every documented path is routed, and no other one.
#[tokio::test]
async fn routes_are_those_of_the_documentation() {
    let page = include_str!("../../../../../docs/apps/routes.md");
    let (_, table) = page.split_once("| method | path | |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let mut documented: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in table.lines().filter(|line| line.contains('`')) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (method, path) = (cells.next().unwrap(), cells.next().unwrap().trim_matches('`'));
        let path = path
            .replace("{id}", "absent")
            .replace("{task}", "absent.1")
            .replace("{instance}", "absent.2")
            .replace("{version}", "2018-01-01T00:00:00.000Z")
            .replace("{deployment}", "absent");
        documented.entry(path).or_default().push(method);
    }
    assert!(documented.len() > 10, "{documented:?}");
    let world = World::start().await;
    for (path, methods) in &documented {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            // The body is invalid for every route that changes definitions.
            let answer = world.call(method, path, Some("{}")).await;
            let message = answer.body["message"].as_str().unwrap_or_default();
            // A DELETE below `restart` is answered with 404 and not 405, because no app can have
            // this id.
            let missing = answer.status == 405 && !message.contains("text/event-stream")
                || (method, path.ends_with("/restart")) == ("DELETE", true);
            assert_eq!(missing, !methods.contains(&method), "{method} {path}: {answer:?}");
        }
    }
    world.stop().await;
}
