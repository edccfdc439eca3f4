//! The words in paths: prefixes, kinds and resources.

use crate::core::command::Resource;
use crate::kind::Kind;

/// The prefix of the neutral paths.
pub(super) const NEUTRAL: &str = "/api/fw";
/// The prefix of the paths with upstream's names.
pub(super) const ALIAS: &str = "/api/m3s";
/// The version of the API, a part of its paths and the header `Api-Service`.
pub(super) const VERSION: &str = "v0";

/// The names of the kinds in paths.
pub(super) const KINDS: [(&str, Kind); 6] = [
    ("server", Kind::Server),
    ("agent", Kind::Agent),
    ("kvstore", Kind::Datastore),
    ("datastore", Kind::Datastore),
    ("etcd", Kind::Datastore),
    ("ds", Kind::Datastore),
];

/// The names of the resources in paths, and whether the name means the limit.
pub(super) const RESOURCES: [(&str, (Resource, bool)); 6] = [
    ("cpus", (Resource::Cpus, false)),
    ("cpusLimit", (Resource::Cpus, true)),
    ("memory", (Resource::Memory, false)),
    ("memoryLimit", (Resource::Memory, true)),
    ("disk", (Resource::Disk, false)),
    ("diskLimit", (Resource::Disk, true)),
];

/// The names of the kinds.
pub(super) const KIND_NAMES: [&str; KINDS.len()] = names(&KINDS);
/// The names of what can be restarted.
pub(super) const SCOPE_NAMES: [&str; KINDS.len() + 1] = {
    let [a, b, c, d, e, f] = KIND_NAMES;
    [a, b, c, d, e, f, "cluster"]
};
/// The names of the resources.
pub(super) const RESOURCE_NAMES: [&str; RESOURCES.len()] = names(&RESOURCES);

const fn names<T, const N: usize>(table: &[(&'static str, T); N]) -> [&'static str; N] {
    let (mut names, mut index) = ([""; N], 0);
    while index < N {
        names[index] = table[index].0;
        index += 1;
    }
    names
}

/// The kind with a name.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind)
}

/// The resource with a name, and whether the name means its limit.
pub(super) fn resource(name: &str) -> Option<(Resource, bool)> {
    let found = RESOURCES.iter().find(|(known, _)| *known == name);
    found.map(|(_, resource)| *resource)
}
