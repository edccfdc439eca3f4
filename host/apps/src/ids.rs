//! Ids of apps, instances and their tasks, and how one is read out of the other.
//!
//! An app id is an absolute path, `/shop/web`. An instance id is its segments joined by `_`, `.instance-` and a version 1
//! UUID; a task id adds `._app.` and the incarnation, counted from 1. No id segment holds a `_`, so the way back is exact.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use uuid::Uuid;

/// The pattern a path segment has to match, as upstream words it.
pub(crate) const SEGMENT: &str =
    r"^(([a-z0-9]|[a-z0-9][a-z0-9\-]*[a-z0-9])\.)*([a-z0-9]|[a-z0-9][a-z0-9\-]*[a-z0-9])|(\.|\.\.)$";

/// Last segments that the API's own paths need.
const RESERVED: [&str; 3] = ["restart", "tasks", "versions"];

/// An absolute app id: `/shop/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AppId(Arc<str>);

/// Why a text is not an app id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdError {
    /// A segment has characters that ids may not have.
    #[error("must fully match regular expression '{SEGMENT}'")]
    Pattern,
    /// Nothing is left: `/`, or an empty text.
    #[error("Path must contain at least one path element")]
    Root,
    /// The last segment is one of the API's own words.
    #[error("must not end with any of the following reserved keywords: restart, tasks, versions, ., ..")]
    Reserved,
}

impl AppId {
    /// Reads an id, relative ones as relative to `/`; `..` is resolved and empty segments are left out.
    pub(crate) fn parse(text: &str) -> Result<Self, IdError> {
        let mut segments: Vec<&str> = Vec::new();
        for segment in text.split('/').filter(|segment| !segment.is_empty()) {
            if segment == ".." {
                segments.pop();
            } else if is_segment(segment) {
                segments.push(segment);
            } else {
                return Err(IdError::Pattern);
            }
        }
        match segments.last() {
            None => Err(IdError::Root),
            Some(last) if RESERVED.contains(last) => Err(IdError::Reserved),
            Some(_) => Ok(Self(format!("/{}", segments.join("/")).into())),
        }
    }

    /// `/shop/web`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The group the app sits in: `/shop`, or `/`.
    pub(crate) fn group(&self) -> &str {
        match self.0.rfind('/') {
            Some(0) | None => "/",
            Some(at) => &self.0[..at],
        }
    }

    /// `web.shop`: the name of its tasks in the cluster, from which DNS names are made.
    pub(crate) fn task_name(&self) -> String {
        let segments: Vec<&str> = self.segments().rev().collect();
        segments.join(".")
    }

    fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0[1..].split('/')
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_segment(segment: &str) -> bool {
    segment.split('.').all(|part| {
        part.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    })
}

/// One instance of an app: `shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct InstanceId(Arc<str>);

impl InstanceId {
    /// A new instance of `app`.
    pub(crate) fn new(app: &AppId) -> Self {
        let segments: Vec<&str> = app.segments().collect();
        let node: [u8; 6] = rand::random();
        Self(format!("{}.instance-{}", segments.join("_"), Uuid::now_v1(&node)).into())
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The task of this instance's `incarnation`, counted from 1.
    pub(crate) fn task(&self, incarnation: u32) -> TaskId {
        TaskId::from(format!("{}._app.{incarnation}", self.0))
    }

    /// Reads the instance and the incarnation out of a task id; `None` for ids that no app of ours can have.
    pub(crate) fn of_task(task: &TaskId) -> Option<(Self, u32)> {
        let (instance, incarnation) = task.as_str().rsplit_once("._app.")?;
        Some((Self::parse(instance)?, incarnation.parse().ok()?))
    }

    /// Reads an instance id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (app, rest) = text.rsplit_once('.')?;
        let uuid = rest.strip_prefix("instance-")?;
        (!app.is_empty() && Uuid::parse_str(uuid).is_ok()).then(|| Self(text.into()))
    }

    /// The app this is an instance of.
    pub(crate) fn app(&self) -> Option<AppId> {
        let (app, _) = self.0.rsplit_once('.')?;
        AppId::parse(&app.replace('_', "/")).ok()
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn app_ids() {
        for (text, expected) in [
            ("/app", Ok("/app")),
            ("app", Ok("/app")),
            ("/num8bered", Ok("/num8bered")),
            ("shop/web", Ok("/shop/web")),
            ("//shop///web/", Ok("/shop/web")),
            ("/../someid", Ok("/someid")),
            ("/a/../b", Ok("/b")),
            ("/nest.ed/a-b.c", Ok("/nest.ed/a-b.c")),
            ("/asd/sadf+", Err(IdError::Pattern)),
            ("/asd asd", Err(IdError::Pattern)),
            ("/app-", Err(IdError::Pattern)),
            ("/nest./ted", Err(IdError::Pattern)),
            ("/nest/-ted", Err(IdError::Pattern)),
            ("/./x", Err(IdError::Pattern)),
            ("Upper", Err(IdError::Pattern)),
            ("/", Err(IdError::Root)),
            ("/a/..", Err(IdError::Root)),
            ("/a/tasks", Err(IdError::Reserved)),
            ("/a/versions", Err(IdError::Reserved)),
            ("/restart", Err(IdError::Reserved)),
        ] {
            assert_eq!(
                AppId::parse(text).as_ref().map(AppId::as_str),
                expected.as_ref().copied(),
                "{text}"
            );
        }
    }

    #[test]
    fn parts_of_an_app_id() {
        let id = AppId::parse("/shop/back-end/web").unwrap();
        assert_eq!(
            (id.group(), id.task_name().as_str()),
            ("/shop/back-end", "web.back-end.shop")
        );
        assert_eq!(AppId::parse("/web").unwrap().group(), "/");
    }

    #[test]
    fn the_way_from_task_to_app_is_exact() {
        let app = AppId::parse("/shop/web.v2").unwrap();
        let instance = InstanceId::new(&app);
        assert!(instance.as_str().starts_with("shop_web.v2.instance-"));
        let task = instance.task(3);
        assert_eq!(InstanceId::of_task(&task), Some((instance.clone(), 3)));
        assert_eq!(instance.app(), Some(app));
        for foreign in [
            "x",
            "web.instance-1._app.1",
            "web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.x",
        ] {
            assert_eq!(InstanceId::of_task(&TaskId::from(foreign)), None, "{foreign}");
        }
    }
}
