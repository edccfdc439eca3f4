//! Ids of groups, apps, instances and tasks, and the conversions between them.
//!
//! An app id is an absolute path, `/shop/web`; it lies in the group `/shop`, which lies in the root
//! group `/`. An instance id is its segments joined by `_`, then
//! `.instance-` and a version 1 UUID; a task id adds `._app.` and the incarnation, counted from 1.
//! No segment contains a `_`, so the conversion is reversible.
//!
//! Tasks that Marathon launched keep their ids when they are imported. Its older versions had other
//! forms, which are read but never made:
//!
//! | task id | instance id | incarnation |
//! |---|---|---|
//! | `shop_web.UUID` | `shop_web.marathon-UUID` | 0 |
//! | `shop_web.UUID.3` | `shop_web.marathon-UUID` | 3 |
//! | `shop_web.marathon-UUID` | the same | 0 |
//! | `shop_web.instance-UUID._app`, or the name of a container | `shop_web.instance-UUID` | 0 |
//! | `shop_web.marathon-UUID._app.3` | `shop_web.marathon-UUID` | 3 |

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use transom_common::ambient;
use uuid::Uuid;

/// The pattern that a path segment must match, in upstream's wording.
pub(crate) const SEGMENT: &str =
    r"^(([a-z0-9]|[a-z0-9][a-z0-9\-]*[a-z0-9])\.)*([a-z0-9]|[a-z0-9][a-z0-9\-]*[a-z0-9])|(\.|\.\.)$";

/// Final segments that the API reserves for its own paths.
const RESERVED: &[&str] = &["restart", "tasks", "versions"];

/// The most segments of the path of a new app, pod or group.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// The most characters of the path of a new app, pod or group. The ids of its tasks, with a UUID and
/// the incarnation, then have at most the 255 characters that the cluster accepts.
pub(crate) const MAX_LENGTH: usize = 190;

/// The problem of a path that is too long for a new app, pod or group.
pub(crate) fn length_problem(path: &str) -> Option<String> {
    let (segments, length) = (path.split('/').skip(1).count(), path.len());
    if segments > MAX_SEGMENTS {
        return Some(format!(
            "has {segments} segments; at most {MAX_SEGMENTS} are allowed"
        ));
    }
    (length > MAX_LENGTH).then(|| {
        format!(
            "has {length} characters; at most {MAX_LENGTH} are allowed, because ids of tasks begin with it"
        )
    })
}

/// The absolute id of an app or pod: `/shop/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct SpecId(Arc<str>);

/// Why a text is not a valid app id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdError {
    /// A segment contains characters that are not allowed.
    #[error("must fully match regular expression '{SEGMENT}'")]
    Pattern,
    /// No segment remains: `/` or an empty text.
    #[error("Path must contain at least one path element")]
    Root,
    /// The last segment is a reserved word of the API.
    #[error("must not end with any of the following reserved keywords: restart, tasks, versions, ., ..")]
    Reserved,
}

impl SpecId {
    /// Parses an id. A relative id is resolved against `/`; `..` is resolved and empty segments are
    /// dropped.
    pub(crate) fn parse(text: &str) -> Result<Self, IdError> {
        Self::parse_in(&GroupId::root(), text)
    }

    /// Parses an id that is relative to a group, unless it begins with a slash.
    pub(crate) fn parse_in(group: &GroupId, text: &str) -> Result<Self, IdError> {
        let segments = resolve(group.as_str(), text)?;
        match segments.last() {
            None => Err(IdError::Root),
            Some(last) if RESERVED.contains(last) => Err(IdError::Reserved),
            Some(_) => Ok(Self(format!("/{}", segments.join("/")).into())),
        }
    }

    /// The id as text: `/shop/web`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The group that the app lies in: `/shop`, or `/`.
    pub(crate) fn group(&self) -> GroupId {
        GroupId(parent(&self.0).into())
    }

    /// The name of the top-level group that it lies in: `shop` of `/shop/back/web`; `None` of `/web`.
    pub(crate) fn top_level_group(&self) -> Option<&str> {
        let (group, _) = self.0[1..].split_once('/')?;
        Some(group)
    }

    /// The name of its tasks in the cluster, such as `web.shop`, from which DNS names are formed.
    pub(crate) fn task_name(&self) -> String {
        let segments: Vec<&str> = self.segments().rev().collect();
        segments.join(".")
    }

    fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0[1..].split('/')
    }
}

impl fmt::Display for SpecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for SpecId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The path of a group: `/shop`, or `/` for the root group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct GroupId(Arc<str>);

impl GroupId {
    /// The root group.
    pub(crate) fn root() -> Self {
        Self("/".into())
    }

    /// Parses a path. A relative one is resolved against `/`.
    pub(crate) fn parse(text: &str) -> Result<Self, IdError> {
        Self::parse_in(&Self::root(), text)
    }

    /// Parses a path that is relative to a group, unless it begins with a slash.
    pub(crate) fn parse_in(group: &Self, text: &str) -> Result<Self, IdError> {
        let segments = resolve(&group.0, text)?;
        Ok(Self(format!("/{}", segments.join("/")).into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// The group that contains this one; `None` for the root group.
    pub(crate) fn parent(&self) -> Option<Self> {
        (!self.is_root()).then(|| Self(parent(&self.0).into()))
    }

    /// This group and all groups that it lies in, up to the root group.
    pub(crate) fn with_ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// The paths of [`GroupId::with_ancestors`].
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |path| (*path != "/").then(|| parent(path)))
    }

    /// The prefix of the paths of all apps and groups below this one.
    pub(crate) fn prefix(&self) -> String {
        if self.is_root() {
            "/".to_owned()
        } else {
            format!("{}/", self.0)
        }
    }

    /// Whether the group lies directly in the root group.
    pub(crate) fn is_top(&self) -> bool {
        !self.is_root() && self.parent().is_some_and(|parent| parent.is_root())
    }

    /// Whether an app or a group with this path lies below the group, at any depth.
    pub(crate) fn is_above(&self, path: &str) -> bool {
        path.len() > 1 && path != &*self.0 && path.starts_with(&self.prefix())
    }
}

impl From<&SpecId> for GroupId {
    /// The group with the path of an app.
    fn from(id: &SpecId) -> Self {
        Self(Arc::clone(&id.0))
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for GroupId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The path without its last segment.
fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// The segments of a path that is relative to `base`, unless it begins with a slash.
fn resolve<'a>(base: &'a str, text: &'a str) -> Result<Vec<&'a str>, IdError> {
    let base = if text.starts_with('/') { "" } else { base };
    let mut segments: Vec<&str> = base.split('/').filter(|segment| !segment.is_empty()).collect();
    for segment in text.split('/').filter(|segment| !segment.is_empty()) {
        if segment == ".." {
            segments.pop();
        } else if is_segment(segment) {
            segments.push(segment);
        } else {
            return Err(IdError::Pattern);
        }
    }
    Ok(segments)
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

/// The word before the UUID in an instance id. `instance-` is used by this daemon and newer
/// versions of Marathon, `marathon-` for instances whose tasks older versions launched.
const KINDS: &[&str] = &["instance-", "marathon-"];

/// One instance of an app or pod: `shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct InstanceId(Arc<str>);

impl InstanceId {
    /// A new instance of `app`.
    pub(crate) fn new(app: &SpecId) -> Self {
        let segments: Vec<&str> = app.segments().collect();
        let [_, _, node @ ..] = ambient::random().to_be_bytes();
        let (now, counter) = (ambient::now(), u128::from(ambient::random() as u16));
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let nanoseconds = u32::try_from(now.subsec_nanosecond()).unwrap_or_default();
        // A UUID of version 1 has 14 bits that tell ids of the same time apart.
        let time = uuid::Timestamp::from_unix_time(seconds, nanoseconds, counter, 14);
        let uuid = Uuid::new_v1(time, &node);
        Self(format!("{}.instance-{uuid}", segments.join("_")).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the request for the task with that `incarnation`, counted from 1: the id of an
    /// app's task, or of the group of a pod's tasks. The id of an imported task can differ; its
    /// record contains it.
    pub(crate) fn task(&self, incarnation: u32) -> TaskId {
        TaskId::from(format!("{}._app.{incarnation}", self.0))
    }

    /// The id of the task of a pod's container, in the group with this id.
    pub(crate) fn container_task(group: &TaskId, container: &str) -> TaskId {
        let (instance, incarnation) = group.as_str().rsplit_once("._app.").unwrap_or_default();
        TaskId::from(format!("{instance}.{container}.{incarnation}"))
    }

    /// Parses the instance and the incarnation from the id of a task or group; `None` if it is not
    /// such an id.
    pub(crate) fn of_task(task: &TaskId) -> Option<(Self, u32)> {
        let text = task.as_str();
        let (rest, last) = text.rsplit_once('.')?;
        let number = last.parse().ok();
        if let (Some(number), Some((instance, _))) = (number, rest.rsplit_once('.'))
            && let Some(instance) = Self::parse(instance)
        {
            return Some((instance, number));
        }
        // Forms of Marathon's older versions.
        if let Some(instance) = Self::parse(text) {
            return last.starts_with("marathon-").then_some((instance, 0));
        }
        if let Some(instance) = Self::parse(rest) {
            return number.is_none().then_some((instance, 0));
        }
        match number {
            Some(number) => Some((Self::of_uuid(rest)?, number)),
            None => Some((Self::of_uuid(text)?, 0)),
        }
    }

    /// The instance of a task whose id consists of the app's id and a UUID.
    fn of_uuid(text: &str) -> Option<Self> {
        let (app, uuid) = text.rsplit_once('.')?;
        Self::parse(&format!("{app}.marathon-{uuid}"))
    }

    /// Parses an instance id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (app, rest) = text.rsplit_once('.')?;
        let uuid = KINDS.iter().find_map(|kind| rest.strip_prefix(kind))?;
        let hyphenated = uuid.len() == uuid::fmt::Hyphenated::LENGTH && Uuid::parse_str(uuid).is_ok();
        (!app.is_empty() && hyphenated).then(|| Self(text.into()))
    }

    /// The app or pod of this instance.
    pub(crate) fn spec(&self) -> Option<SpecId> {
        let (app, _) = self.0.rsplit_once('.')?;
        SpecId::parse(&app.replace('_', "/")).ok()
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
    fn app_ids_are_normalized_and_invalid_ones_rejected() {
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
                SpecId::parse(text).as_ref().map(SpecId::as_str),
                expected.as_ref().copied(),
                "{text}"
            );
        }
    }

    #[test]
    fn app_id_gives_its_group_and_task_name() {
        let id = SpecId::parse("/shop/back-end/web").unwrap();
        assert_eq!(id.top_level_group(), Some("shop"));
        assert_eq!(SpecId::parse("/web").unwrap().top_level_group(), None);
        assert_eq!(
            (id.group().as_str(), id.task_name().as_str()),
            ("/shop/back-end", "web.back-end.shop")
        );
        assert_eq!(SpecId::parse("/web").unwrap().group(), GroupId::root());
    }

    #[test]
    fn relative_paths_are_resolved_against_their_group() {
        let group = GroupId::parse("/shop/back").unwrap();
        for (text, expected) in [
            ("web", "/shop/back/web"),
            ("../web", "/shop/web"),
            ("/web", "/web"),
            ("a/b", "/shop/back/a/b"),
        ] {
            assert_eq!(SpecId::parse_in(&group, text).unwrap().as_str(), expected);
            assert_eq!(GroupId::parse_in(&group, text).unwrap().as_str(), expected);
        }
        assert_eq!(GroupId::parse_in(&group, "../..").unwrap(), GroupId::root());
        assert_eq!(SpecId::parse_in(&group, "../.."), Err(IdError::Root));
    }

    #[test]
    fn group_is_above_apps_and_groups_in_it() {
        let (root, shop) = (GroupId::root(), GroupId::parse("/shop").unwrap());
        assert!(root.is_above("/shop") && shop.is_above("/shop/web") && shop.is_above("/shop/a/b"));
        assert!(!root.is_above("/") && !shop.is_above("/shop") && !shop.is_above("/shop-2/web"));
        let chain: Vec<String> = GroupId::parse("/a/b")
            .unwrap()
            .with_ancestors()
            .map(|id| id.to_string())
            .collect();
        assert_eq!(chain, ["/a/b", "/a", "/"]);
        let group = GroupId::parse("/a/b").unwrap();
        assert_eq!(group.paths().collect::<Vec<_>>(), chain);
    }

    #[test]
    fn task_ids_of_the_longest_app_id_are_accepted_by_the_cluster() {
        let id = format!("/{}", "a".repeat(MAX_LENGTH - 1));
        assert_eq!(length_problem(&id), None);
        let task = InstanceId::new(&SpecId::parse(&id).unwrap()).task(u32::MAX);
        assert!(task.as_str().len() <= 255, "{}", task.as_str().len());
        assert!(length_problem(&format!("{id}a")).is_some());
        assert_eq!(length_problem(&"/a".repeat(MAX_SEGMENTS)), None);
        assert!(length_problem(&"/a".repeat(MAX_SEGMENTS + 1)).is_some());
        assert_eq!(length_problem("/"), None);
    }

    #[test]
    fn instance_and_app_are_recovered_from_a_task_id() {
        let app = SpecId::parse("/shop/web.v2").unwrap();
        let instance = InstanceId::new(&app);
        assert!(instance.as_str().starts_with("shop_web.v2.instance-"));
        let task = instance.task(3);
        assert_eq!(InstanceId::of_task(&task), Some((instance.clone(), 3)));
        assert_eq!(instance.spec(), Some(app));
        for foreign in [
            "x",
            "web.instance-1._app.1",
            "web.instance-0664256e-6771-11e5-94e1-be5b2935a987",
            "web.instance-0664256e-6771-11e5-94e1-be5b2935a987.1",
            "web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.x",
            "web.0664256e67711e594e1be5b2935a9877",
            "0664256e-6771-11e5-94e1-be5b2935a987",
            "web.0664256e-6771-11e5-94e1-be5b2935a987._app",
        ] {
            assert_eq!(InstanceId::of_task(&TaskId::from(foreign)), None, "{foreign}");
        }
    }

    #[test]
    fn ids_of_marathons_older_versions_give_their_instance() {
        const UUID: &str = "0664256e-6771-11e5-94e1-be5b2935a987";
        for (task, kind, number) in [
            ("shop_web.v2.{}", "marathon-", 0),
            ("shop_web.v2.{}.3", "marathon-", 3),
            ("shop_web.v2.marathon-{}", "marathon-", 0),
            ("shop_web.v2.marathon-{}._app.2", "marathon-", 2),
            ("shop_web.v2.instance-{}._app", "instance-", 0),
            ("shop_web.v2.instance-{}.nginx", "instance-", 0),
            ("shop_web.v2.instance-{}.nginx.4", "instance-", 4),
        ] {
            let task = TaskId::from(task.replace("{}", UUID));
            let (instance, incarnation) = InstanceId::of_task(&task).unwrap();
            assert_eq!(instance.as_str(), format!("shop_web.v2.{kind}{UUID}"), "{task}");
            assert_eq!(incarnation, number, "{task}");
            assert_eq!(instance.spec(), SpecId::parse("/shop/web.v2").ok());
        }
    }
}
