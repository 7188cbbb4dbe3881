use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snafu::{ResultExt, Snafu};

use crate::decision::Decision;

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
    capacity: usize,
    ring: Mutex<VecDeque<Arc<Decision>>>,
    file: Option<Mutex<File>>,
}

impl Recorder {
    /// Keeps the latest `capacity` decisions in memory.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ring: Mutex::new(VecDeque::with_capacity(capacity)), file: None }
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
        let mut ring = lock(&self.ring);
        if ring.len() == self.capacity {
            ring.pop_front();
        }
        if self.capacity > 0 {
            ring.push_back(Arc::new(decision));
        }
        written
    }

    /// The decisions in memory, oldest first.
    #[must_use]
    pub fn latest(&self) -> Vec<Arc<Decision>> {
        lock(&self.ring).iter().cloned().collect()
    }

    fn append(&self, decision: &Decision) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(decision)?;
        line.push(b'\n');
        // One write per line: a reader never sees two of them mixed.
        lock(file).write_all(&line)
    }
}

/// A panic elsewhere does not make the record unusable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
