use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use snafu::{ResultExt, Snafu};
use tokio::sync::watch;

use crate::decision::Decision;
use crate::ring::{Entry, Ring};

/// The file for the decisions could not be opened.
#[derive(Debug, Snafu)]
#[snafu(display("failed to open {} to append decisions: {source}", path.display()))]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

/// Keeps decisions: the latest in memory, all of them in a file if there is one.
///
/// All methods take `&self`; share it in an [`Arc`].
#[derive(Debug)]
pub struct Recorder {
    ring: Ring,
    file: Option<Mutex<File>>,
}

impl Recorder {
    /// Keeps the latest `capacity` decisions in memory.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { ring: Ring::new(capacity), file: None }
    }

    /// Also appends each decision to the file at `path`, one line of JSON each. The file is created when absent.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened for appending.
    pub fn with_file(mut self, path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new().append(true).create(true).open(path).context(OpenSnafu { path })?;
        self.file = Some(Mutex::new(file));
        Ok(self)
    }

    /// Records a decision.
    ///
    /// # Errors
    ///
    /// When it cannot be written to the file; it is in memory all the same.
    pub fn record(&self, decision: Decision) -> io::Result<()> {
        let written = self.append(&decision);
        self.ring.push(decision);
        written
    }

    /// The decisions in memory, oldest first. Nobody who records waits for who reads.
    #[must_use]
    pub fn latest(&self) -> Vec<Arc<Entry>> {
        self.ring.since(0)
    }

    /// The decisions in memory that came after the one with this [number](Entry::number), oldest first.
    #[must_use]
    pub fn since(&self, number: u64) -> Vec<Arc<Entry>> {
        self.ring.since(number)
    }

    /// The number of the latest decision, to wait for the next; 0 before the first.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.ring.watch()
    }

    fn append(&self, decision: &Decision) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(decision)?;
        line.push(b'\n');
        // One write per line: a reader never sees two of them mixed.
        file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}
