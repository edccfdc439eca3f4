//! `transom job logs`.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;
use transom_plugin_host::printable;

use super::client::{Api, Daemon, complete_jobs, is_final};
use crate::output::print_note;
use crate::task_output::{PIECE, Piece, Printer, ReadError, Source, Stream, tail};

/// Interval of the requests while output is followed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Show the output of a job: the end of stdout and stderr, and with `--follow` what is appended until
/// the job ends.
///
/// On a terminal, control characters are escaped and colours left out; a pipe or a file receives the
/// bytes as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  transom job logs backup\n  transom job logs --follow --lines 10 backup")]
pub(crate) struct Logs {
    /// Id of the job.
    #[arg(add = complete_jobs())]
    id: String,
    /// Continue with what the job writes, until it ends.
    #[arg(short, long)]
    follow: bool,
    /// Lines of each stream to show from its end.
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 100)]
    lines: usize,
    /// Only this stream. Default: both, each on the stream of the same name.
    #[arg(long)]
    stream: Option<Stream>,
    #[command(flatten)]
    daemon: Daemon,
}

struct Output<'a> {
    api: &'a Api,
    id: &'a str,
}

impl Source for Output<'_> {
    async fn read(&self, stream: Stream, offset: Option<u64>, length: u64) -> Result<Piece, ReadError> {
        self.api.read(self.id, stream, offset, length).await
    }
}

impl Logs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let output = Output {
            api: &api,
            id: &self.id,
        };
        let streams = self.stream.map_or(Stream::ALL.to_vec(), |stream| vec![stream]);
        let mut printer = Printer::new(String::new());
        let mut offsets = [None; 2];
        loop {
            // The state is read first, so that the output is complete when the job has ended.
            let status = api.existing(&self.id).await?;
            let state = status["status"]["state"].as_str().unwrap_or_default();
            for stream in &streams {
                let offset = &mut offsets[*stream as usize];
                loop {
                    let read = match offset {
                        None => tail(&output, *stream, self.lines).await,
                        Some(_) => output.read(*stream, *offset, PIECE).await,
                    };
                    let piece = match read {
                        Ok(piece) => piece,
                        // A pending job has no output yet.
                        Err(ReadError::Missing(_)) if self.follow && !is_final(state) => break,
                        Err(error) => return Err(error.into_error()),
                    };
                    printer.print(*stream, &piece.data)?;
                    let is_end = piece.data.is_empty();
                    if offset.replace(piece.next).is_some() && is_end || !self.follow {
                        break;
                    }
                }
            }
            if !self.follow {
                return Ok(printer.finish()?);
            }
            if is_final(state) {
                printer.finish()?;
                let message = status["status"]["message"].as_str().unwrap_or_default();
                let colon = if message.is_empty() { "" } else { ": " };
                print_note(format_args!(
                    "{} ended: {state}{colon}{}",
                    printable(&self.id),
                    printable(message)
                ));
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
