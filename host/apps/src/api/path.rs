//! Parses paths below `/v2/apps/`: ids contain slashes, so the last segments decide.

use transom_web::ApiError;

use crate::ids::{GroupId, IdError, SpecId};

/// The requested resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    App(SpecId),
    /// `{id}/tasks`
    Tasks(SpecId),
    /// `{id}/tasks/{task}`
    Task(SpecId, String),
    /// `{id}/versions`
    Versions(SpecId),
    /// `{id}/versions/{version}`
    Version(SpecId, String),
    /// `{id}/restart`
    Restart(SpecId),
    /// `{group}/*`: all apps below a group.
    AppsBelow(GroupId),
    /// `{group}/*/tasks`
    TasksBelow(GroupId),
}

/// Parses a path. A reserved word without an app id before it is an invalid id: no such app exists.
pub(super) fn target(path: &str) -> Result<Target, ApiError> {
    let missing = |error| ApiError::not_found(format!("App '/{path}' does not exist: the id {error}"));
    parse(path).map_err(missing)
}

/// Parses the path of a PUT or PATCH: an invalid id is a problem of the request, because the app
/// may be new.
pub(super) fn target_of_write(path: &str) -> Result<Target, ApiError> {
    parse(path).map_err(|error| super::error::invalid("/id", error.to_string()))
}

fn parse(path: &str) -> Result<Target, IdError> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let id = |segments: &[&str]| SpecId::parse(&segments.join("/"));
    let group = |segments: &[&str]| GroupId::parse(&segments.join("/"));
    match segments.as_slice() {
        [id_part @ .., "*"] => group(id_part).map(Target::AppsBelow),
        [id_part @ .., "*", "tasks"] => group(id_part).map(Target::TasksBelow),
        [id_part @ .., "tasks"] if !id_part.is_empty() => id(id_part).map(Target::Tasks),
        [id_part @ .., "versions"] if !id_part.is_empty() => id(id_part).map(Target::Versions),
        [id_part @ .., "restart"] if !id_part.is_empty() => id(id_part).map(Target::Restart),
        [id_part @ .., "tasks", task] if !id_part.is_empty() => {
            Ok(Target::Task(id(id_part)?, (*task).to_owned()))
        }
        [id_part @ .., "versions", version] if !id_part.is_empty() => {
            Ok(Target::Version(id(id_part)?, (*version).to_owned()))
        }
        whole => id(whole).map(Target::App),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn paths_are_parsed_to_targets_and_invalid_ones_rejected() {
        let id = |text: &str| SpecId::parse(text).unwrap();
        for (path, expected) in [
            ("web", Target::App(id("/web"))),
            ("shop/web", Target::App(id("/shop/web"))),
            ("shop/web/tasks", Target::Tasks(id("/shop/web"))),
            (
                "shop/web/tasks/t.1",
                Target::Task(id("/shop/web"), "t.1".to_owned()),
            ),
            ("web/versions", Target::Versions(id("/web"))),
            (
                "web/versions/2018-01-01T00:00:00.000Z",
                Target::Version(id("/web"), "2018-01-01T00:00:00.000Z".to_owned()),
            ),
            ("shop/web/restart", Target::Restart(id("/shop/web"))),
            ("*", Target::AppsBelow(GroupId::root())),
            ("shop/*", Target::AppsBelow(GroupId::parse("/shop").unwrap())),
            (
                "shop/*/tasks",
                Target::TasksBelow(GroupId::parse("/shop").unwrap()),
            ),
        ] {
            assert_eq!(target(path).unwrap(), expected, "{path}");
        }
        for path in ["tasks", "Upper", "a/tasks/tasks"] {
            assert!(target(path).is_err(), "{path}");
        }
    }
}
