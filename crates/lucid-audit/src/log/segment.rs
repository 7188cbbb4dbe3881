//! The last segment of a log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::layout;
use crate::read;

use super::files::{self, FileIdentity};

/// The segment that is written to. After a failure it ends with a complete line or is abandoned.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    identity: FileIdentity,
    /// In bytes.
    length: u64,
    /// Length that is flushed to disk.
    synced: u64,
    begun: SystemTime,
    #[cfg(test)]
    faults: Faults,
}

#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Number of subsequent calls of fdatasync that fail.
    pub(super) syncs: std::sync::Arc<std::sync::atomic::AtomicU32>,
    /// `true` to block calls of fdatasync until it is `false` again.
    pub(super) hold: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// `true` while a call is blocked.
    pub(super) held: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Number of subsequent truncations and removals of segments that fail.
    pub(super) cuts: std::sync::Arc<std::sync::atomic::AtomicU32>,
    /// `true` to let half of each write succeed and then report a full disk.
    pub(super) full: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

#[cfg(test)]
impl Faults {
    fn cut(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let faulty = self.cuts.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if faulty { Err(io::Error::other("a fault for this test")) } else { Ok(()) }
    }

    pub(super) fn room(&self) -> io::Result<()> {
        let full = self.full.load(std::sync::atomic::Ordering::SeqCst);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Segment {
    /// Creates the segment that begins with record `first`. Its name may not be durable yet.
    pub(super) fn create(directory: &Path, first: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = files::options().append(true).create_new(true).open(&path)?;
        Self::new(path, file, 0)
    }

    /// Reopens an existing segment, truncating it to `length` bytes.
    pub(super) fn resume(directory: &Path, first: u64, length: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = OpenOptions::new().append(true).open(&path)?;
        if file.metadata()?.len() != length {
            file.set_len(length)?;
        }
        // The previous process may have ended before flushing.
        file.sync_all()?;
        files::sync_folder(&directory.join(layout::SEGMENTS))?;
        Self::new(path, file, length)
    }

    fn new(path: PathBuf, file: File, length: u64) -> io::Result<Self> {
        Ok(Self {
            identity: FileIdentity::of(&file, path.clone())?,
            // Some file systems do not keep it.
            begun: file.metadata()?.created().unwrap_or_else(|_| SystemTime::now()),
            path,
            file,
            length,
            synced: length,
            #[cfg(test)]
            faults: Faults::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the time until the segment is older than `age`; `None` if it has no records.
    pub(super) fn time_until(&self, age: Duration) -> Option<Duration> {
        (self.length > 0).then(|| age.saturating_sub(self.begun.elapsed().unwrap_or_default()))
    }

    /// Appends lines, with one write(2) unless the system accepts only a part. After an error the caller must remove partial
    /// lines with [`Self::truncate`].
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Err(error) = self.faults.room() {
            self.file.write_all(lines.get(..lines.len() / 2).unwrap_or_default())?;
            return Err(error);
        }
        self.file.write_all(lines)?;
        if self.length == 0 {
            self.begun = SystemTime::now();
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.cut()?;
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    /// Flushes the segment to disk. After an error its durable content is unknown and a retry proves nothing, since the
    /// kernel may have dropped the unwritten pages. The caller must abandon the segment then, also if its path refers to
    /// another file or to none: the next process would not find the lines.
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
        self.identity.check()?;
        self.synced = self.length;
        Ok(())
    }

    pub(super) fn check_path(&self) -> io::Result<()> {
        self.identity.check()
    }

    /// Truncates the segment to its durable length, through the open file. [`Self::cut`] must follow.
    pub(super) fn abandon(&mut self) -> io::Result<()> {
        self.truncate(self.synced)
    }

    /// Truncates the file at the segment's path to its durable length and flushes it, or removes it if that length is 0. No
    /// other segment may begin earlier, or both would contain the same records after a power failure. Reopens the file, since
    /// after a remount the open one belongs to the previous mount.
    pub(super) fn cut(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.cut()?;
        if self.synced == 0 {
            // The next segment has the same name.
            return read::found(fs::remove_file(&self.path)).map(drop);
        }
        // Reject anything but regular files: opening a pipe blocks.
        drop(read::open(&self.path)?);
        let file = OpenOptions::new().append(true).open(&self.path)?;
        let length = file.metadata()?.len();
        if length < self.synced {
            let problem = format!("it has {length} bytes, {} were on the disk for good", self.synced);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        file.set_len(self.synced)?;
        file.sync_all()
    }
}
