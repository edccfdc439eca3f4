//! The body of a plugin's upload: a tar archive with one or more of `NAME.toml`, `NAME.wasm` and
//! `NAME.wasm.sig`, or a component without an archive.
//!
//! An entry is read only after its name and size have been accepted, so that a body never occupies more
//! memory than its files may have. The only input is the stream.

use std::fmt::Display;
use std::io;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use tar::{EntryType, Header};
use transom_plugin_host::{PluginFiles, UploadError, printable};

/// The first bytes of each WebAssembly binary.
const MAGIC: &[u8] = b"\0asm";
/// The block size of a tar archive.
const BLOCK: usize = 512;
/// The maximum number of bytes of an entry that describes another one, such as a PAX header.
const MAX_EXTENSION: u64 = 64 << 10;
/// The maximum number of entries of an archive, including entries that describe others.
const MAX_ENTRIES: usize = 32;
/// The maximum number of bytes after the end of an archive: tools pad the last record.
const MAX_TRAILING: u64 = 1 << 20;

/// The reason why a body was rejected.
#[derive(Debug)]
pub enum ReadError {
    /// The body has another form; the text contains the expected one.
    Invalid(String),
    /// The plugin host rejects a file.
    Rejected(UploadError),
    /// The connection failed.
    Lost(String),
}

impl From<UploadError> for ReadError {
    fn from(error: UploadError) -> Self {
        ReadError::Rejected(error)
    }
}

/// The files as an archive. The manifest is first, because its limits apply to the entries after it.
pub fn archive(name: &str, files: &PluginFiles) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (content, kind) in [
        (&files.manifest, "toml"),
        (&files.signature, "wasm.sig"),
        (&files.component, "wasm"),
    ] {
        let Some(content) = content else { continue };
        let mut header = Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("{name}.{kind}"), content.as_slice())?;
    }
    archive.into_inner()
}

/// Reads the files of the plugin `name`. `limit` returns the maximum size of a component; its argument
/// is the manifest, if the archive contains one before the component.
pub async fn read<S, E, L>(
    name: &str,
    body: S,
    limit: impl Fn(Option<Vec<u8>>) -> L,
) -> Result<PluginFiles, ReadError>
where
    L: Future<Output = Result<u64, UploadError>>,
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Display,
{
    let mut body = Body {
        chunks: body,
        buffer: BytesMut::new(),
    };
    let mut files = PluginFiles::default();
    body.fill(MAGIC.len()).await?;
    if body.buffer.starts_with(MAGIC) {
        let limit = limit(None).await?;
        let component = body.read_to_end(limit).await?;
        files.component = Some(component.ok_or_else(|| too_large(&format!("{name}.wasm"), limit))?);
        return Ok(files);
    }
    for _ in 0..MAX_ENTRIES {
        let header = body.header(name).await?;
        let Some(header) = header else {
            let ended = body.read_to_end(MAX_TRAILING).await?;
            ended.ok_or_else(|| {
                ReadError::Invalid(format!("more than {MAX_TRAILING} bytes follow the archive"))
            })?;
            return Ok(files);
        };
        let size = header
            .entry_size()
            .map_err(|_| expected(name, "an entry without a size"))?;
        let entry = header.path_bytes();
        let entry = String::from_utf8_lossy(entry.strip_prefix(b"./").unwrap_or(&entry)).into_owned();
        match header.entry_type() {
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::XHeader | EntryType::XGlobalHeader if size <= MAX_EXTENSION => {
                body.content(size).await?;
                continue;
            }
            // The entry for the directory itself in an archive by `tar c .`
            EntryType::Directory if size == 0 && entry.is_empty() => continue,
            _ => {
                return Err(expected(
                    name,
                    &format!("{:?}, which is not a file", printable(&entry)),
                ));
            }
        }
        let (slot, max_size, setting) = match entry.strip_prefix(name).unwrap_or_default() {
            ".toml" => (
                &mut files.manifest,
                PluginFiles::MAX_MANIFEST,
                "any manifest's limit",
            ),
            ".wasm.sig" => (
                &mut files.signature,
                PluginFiles::MAX_SIGNATURE,
                "any signature's limit",
            ),
            ".wasm" => {
                let max_size = limit(files.manifest.clone()).await?;
                (&mut files.component, max_size, "limits.size")
            }
            _ => return Err(expected(name, &format!("{:?}", printable(&entry)))),
        };
        if slot.is_some() {
            return Err(expected(name, &format!("{:?} twice", printable(&entry))));
        }
        if size > max_size {
            let file = entry;
            let limit = max_size;
            return Err(UploadError::TooLarge { file, limit, setting }.into());
        }
        *slot = Some(body.content(size).await?);
    }
    Err(expected(name, &format!("more than {MAX_ENTRIES} entries")))
}

fn too_large(file: &str, limit: u64) -> ReadError {
    let (file, setting) = (file.to_owned(), "limits.size");
    UploadError::TooLarge { file, limit, setting }.into()
}

fn expected(name: &str, problem: &str) -> ReadError {
    ReadError::Invalid(format!(
        "the body has {problem}; expected a component, or a tar archive of {name}.toml and {name}.wasm, and of \
         {name}.wasm.sig if components are signed"
    ))
}

/// A body that is read in pieces of known sizes.
struct Body<S> {
    chunks: S,
    buffer: BytesMut,
}

impl<S: Stream<Item = Result<Bytes, E>> + Unpin, E: Display> Body<S> {
    /// Reads until the buffer contains at least `size` bytes. Returns false if the body ends before.
    async fn fill(&mut self, size: usize) -> Result<bool, ReadError> {
        while self.buffer.len() < size {
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                Some(Err(error)) => return Err(ReadError::Lost(error.to_string())),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads the rest of the body; `None` if it has more than `limit` bytes.
    async fn read_to_end(&mut self, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX - 1);
        let exceeds = self.fill(limit + 1).await?;
        Ok((!exceeds).then(|| self.buffer.split().to_vec()))
    }

    /// Reads the next entry's header; `None` at the end of the archive.
    async fn header(&mut self, name: &str) -> Result<Option<Header>, ReadError> {
        if !self.fill(BLOCK).await? {
            let problem = if self.buffer.is_empty() {
                "no end, or is empty"
            } else {
                "an unknown format"
            };
            return Err(expected(name, problem));
        }
        let block = self.buffer.split_to(BLOCK);
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block);
        // The checksum is computed with its own field as spaces.
        let sum = block.iter().enumerate().map(|(index, byte)| match index {
            148..156 => u32::from(b' '),
            _ => u32::from(*byte),
        });
        if header.cksum().ok() != Some(sum.sum()) {
            return Err(expected(name, "an unknown format"));
        }
        Ok(Some(header.clone()))
    }

    /// Reads an entry's content. Its size must have been accepted before.
    async fn content(&mut self, size: u64) -> Result<Vec<u8>, ReadError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let padded = size.next_multiple_of(BLOCK);
        if !self.fill(padded).await? {
            return Err(ReadError::Invalid("the archive ends within a file".to_owned()));
        }
        let mut content = self.buffer.split_to(padded);
        content.truncate(size);
        Ok(content.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;

    use super::*;

    const LIMIT: u64 = 2000;

    /// Reads a body that arrives in pieces of `piece` bytes. The limit with a manifest is ten times the
    /// manifest's length.
    async fn read_in_pieces(body: &[u8], piece: usize) -> Result<PluginFiles, ReadError> {
        let chunks = body
            .chunks(piece)
            .map(|it| Ok::<_, Infallible>(Bytes::copy_from_slice(it)));
        let limit = async |manifest: Option<Vec<u8>>| match manifest {
            Some(manifest) => Ok(10 * manifest.len() as u64),
            None => Ok(LIMIT),
        };
        read("x", stream::iter(chunks.collect::<Vec<_>>()), limit).await
    }

    fn component(size: usize) -> Vec<u8> {
        let mut component = MAGIC.to_vec();
        component.resize(size, 7);
        component
    }

    fn entries(entries: &[(&str, EntryType, usize)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, kind, size) in entries {
            let mut header = Header::new_gnu();
            header.set_size(*size as u64);
            header.set_entry_type(*kind);
            // `set_path` would reject some names that a client may send.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, vec![b'm'; *size].as_slice()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[tokio::test]
    async fn archive_is_read_as_it_was_written() {
        for files in [
            PluginFiles {
                component: Some(component(1500)),
                manifest: Some(vec![b'm'; 200]),
                signature: Some(vec![1; 64]),
            },
            PluginFiles {
                manifest: Some(vec![b'm'; 512]),
                ..PluginFiles::default()
            },
        ] {
            let body = archive("x", &files).unwrap();
            for piece in [1, 511, 513, 100_000] {
                let read_files = read_in_pieces(&body, piece).await.unwrap();
                assert_eq!(read_files.component, files.component, "{piece}");
                assert_eq!(read_files.manifest, files.manifest, "{piece}");
                assert_eq!(read_files.signature, files.signature, "{piece}");
            }
            let cut = read_in_pieces(&body[..body.len() - 1024], 100_000).await;
            assert!(matches!(cut, Err(ReadError::Invalid(_))), "{cut:?}");
        }
        let component_only = read_in_pieces(&component(2000), 100).await.unwrap();
        assert_eq!(component_only.component, Some(component(2000)));
        assert!(component_only.manifest.is_none());
    }

    #[tokio::test]
    async fn other_bodies_are_rejected_with_the_expected_form() {
        let file = EntryType::Regular;
        for (body, expected) in [
            (b"".to_vec(), "is empty"),
            (b"world = \"check-probe\"".to_vec(), "an unknown format"),
            (vec![b'x'; 600], "an unknown format"),
            (
                entries(&[("y.wasm", file, 5)]),
                "\"y.wasm\"; expected a component",
            ),
            (entries(&[("../x.wasm", file, 5)]), "\"../x.wasm\""),
            (entries(&[("/etc/x.wasm", file, 5)]), "\"/etc/x.wasm\""),
            (entries(&[("a/x.wasm", file, 5)]), "\"a/x.wasm\""),
            (entries(&[("\u{1b}[2J", file, 5)]), "\\u{1b}[2J"),
            (
                entries(&[("x.toml", EntryType::Symlink, 0)]),
                "which is not a file",
            ),
            (entries(&[("x.toml", EntryType::Link, 0)]), "which is not a file"),
            (
                entries(&[("x.toml", EntryType::Directory, 0)]),
                "which is not a file",
            ),
            (entries(&[("x.toml", EntryType::Fifo, 0)]), "which is not a file"),
            (entries(&[("x.toml", file, 5), ("x.toml", file, 5)]), "twice"),
            (
                entries(&vec![("pax", EntryType::XHeader, 5); MAX_ENTRIES + 1]),
                "more than 32 entries",
            ),
            (
                entries(&[("pax", EntryType::XHeader, 1 + (64 << 10))]),
                "which is not a file",
            ),
            (
                [entries(&[("x.toml", file, 5)]), vec![0; 2 << 20]].concat(),
                "follow the archive",
            ),
        ] {
            match read_in_pieces(&body, 1000).await {
                Err(ReadError::Invalid(text)) => assert!(text.contains(expected), "{expected}: {text}"),
                other => panic!("{expected}: {other:?}"),
            }
        }
        let tolerated = entries(&[
            ("./", EntryType::Directory, 0),
            ("pax", EntryType::XGlobalHeader, 52),
            ("./x.toml", file, 5),
        ]);
        assert!(read_in_pieces(&tolerated, 1000).await.unwrap().manifest.is_some());
    }

    #[tokio::test]
    async fn files_over_their_limit_are_rejected_before_they_are_read() {
        let file = EntryType::Regular;
        // Only the header is sent: reading the content would not end.
        let header_only = |entry: (&str, EntryType, usize)| entries(&[entry])[..BLOCK].to_vec();
        for (body, name) in [
            (component(2001), "x.wasm"),
            (header_only(("x.wasm", file, 2001)), "x.wasm"),
            (
                entries(&[("x.toml", file, 20), ("x.wasm", file, 201)])[..3 * BLOCK].to_vec(),
                "x.wasm",
            ),
            (header_only(("x.toml", file, 1 + (1 << 20))), "x.toml"),
            (header_only(("x.wasm.sig", file, 1 + (16 << 10))), "x.wasm.sig"),
        ] {
            match read_in_pieces(&body, 1000).await {
                Err(ReadError::Rejected(UploadError::TooLarge { file, .. })) => assert_eq!(file, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
