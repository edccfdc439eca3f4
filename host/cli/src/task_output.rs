//! The output of tasks: the end of a stream, what is appended to it, and how it is printed.
//!
//! * A stream of any length is read from its end, in pieces of bounded size.
//! * On a terminal, control characters are escaped and colours left out. Elsewhere the bytes are
//!   printed as they are.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};

use transom_plugin_host::printable;

/// Bytes of one piece: agents return no more at once.
pub(crate) const PIECE: u64 = 64 << 10;
/// The most bytes of a stream that are read to find the beginning of its last lines.
const MAX_TAIL: usize = 8 << 20;
/// The longest line that is held until its end arrives.
const MAX_LINE: usize = 16 << 10;

/// A stream of a task.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    pub(crate) const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A part of a stream.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) data: Vec<u8>,
    /// The offset after it.
    pub(crate) next: u64,
}

/// Why a stream cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It does not exist, and the reason: the task has not started, or its sandbox was removed.
    Missing(String),
    /// It cannot be read now.
    Failed(anyhow::Error),
}

impl ReadError {
    pub(crate) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Missing(reason) => anyhow::anyhow!(reason),
            Self::Failed(error) => error,
        }
    }
}

/// Where the streams of a task are read.
pub(crate) trait Source {
    /// Reads a piece of at most `length` bytes, which is at most [`PIECE`], from `offset`; without
    /// one, the end of the stream.
    async fn read(&self, stream: Stream, offset: Option<u64>, length: u64) -> Result<Piece, ReadError>;
}

/// The last `lines` lines of a stream, or less if these have more than [`MAX_TAIL`] bytes.
pub(crate) async fn tail(source: &impl Source, stream: Stream, lines: usize) -> Result<Piece, ReadError> {
    let end = source.read(stream, None, PIECE).await?;
    let mut start = end.next.saturating_sub(end.data.len() as u64);
    let breaks = |data: &[u8]| data.split(|byte| *byte == b'\n').count() - 1;
    // The line break at the end belongs to the last line.
    let mut before = breaks(&end.data[..end.data.len().saturating_sub(1)]);
    let mut data = VecDeque::from(end.data);
    while start > 0 && data.len() < MAX_TAIL && before < lines {
        let offset = start.saturating_sub(PIECE);
        let earlier = source.read(stream, Some(offset), start - offset).await?.data;
        if earlier.len() as u64 != start - offset {
            // The file was replaced by a shorter one.
            break;
        }
        before += breaks(&earlier);
        for byte in earlier.into_iter().rev() {
            data.push_front(byte);
        }
        start = offset;
    }
    let first = first_of_last_lines(&data, lines).unwrap_or(0);
    data.drain(..first);
    Ok(Piece {
        data: data.into(),
        next: end.next,
    })
}

/// Where the last `lines` lines begin, if there are more lines.
fn first_of_last_lines(data: &VecDeque<u8>, lines: usize) -> Option<usize> {
    if lines == 0 {
        return Some(data.len());
    }
    let ends = (0..data.len().saturating_sub(1))
        .rev()
        .filter(|at| data[*at] == b'\n');
    ends.take(lines).nth(lines - 1).map(|at| at + 1)
}

/// Prints the output of one task.
#[derive(Debug)]
pub(crate) struct Printer {
    /// Printed before each line.
    prefix: String,
    /// Whether stdout and stderr are terminals.
    terminals: [bool; 2],
    /// The beginnings of lines that have not ended.
    partial: [Vec<u8>; 2],
}

impl Printer {
    pub(crate) fn new(prefix: String) -> Self {
        Self {
            prefix,
            terminals: [io::stdout().is_terminal(), io::stderr().is_terminal()],
            partial: Default::default(),
        }
    }

    /// Prints a piece of a stream to the stream of the same name.
    pub(crate) fn print(&mut self, stream: Stream, data: &[u8]) -> io::Result<()> {
        let bytes = self.format(stream, data);
        match stream {
            Stream::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()
            }
            Stream::Stderr => io::stderr().lock().write_all(&bytes),
        }
    }

    /// Prints the last lines, if they have no end.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        for stream in Stream::ALL {
            if !self.partial[stream as usize].is_empty() {
                self.print(stream, b"\n")?;
            }
        }
        Ok(())
    }

    fn format(&mut self, stream: Stream, data: &[u8]) -> Vec<u8> {
        let terminal = self.terminals[stream as usize];
        if !terminal && self.prefix.is_empty() {
            return data.to_vec();
        }
        let mut held = std::mem::take(&mut self.partial[stream as usize]);
        let mut output = Vec::with_capacity(data.len());
        let mut print = |line: &[u8]| {
            output.extend(self.prefix.as_bytes());
            if terminal {
                output.extend(for_terminal(line).as_bytes());
            } else {
                output.extend(line);
            }
            output.push(b'\n');
        };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            held.extend(part);
            if let Some(line) = held.strip_suffix(b"\n") {
                print(line);
                held.clear();
            }
            while held.len() > MAX_LINE {
                let rest = held.split_off(MAX_LINE);
                print(&held);
                held = rest;
            }
        }
        self.partial[stream as usize] = held;
        output
    }
}

/// A line as a terminal may show it: without colours, with tabs, and with every other control character
/// escaped.
fn for_terminal(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    let mut plain = String::with_capacity(text.len());
    for (index, part) in text.split("\u{1b}[").enumerate() {
        let parameters = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match parameters.strip_prefix('m') {
            Some(rest) if index > 0 => plain.push_str(rest),
            _ => {
                if index > 0 {
                    plain.push_str("\u{1b}[");
                }
                plain.push_str(part);
            }
        }
    }
    let cells: Vec<_> = plain.split('\t').map(printable).collect();
    cells.join("\t")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A stream of `size` bytes, which are computed: each line has ten.
    struct Long {
        size: u64,
        reads: AtomicUsize,
    }

    impl Source for Long {
        async fn read(&self, _: Stream, offset: Option<u64>, length: u64) -> Result<Piece, ReadError> {
            assert!(length <= PIECE);
            self.reads.fetch_add(1, Ordering::Relaxed);
            let offset = offset.unwrap_or(self.size.saturating_sub(length));
            let end = (offset + length).min(self.size);
            let byte = |at: u64| {
                if at % 10 == 9 {
                    b'\n'
                } else {
                    b'0' + (at / 10 % 10) as u8
                }
            };
            Ok(Piece {
                data: (offset..end).map(byte).collect(),
                next: end,
            })
        }
    }

    #[tokio::test]
    async fn last_lines_of_a_long_stream_are_read_from_its_end() {
        for (size, lines, expected, reads) in [
            (1 << 30, 3, 24, 1),
            (1 << 30, 10_000, 99_994, 2),
            // More lines than the bound permits.
            (1 << 30, 100_000_000, MAX_TAIL, MAX_TAIL / PIECE as usize),
            (25, 10, 25, 1),
            (20, 1, 10, 1),
            (20, 0, 0, 1),
            (0, 10, 0, 1),
        ] {
            let source = Long {
                size,
                reads: AtomicUsize::new(0),
            };
            let piece = tail(&source, Stream::Stdout, lines).await.expect("a piece");
            assert_eq!(piece.data.len(), expected, "{lines} of {size}");
            assert_eq!(
                (piece.next, source.reads.into_inner()),
                (size, reads),
                "{lines} of {size}"
            );
        }
    }

    fn printer(prefix: &str, terminal: bool) -> Printer {
        Printer {
            prefix: prefix.to_owned(),
            terminals: [terminal; 2],
            partial: Default::default(),
        }
    }

    #[test]
    fn bytes_are_raw_for_a_pipe_and_harmless_on_a_terminal() {
        let data = b"a\t\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07\x1b[2J\xff\xc3";
        assert_eq!(printer("", false).format(Stream::Stdout, data), data);
        let mut terminal = printer("", true);
        assert_eq!(terminal.format(Stream::Stdout, data), b"a\tred\n");
        // A character that spans two pieces is whole.
        let rest = terminal.format(Stream::Stdout, b"\xa4\n");
        let rest = String::from_utf8(rest).expect("text");
        assert_eq!(rest, "\\u{1b}]0;title\\u{7}\\u{1b}[2J\u{fffd}ä\n");
    }

    #[test]
    fn lines_have_the_prefix_and_streams_do_not_mix() {
        let mut printer = printer("a ", false);
        assert_eq!(printer.format(Stream::Stdout, b"1\n2"), b"a 1\n");
        assert_eq!(printer.format(Stream::Stderr, b"x\n"), b"a x\n");
        assert_eq!(printer.format(Stream::Stdout, b"3\n\n"), b"a 23\na \n");
        // A line without an end does not fill the memory.
        let long = printer.format(Stream::Stdout, &vec![b'y'; 3 * MAX_LINE]);
        assert!(long.len() >= 2 * MAX_LINE && printer.partial[0].len() <= MAX_LINE);
    }
}
