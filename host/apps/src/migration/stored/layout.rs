//! Where Marathon keeps what, and the form of a node's content.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use jiff::Timestamp;
use prost::Message;

use super::{StoredError, messages};

/// The path of the storage version, below the path of Marathon.
pub const VERSION: &str = "/state/internal:storage:version";
/// The folder of Marathon's leader election. Each process that runs has an ephemeral node there, whose
/// content is its `host:port`.
pub const LEADERS: &str = "/leader-curator";
/// The largest content of a node in bytes, after decompression.
const MAX_CONTENT: u64 = 64 << 20;
/// The first bytes of gzip. No message and no JSON begins with them.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Folders of a category, over which its nodes are spread by the hash of their names.
const BUCKETS: i32 = 16;
/// The number of [`messages::StorageVersion::format`] since Marathon 1.4.
const FORMAT: i32 = 1;

/// The storage versions after Marathon's numbering by release: those of 1.7 (17), 1.8 (18.x), 1.9
/// (19.x), 1.10 and 1.11 (110). The third number is always 0.
const VERSIONS: &[(u32, u32)] = &[
    (17, 0),
    (18, 0),
    (18, 100),
    (18, 200),
    (19, 100),
    (19, 200),
    (19, 300),
    (110, 0),
];

/// A category of nodes, the first folder below `/state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Definitions of apps: the current one, and a child for each version.
    Apps,
    /// Definitions of pods, like those of apps.
    Pods,
    /// The root group, which names the current version of each app and pod.
    Group,
    /// Instances with their tasks.
    Instances,
    /// Running deployments.
    Deployments,
    /// The last failure of each app.
    TaskFailures,
    /// The framework's id.
    FrameworkId,
}

impl Category {
    /// The path of the folder, below the path of Marathon.
    pub fn folder(self) -> String {
        let name = match self {
            Self::Apps => "apps",
            Self::Pods => "pods",
            Self::Group => "group",
            Self::Instances => "instance",
            Self::Deployments => "deployment",
            Self::TaskFailures => "taskFailures",
            Self::FrameworkId => "framework-id",
        };
        format!("/state/{name}")
    }

    /// The path of the node with this name, below the path of Marathon.
    pub fn node(self, name: &str) -> String {
        format!("{}/{:x}/{name}", self.folder(), bucket(name))
    }
}

/// The folder of a node: Java's hash of its name.
fn bucket(name: &str) -> i32 {
    let hash = name.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    (hash % BUCKETS).abs()
}

/// The content of a node, decompressed.
pub(super) fn content(data: &[u8]) -> Result<Vec<u8>, StoredError> {
    if !data.starts_with(&GZIP) {
        return Ok(data.to_vec());
    }
    let mut content = Vec::new();
    let mut decoder = MultiGzDecoder::new(data).take(MAX_CONTENT + 1);
    decoder.read_to_end(&mut content).map_err(StoredError::Gzip)?;
    if content.len() as u64 > MAX_CONTENT {
        return Err(StoredError::TooLarge { limit: MAX_CONTENT });
    }
    Ok(content)
}

/// The message in a node.
pub(super) fn message<M: Message + Default>(data: &[u8]) -> Result<M, StoredError> {
    M::decode(content(data)?.as_slice()).map_err(StoredError::Protobuf)
}

/// Checks the content of the node [`VERSION`].
///
/// # Errors
/// If Marathon has another storage version than those that can be read.
pub fn check_version(data: &[u8]) -> Result<(), StoredError> {
    let entry: messages::StoreEntry = message(data)?;
    let version: messages::StorageVersion = message(&entry.value)?;
    let is_release = version.major == 1 && matches!(version.minor, 5 | 6);
    let is_known = is_release || version.patch == 0 && VERSIONS.contains(&(version.major, version.minor));
    if version.format == Some(FORMAT) && is_known {
        return Ok(());
    }
    Err(StoredError::Version {
        found: format!("{}.{}.{}", version.major, version.minor, version.patch),
        format: version.format.unwrap_or_default(),
    })
}

/// The versions to read of those that a definition has: the newest `max`, and those that are used.
/// Their names are times, which do not sort as text.
///
/// # Errors
/// If a name is not a time.
pub fn wanted_versions(names: Vec<String>, used: &[String], max: usize) -> Result<Vec<String>, StoredError> {
    let used: Vec<Timestamp> = used.iter().filter_map(|used| used.parse().ok()).collect();
    let mut versions = Vec::new();
    for name in names {
        let time: Timestamp = name
            .parse()
            .map_err(|_| StoredError::Unsupported(format!("{name:?} below it is not a version")))?;
        versions.push((time, name));
    }
    versions.sort_by(|one, other| other.cmp(one));
    let newest = versions.iter().take(max);
    let older = versions.iter().skip(max).filter(|(time, _)| used.contains(time));
    Ok(newest.chain(older).map(|(_, name)| name.clone()).collect())
}
