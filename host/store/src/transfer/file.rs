//! The file of a dump: JSON lines, as text or compressed with gzip.
//!
//! | line | content |
//! |---|---|
//! | first | [`Header`]: `{"transom_dump":1,"transom":"0.1.0","written_at":"…","server":"…"}` |
//! | one for each entry, in byte order of the keys | `{"key":"…","value":…}`, or `{"key":"…","base64":"…"}` for a value that is not one line of JSON |
//! | last | `{"entries":N,"sha256":"…"}`, the SHA-256 of all lines before |
//!
//! Lines end with a line feed. Values are kept byte by byte. A file without its last line was truncated.

use std::io::{self, BufRead, BufReader, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::Snapshot;
use super::snapshot::entry;
use crate::{Entry, limits};

/// The format of this version.
const FORMAT: u32 = 1;
/// Bytes of a line: a key in escapes and a value in base64 fit.
const MAX_LINE: u64 = 6 * limits::MAX_KEY as u64 + limits::MAX_VALUE as u64 / 3 * 4 + 1024;
/// Bytes of a whole dump as text. A store of this size does not fit in the memory of most daemons.
const MAX_DUMP: u64 = 16 << 30;
/// The first bytes of a file in gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format of the file.
    #[serde(rename = "transom_dump")]
    format: u32,
    /// The version of transom that wrote it.
    pub transom: String,
    /// When it was written, for display.
    pub written_at: String,
    /// The address of the store without secrets.
    pub server: String,
}

impl Header {
    /// The header of a dump by this version of transom.
    pub fn new(written_at: String, server: String) -> Self {
        Self {
            format: FORMAT,
            transom: env!("CARGO_PKG_VERSION").to_owned(),
            written_at,
            server,
        }
    }
}

/// A line with an entry.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine<'a> {
    key: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    entries: u64,
    sha256: String,
}

/// Why a dump is rejected.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A line is not as it was written.
    #[error("line {line}: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// The file cannot be read.
    #[error("line {line} cannot be read")]
    Read {
        /// The number of the line, from 1.
        line: u64,
        /// The error of the file or of its decompression.
        #[source]
        source: io::Error,
    },
    /// A later version of transom wrote it.
    #[error(
        "the dump has format {found}, and this version of transom ({}) reads formats up to {FORMAT}: restore it with the \
         version that wrote it ({transom})",
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The format.
        found: u64,
        /// The version that wrote it.
        transom: String,
    },
}

/// Writes a dump, compressed with gzip if `compress`.
///
/// # Errors
/// Those of `out`.
pub fn dump(snapshot: &Snapshot, header: &Header, compress: bool, out: &mut dyn Write) -> io::Result<()> {
    if compress {
        let mut out = GzEncoder::new(out, Compression::default());
        write_lines(snapshot, header, &mut out)?;
        out.finish()?.flush()
    } else {
        write_lines(snapshot, header, out)?;
        out.flush()
    }
}

fn write_lines(snapshot: &Snapshot, header: &Header, out: &mut dyn Write) -> io::Result<()> {
    let mut digest = Sha256::new();
    let mut write = |mut line: Vec<u8>| {
        line.push(b'\n');
        digest.update(&line);
        out.write_all(&line)
    };
    write(serde_json::to_vec(header)?)?;
    for entry in snapshot.entries() {
        let value = one_line_of_json(&entry.value);
        let line = EntryLine {
            key: entry.key.clone(),
            base64: value.is_none().then(|| STANDARD.encode(&entry.value)),
            value,
        };
        write(serde_json::to_vec(&line)?)?;
    }
    let trailer = Trailer {
        entries: snapshot.contents().entries,
        sha256: hex(&digest.finalize()),
    };
    serde_json::to_writer(&mut *out, &trailer)?;
    out.write_all(b"\n")
}

/// The value as JSON, if exactly its bytes are one line of JSON. `null` is not distinguished from a
/// missing member, and is written as base64.
fn one_line_of_json(value: &Bytes) -> Option<&RawValue> {
    let json: &RawValue = serde_json::from_slice(value).ok()?;
    let is_same = json.get().as_bytes() == value && json.get() != "null";
    (is_same && !value.contains(&b'\n') && !value.contains(&b'\r')).then_some(json)
}

/// Reads a whole dump, as text or in gzip, and verifies it.
///
/// # Errors
/// The first line that is damaged, missing, too long, duplicate or out of order; and a dump of a later
/// version.
pub fn read_dump(file: impl Read) -> Result<(Header, Snapshot), DumpError> {
    let mut file = BufReader::new(file);
    let start = file
        .fill_buf()
        .map_err(|source| DumpError::Read { line: 1, source })?;
    if start.starts_with(&GZIP) {
        Lines::new(BufReader::new(MultiGzDecoder::new(file).take(MAX_DUMP))).read_all()
    } else {
        Lines::new(file.take(MAX_DUMP)).read_all()
    }
}

/// The lines of a dump.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// The number of the line.
    number: u64,
    /// Of all lines before the present one.
    digest: Sha256,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            digest: Sha256::new(),
        }
    }

    fn problem(&self, problem: impl Into<String>) -> DumpError {
        DumpError::Line {
            line: self.number,
            problem: problem.into(),
        }
    }

    /// Reads the next line without its line feed. False at the end of the file.
    fn next(&mut self) -> Result<bool, DumpError> {
        if self.number > 0 {
            self.digest.update(&self.line);
            self.digest.update(b"\n");
        }
        self.line.clear();
        self.number += 1;
        let mut limited = self.input.by_ref().take(MAX_LINE + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        read.map_err(|source| DumpError::Read {
            line: self.number,
            source,
        })?;
        match self.line.pop() {
            None => Ok(false),
            Some(b'\n') => Ok(true),
            Some(_) if self.line.len() as u64 >= MAX_LINE => {
                Err(self.problem(format!("it is longer than {MAX_LINE} bytes")))
            }
            Some(_) => Err(self.problem("it has no end: the file is truncated")),
        }
    }

    fn read_all(mut self) -> Result<(Header, Snapshot), DumpError> {
        let header = self.header()?;
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            if !self.next()? {
                return Err(self.problem("the last line of a dump is missing: the file is truncated"));
            }
            if let Ok(trailer) = serde_json::from_slice::<Trailer>(&self.line) {
                self.check_end(&trailer, entries.len() as u64)?;
                return Ok((header, Snapshot::new(entries)));
            }
            let entry = self.entry()?;
            match entries.last() {
                Some(last) if last.key == entry.key => {
                    return Err(self.problem(format!("the key `{}` is there twice", entry.key)));
                }
                Some(last) if last.key > entry.key => {
                    return Err(self.problem(format!("the key `{}` is out of order", entry.key)));
                }
                _ => entries.push(entry),
            }
        }
    }

    fn header(&mut self) -> Result<Header, DumpError> {
        #[derive(Deserialize)]
        struct Format {
            transom_dump: u64,
            #[serde(default)]
            transom: String,
        }
        self.next()?;
        let not_a_dump = |error| self.problem(format!("this is not a file of `transom store dump`: {error}"));
        let found: Format = serde_json::from_slice(&self.line).map_err(not_a_dump)?;
        if found.transom_dump > u64::from(FORMAT) {
            return Err(DumpError::Newer {
                found: found.transom_dump,
                transom: found.transom,
            });
        }
        serde_json::from_slice(&self.line).map_err(not_a_dump)
    }

    fn entry(&self) -> Result<Entry, DumpError> {
        let line: EntryLine<'_> =
            serde_json::from_slice(&self.line).map_err(|error| self.problem(error.to_string()))?;
        let value = match (line.value, line.base64) {
            (Some(value), None) => value.get().to_owned().into_bytes(),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| self.problem(format!("its base64 is invalid: {error}")))?,
            _ => return Err(self.problem("it needs either `value` or `base64`")),
        };
        let batch = crate::Batch::new().put(line.key.clone(), value.clone(), crate::Expect::Any);
        limits::batch(&batch).map_err(|error| self.problem(error.to_string()))?;
        Ok(entry(line.key, value))
    }

    fn check_end(&mut self, trailer: &Trailer, entries: u64) -> Result<(), DumpError> {
        let digest = hex(&self.digest.clone().finalize());
        if trailer.entries != entries {
            return Err(self.problem(format!(
                "the file has {entries} entries, and was written with {}",
                trailer.entries
            )));
        }
        if trailer.sha256 != digest {
            return Err(self.problem("the SHA-256 of the lines before differs: one of them was changed"));
        }
        if self.next()? {
            return Err(self.problem("there is a line after the last one of the dump"));
        }
        Ok(())
    }
}
