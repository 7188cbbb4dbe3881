//! The file at the end of the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::layout;

use super::files;

/// The segment that is written to. Whatever fails, it ends with a whole line or is not used any more.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    /// How long it is.
    length: u64,
    /// How much of it is on the disk for good.
    synced: u64,
    #[cfg(test)]
    faults: Faults,
}

/// Faults that no disk here has.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// How many of the next calls of fdatasync fail.
    pub(super) syncs: std::sync::Arc<std::sync::atomic::AtomicU32>,
    /// Whether the next calls take until it is false again.
    pub(super) hold: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Whether one does.
    pub(super) held: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Segment {
    /// Makes the one that begins with record `first`.
    pub(super) fn create(directory: &Path, first: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = files::options().append(true).create_new(true).open(&path)?;
        let segment = Self::new(path, file, 0);
        if let Err(error) = files::sync_folder(&directory.join(layout::SEGMENTS)) {
            segment.abandon()?;
            return Err(error);
        }
        Ok(segment)
    }

    /// Goes on with one that is there, after its first `length` bytes. What follows is cut off.
    pub(super) fn resume(directory: &Path, first: u64, length: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = OpenOptions::new().append(true).open(&path)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
        }
        // The process before may have ended before it came to this.
        file.sync_all()?;
        files::sync_folder(&directory.join(layout::SEGMENTS))?;
        Ok(Self::new(path, file, length))
    }

    fn new(path: PathBuf, file: File, length: u64) -> Self {
        Self {
            path,
            file,
            length,
            synced: length,
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Appends lines, by one write(2) if the system takes them at once. On an error nothing of them may stay: see
    /// [`Self::truncate`].
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Takes back what is after `length`.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    /// Brings it to the disk. After an error nobody knows what the disk has, and asking again would not tell: the system
    /// has forgotten what it could not write. The segment has to be given up then.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering::SeqCst;
            while self.faults.hold.load(SeqCst) {
                self.faults.held.store(true, SeqCst);
                std::thread::yield_now();
            }
            self.faults.held.store(false, SeqCst);
            if self.faults.syncs.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(io::Error::other("a fault for this test"));
            }
        }
        self.file.sync_data()?;
        self.synced = self.length;
        Ok(())
    }

    /// Leaves it with what was on the disk for good; another one goes on from there. What is left of it is returned: no other
    /// may begin before [`Self::sync_cut`], or both would have the same records after a failure of power.
    pub(super) fn abandon(self) -> io::Result<Option<Self>> {
        if self.synced == 0 {
            // The next one has its name.
            fs::remove_file(&self.path)?;
            return Ok(None);
        }
        self.file.set_len(self.synced)?;
        Ok(Some(self))
    }

    /// Brings to the disk where it was cut.
    pub(super) fn sync_cut(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
