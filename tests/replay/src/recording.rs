//! The recordings on disk.

use crate::{
    client::{Head, Response},
    run::Error,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder that contains all recordings.
#[derive(Clone, Debug)]
pub(crate) struct Recordings(PathBuf);

impl Recordings {
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        if folder.join("INDEX.md").is_file() {
            return Ok(Self(folder.to_owned()));
        }
        Err(Error::NoRecordings(folder.to_owned()))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.0.join(name);
        std::fs::read(&path).map_err(|source| Error::Recording { path, source })
    }

    /// A response: a `.raw` file.
    pub(crate) fn answer(&self, name: &str) -> Result<Response, Error> {
        Ok(parse(&self.read(&format!("{name}.raw"))?))
    }

    /// A response's head: a `.response-head.txt` file.
    pub(crate) fn head(&self, name: &str) -> Result<Response, Error> {
        Ok(parse(&self.read(&format!("{name}.response-head.txt"))?))
    }

    /// A JSON file.
    pub(crate) fn json(&self, name: &str) -> Result<Value, Error> {
        let path = self.0.join(name);
        serde_json::from_slice(&self.read(name)?).map_err(|source| Error::Recording {
            path,
            source: source.into(),
        })
    }

    /// The events of a stream, in order.
    pub(crate) fn events(&self, name: &str) -> Result<Vec<Value>, Error> {
        let events = self.json(&format!("{name}.events.json"))?;
        Ok(events
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry["event"].clone())
            .collect())
    }

    /// The JSON body of a recorded request: a `.request.txt` file.
    pub(crate) fn request_body(&self, name: &str) -> Result<Value, Error> {
        let file = format!("{name}.request.txt");
        let path = self.0.join(&file);
        let request = parse(&self.read(&file)?);
        serde_json::from_slice(&request.body).map_err(|source| Error::Recording {
            path,
            source: source.into(),
        })
    }
}

/// Parses head and body. The chunk framing stays in the body, which is not compared.
fn parse(bytes: &[u8]) -> Response {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap_or(bytes.len());
    let head = Head::parse(&String::from_utf8_lossy(&bytes[..end]));
    Response {
        head,
        body: bytes.get(end + 4..).unwrap_or_default().to_vec(),
    }
}
