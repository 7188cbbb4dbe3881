//! The file at the end of the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::layout;
use crate::read;

use super::files::{self, FileIdentity};

/// The segment that is written to. Whatever fails, it ends with a whole line or is not used any more.
#[derive(Debug)]
pub(super) struct Segment {
    path: PathBuf,
    file: File,
    identity: FileIdentity,
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
    /// How many of the next truncations and removals of segments fail.
    pub(super) cuts: std::sync::Arc<std::sync::atomic::AtomicU32>,
    /// While it is set, half of what is written fits, and the rest finds the disk full.
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
    /// Makes the one that begins with record `first`. The disk may not have its name yet.
    pub(super) fn create(directory: &Path, first: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = files::options().append(true).create_new(true).open(&path)?;
        Self::new(path, file, 0)
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
        Self::new(path, file, length)
    }

    fn new(path: PathBuf, file: File, length: u64) -> io::Result<Self> {
        Ok(Self {
            identity: FileIdentity::of(&file, path.clone())?,
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

    /// Appends lines, by one write(2) if the system takes them at once. On an error nothing of them may stay: see
    /// [`Self::truncate`].
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Err(error) = self.faults.room() {
            self.file.write_all(lines.get(..lines.len() / 2).unwrap_or_default())?;
            return Err(error);
        }
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Takes back what is after `length`.
    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        self.faults.cut()?;
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    /// Brings it to the disk. After an error nobody knows what the disk has, and asking again would not tell: the system
    /// has forgotten what it could not write. The segment has to be given up then, and also when its path leads to another file
    /// or to none: the next process would not find the lines.
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

    /// Fails when its path leads to another file or to none.
    pub(super) fn check_path(&self) -> io::Result<()> {
        self.identity.check()
    }

    /// Takes back what is not on the disk for good, through the open file. [`Self::cut`] has to follow.
    pub(super) fn abandon(&mut self) -> io::Result<()> {
        self.truncate(self.synced)
    }

    /// Cuts the file at its path to what is on the disk for good, or removes it when that is nothing, and brings that to the
    /// disk. No other segment may begin before, or both would have the same records after a power failure. The open file is
    /// not used: after a volume has returned, it belongs to the mount that is gone.
    pub(super) fn cut(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.cut()?;
        if self.synced == 0 {
            // The next one has its name.
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // A pipe would wait for a reader.
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
