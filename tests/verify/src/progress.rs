//! Progress lines: on standard error, and with times of day in `verify.log`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;

/// The destinations of progress lines.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    file: Mutex<File>,
}

impl Progress {
    pub(crate) fn new(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("verify.log");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            begun: Instant::now(),
            file: Mutex::new(file),
        })
    }

    pub(crate) fn line(&self, text: &str) {
        eprintln!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of_day = now.as_secs() % 86_400;
        let time = format!(
            "{:02}:{:02}:{:02}.{:03}Z",
            of_day / 3_600,
            of_day / 60 % 60,
            of_day % 60,
            now.subsec_millis()
        );
        if let Ok(mut file) = self.file.lock() {
            // The line was printed already; a full disk causes errors elsewhere.
            let _ = writeln!(file, "{time} {text}");
        }
    }
}
