//! The roles of the framework. It starts with those of its configuration; services add others while
//! it runs, each by an `UPDATE_FRAMEWORK`.
//!
//! Only roles that the master has accepted are part of later subscriptions, because a subscription
//! with a role that the framework may not have would fail as a whole. A rejected role is tried
//! again, so only its own tasks wait until an operator allows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::time::Instant;
use transom_cluster::v1::FrameworkInfo;
use transom_common::Backoff;

use crate::retry::Retry;

/// The roles for the next subscription. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedRoles(Arc<ArcSwap<Vec<String>>>);

impl AcceptedRoles {
    pub(crate) fn new(roles: Vec<String>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(roles)))
    }

    pub(crate) fn get(&self) -> Vec<String> {
        self.0.load().to_vec()
    }
}

/// The roles that the framework has, and those that are to be added.
#[derive(Debug)]
pub(crate) struct Roles {
    accepted: AcceptedRoles,
    required: BTreeSet<String>,
    /// The description in the current subscription.
    subscribed: FrameworkInfo,
    /// Roles for which the framework has suppressed offers.
    suppressed: BTreeSet<String>,
    retry: Retry,
}

impl Roles {
    pub(crate) fn new(accepted: AcceptedRoles, backoff: Backoff) -> Self {
        let required = accepted.get().into_iter().collect();
        Self {
            accepted,
            required,
            subscribed: FrameworkInfo::default(),
            suppressed: BTreeSet::new(),
            retry: Retry::new(backoff),
        }
    }

    /// Adds a role. Returns whether it is new.
    pub(crate) fn add(&mut self, role: &str) -> bool {
        !self.required.contains(role) && self.required.insert(role.to_owned())
    }

    /// Handles a new subscription with these roles.
    pub(crate) fn subscribed(&mut self, info: FrameworkInfo) {
        self.subscribed = info;
        self.suppressed.clear();
        self.retry.succeeded();
    }

    /// The next description of the framework to send, which has one role more; `None` if none is due.
    pub(crate) fn next_update(&self, now: Instant) -> Option<FrameworkInfo> {
        if self.required.len() == self.subscribed.roles.len() || self.retry.is_backing_off(now) {
            return None;
        }
        let missing_role = self.missing_roles().next()?;
        let mut info = self.subscribed.clone();
        info.roles.push(missing_role.clone());
        Some(info)
    }

    fn missing_roles(&self) -> impl Iterator<Item = &String> {
        let roles = &self.subscribed.roles;
        self.required.iter().filter(|role| !roles.contains(role))
    }

    /// Handles an update that the master accepted, which also ended every SUPPRESS.
    pub(crate) fn updated(&mut self, info: FrameworkInfo) {
        self.accepted.0.store(Arc::new(info.roles.clone()));
        self.subscribed(info);
    }

    /// The framework's own principal.
    pub(crate) fn principal(&self) -> Option<&str> {
        self.subscribed.principal.as_deref()
    }

    /// Handles an update that failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.retry.failed(now);
    }

    /// The time at which the next update is due.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.missing_roles().next().and_then(|_| self.retry.next(now))
    }

    /// The roles to revive with the next REVIVE, and those to suppress. `None` if all roles are
    /// revived, for example because there is only one. `demanded`: roles with pending tasks; `None`
    /// for all.
    pub(crate) fn split_by_demand(
        &self,
        demanded: Option<&BTreeSet<String>>,
    ) -> Option<(Vec<String>, Vec<String>)> {
        let demanded = demanded.filter(|_| self.subscribed.roles.len() > 1)?;
        let roles = self.subscribed.roles.iter().cloned();
        let (revive, others): (Vec<_>, Vec<_>) = roles.partition(|role| demanded.contains(role));
        if revive.is_empty() {
            return None;
        }
        let others = others.into_iter().filter(|role| !self.suppressed.contains(role));
        Some((revive, others.collect()))
    }

    /// Whether the framework has more than one role.
    pub(crate) fn has_several(&self) -> bool {
        self.subscribed.roles.len() > 1
    }

    /// Records that roles were revived. An empty list means all.
    pub(crate) fn revived(&mut self, roles: &[String]) {
        self.suppressed
            .retain(|role| !roles.is_empty() && !roles.contains(role));
    }

    /// Records that roles were suppressed.
    pub(crate) fn suppressed(&mut self, roles: Vec<String>) {
        self.suppressed.extend(roles);
    }
}

/// The reason why the master would reject a role by its name, together with every other change of
/// the framework; `None` if the name is valid.
pub(crate) fn invalid_name(role: &str) -> Option<&'static str> {
    if role == "*" {
        return None;
    }
    if role.is_empty() || role.split('/').any(str::is_empty) {
        return Some("is empty, or has an empty part");
    }
    role.split('/').find_map(|part| match part {
        "." | ".." | "*" => Some("has a part `.`, `..` or `*`"),
        part if part.starts_with('-') => Some("has a part that begins with a dash"),
        part if part.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Some("has a space or a control character")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn roles(initial: &[&str]) -> (Roles, AcceptedRoles) {
        let accepted = AcceptedRoles::new(initial.iter().map(ToString::to_string).collect());
        let backoff = Backoff {
            base: Duration::from_secs(1),
            max: Duration::from_secs(1),
        };
        let mut roles = Roles::new(accepted.clone(), backoff);
        roles.subscribed(FrameworkInfo {
            roles: accepted.get(),
            ..FrameworkInfo::default()
        });
        (roles, accepted)
    }

    #[test]
    fn role_is_added_by_an_update_and_kept_for_later_subscriptions() {
        let now = Instant::now();
        let (mut roles, accepted) = roles(&["a"]);
        assert!(!roles.add("a") && roles.add("c") && roles.add("b") && !roles.add("c"));
        let update = roles.next_update(now).unwrap();
        assert_eq!(update.roles, ["a", "b"]);
        roles.failed(now);
        assert_eq!(roles.next_update(now), None);
        assert!(roles.next(now).is_some());
        assert_eq!(
            accepted.get(),
            ["a"],
            "a rejected role is not part of a subscription"
        );

        let later = now + Duration::from_secs(2);
        let update = roles.next_update(later).unwrap();
        roles.updated(update);
        let update = roles.next_update(later).unwrap();
        assert_eq!(update.roles, ["a", "b", "c"]);
        roles.updated(update);
        assert_eq!((roles.next_update(later), roles.next(later)), (None, None));
        assert_eq!(accepted.get(), ["a", "b", "c"]);
    }

    #[test]
    fn roles_without_demand_are_suppressed_once() {
        let (mut roles, _) = roles(&["a", "b", "c"]);
        let demanded = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let split = |roles: &Roles, names: &[&str]| roles.split_by_demand(Some(&demanded(names)));
        let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(roles.split_by_demand(None), None);
        assert_eq!(split(&roles, &["unknown"]), None);
        assert_eq!(split(&roles, &["b"]), Some((texts(&["b"]), texts(&["a", "c"]))));
        roles.suppressed(texts(&["a", "c"]));
        assert_eq!(split(&roles, &["b"]), Some((texts(&["b"]), vec![])));
        roles.revived(&texts(&["a"]));
        assert_eq!(split(&roles, &["b"]), Some((texts(&["b"]), texts(&["a"]))));
        roles.revived(&[]);
        assert_eq!(split(&roles, &["c"]), Some((texts(&["c"]), texts(&["a", "b"]))));
        let (single, _) = self::roles(&["a"]);
        assert_eq!(split(&single, &["a"]), None);
    }

    #[test]
    fn invalid_names_are_those_that_a_master_rejects() {
        for (name, valid) in [
            ("*", true),
            ("prod", true),
            ("prod/web-1", true),
            ("", false),
            ("/prod", false),
            ("prod/", false),
            ("a//b", false),
            ("a/../b", false),
            ("a/*", false),
            ("-a", false),
            ("a b", false),
        ] {
            assert_eq!(invalid_name(name).is_none(), valid, "{name}");
        }
    }
}
