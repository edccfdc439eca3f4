//! The agents' own API: files in sandboxes, and commands in running tasks.
//!
//! An agent's address comes with its offers ([`v1::Offer::url`](crate::v1::Offer)) or from its pid
//! in the state document. Some clusters reject commands in running tasks (403, `Remote container
//! execution is disabled`).

mod session;

pub use session::CommandResult;

use crate::error::{Error, Result};
use crate::http::{AGENT, Http, Request, answer_name};
use crate::ids::{ContainerId, ExecutorId, FrameworkId};
use crate::v1::CommandInfo;
use crate::v1::Offer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use transom_common::HostPort;
use url::Url;

const READ_FILE: &str = "READ_FILE";

impl Offer {
    /// The address of the agent's own HTTP API, if the offer has one: the IP address rather than
    /// the name, which may not resolve elsewhere.
    pub fn agent_address(&self) -> Option<HostPort> {
        let address = &self.url.as_ref()?.address;
        let host = address.ip.as_ref().or(address.hostname.as_ref())?;
        Some(HostPort::new(host, address.port))
    }
}

/// A file or directory in an agent's file system.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct File {
    /// The full path.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The mode as `ls` prints it: `-rw-r--r--`.
    pub mode: String,
    /// The last modification, in seconds since 1970.
    pub mtime: f64,
    /// The number of links.
    pub nlink: u64,
    /// The owner's name.
    pub uid: String,
    /// The group's name.
    pub gid: String,
}

/// A chunk of a file as text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FileChunk {
    /// The text; the agent replaces bytes that are not UTF-8.
    pub data: String,
    /// The offset in the file.
    pub offset: u64,
}

/// A chunk of a file as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileBytes {
    /// The bytes.
    pub data: Vec<u8>,
    /// The size of the whole file.
    pub size: u64,
}

#[derive(Deserialize)]
struct Flags {
    flags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ReadFile {
    read_file: Encoded,
}

/// `data` in base64; empty if absent, because some agents omit empty fields.
#[derive(Deserialize)]
struct Encoded {
    size: u64,
    #[serde(default)]
    data: String,
}

/// A client of agents. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Agents {
    http: Http,
}

impl Agents {
    pub(crate) fn new(http: Http) -> Self {
        Self { http }
    }

    /// The command-line flags of an agent, by name.
    pub async fn flags(&self, agent: &HostPort) -> Result<BTreeMap<String, String>> {
        let answer: Flags = self.get(agent, "/flags", &[]).await?;
        Ok(answer.flags)
    }

    /// Lists a directory.
    pub async fn browse(&self, agent: &HostPort, path: &str) -> Result<Vec<File>> {
        self.get(agent, "/files/browse", &[("path", path)]).await
    }

    /// Reads up to `length` bytes of a file from `offset`; beyond its end: empty. Agents return at
    /// most a few pages per call.
    pub async fn read(&self, agent: &HostPort, path: &str, offset: u64, length: u64) -> Result<FileChunk> {
        let (offset, length) = (offset.to_string(), length.to_string());
        let query = [("path", path), ("offset", &offset), ("length", &length)];
        self.get(agent, "/files/read", &query).await
    }

    /// As [`Agents::read`], but returns bytes: invalid UTF-8 and a partial character are unchanged.
    pub async fn read_bytes(
        &self,
        agent: &HostPort,
        path: &str,
        offset: u64,
        length: u64,
    ) -> Result<FileBytes> {
        let url = self.url(agent, "/api/v1", &[])?;
        let place = json!({"path": path, "offset": offset, "length": length});
        let body = json!({"type": READ_FILE, "read_file": place});
        let request = Request::post(url.clone(), AGENT, READ_FILE, &body)?;
        let ReadFile { read_file } = self.http.fetch_json(&request).await?;
        let data = STANDARD.decode(&read_file.data).map_err(|_| {
            let what = <serde_json::Error as serde::de::Error>::custom("`data` is not base64");
            Error::decode(answer_name(&url, READ_FILE), what)
        })?;
        Ok(FileBytes {
            data,
            size: read_file.size,
        })
    }

    /// Reads a whole file of at most `limit` bytes, with as many calls as needed.
    ///
    /// A larger file is [`Error::BodyTooLarge`], one that changes meanwhile [`Error::Incomplete`].
    pub async fn read_file(&self, agent: &HostPort, path: &str, limit: u64) -> Result<Vec<u8>> {
        let too_large = || Error::BodyTooLarge {
            call: format!("{READ_FILE} of {path}"),
            limit,
        };
        let mut file = Vec::new();
        let mut first_size = None;
        loop {
            let offset = file.len() as u64;
            let FileBytes { data, size } = self.read_bytes(agent, path, offset, limit).await?;
            let first_size = *first_size.get_or_insert(size);
            let read = offset + data.len() as u64;
            if first_size > limit || read > limit {
                return Err(too_large());
            }
            file.extend(data);
            if read == size && size == first_size {
                return Ok(file);
            }
            // An empty chunk before the end or a changed size means that the file is being written.
            if size != first_size || read == offset || read > size {
                return Err(Error::Incomplete {
                    what: format!("{path} at {agent}"),
                    missing: "its end: the file changed while it was read",
                });
            }
        }
    }

    /// The size of a file.
    pub async fn size(&self, agent: &HostPort, path: &str) -> Result<u64> {
        let query = [("path", path), ("offset", "-1")];
        self.get(agent, "/files/read", &query)
            .await
            .map(|part: FileChunk| part.offset)
    }

    /// Runs a command in a running task's container (`parent`, from the task's
    /// [`ContainerStatus`](crate::v1::ContainerStatus)) and waits until it ends, for at most
    /// `limit`.
    ///
    /// After the limit the command's connection is closed, which makes the agent end it, a kill
    /// call follows, and the result is [`Error::TimedOut`].
    pub async fn run_in_task(
        &self,
        agent: &HostPort,
        parent: &ContainerId,
        command: &CommandInfo,
        limit: Duration,
    ) -> Result<CommandResult> {
        let url = self.url(agent, "/api/v1", &[])?;
        session::run(&self.http, url, parent, command, limit).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        agent: &HostPort,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T> {
        let url = self.url(agent, path, query)?;
        self.http.fetch_json(&Request::get(url, AGENT, path)).await
    }

    fn url(&self, agent: &HostPort, path: &str, query: &[(&str, &str)]) -> Result<Url> {
        let base = format!("{}://{agent}{path}", self.http.config().scheme());
        let mut url = Url::parse(&base).map_err(|error| Error::Config {
            what: format!("the agent's address {agent} is invalid: {error}"),
        })?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }
}

/// The path at which an agent serves the latest sandbox of an executor (a command task's executor
/// has the task's id).
pub fn sandbox(framework: &FrameworkId, executor: &ExecutorId) -> String {
    format!("/frameworks/{framework}/executors/{executor}/runs/latest")
}
