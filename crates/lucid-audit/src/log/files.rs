//! Files that are there as a whole or not at all, also after a power failure.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) use crate::read::text as read;

/// Permissions of files and folders: the group reads. Those that are there keep theirs.
const FILE: u32 = 0o640;
const FOLDER: u32 = 0o750;

/// Options that create files of a log.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Path, device and inode of an open file. While it is open, no other file has the same.
#[derive(Debug)]
pub(super) struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(super) fn of(file: &File, path: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { path, device: metadata.dev(), inode: metadata.ino() })
    }

    /// Fails when the path leads to another file or to none.
    pub(super) fn check(&self) -> io::Result<()> {
        let problem = |problem: String| {
            io::Error::new(io::ErrorKind::NotFound, format!("{}: {problem}", self.path.display()))
        };
        let found = fs::symlink_metadata(&self.path).map_err(|error| problem(error.to_string()))?;
        if (found.dev(), found.ino()) == (self.device, self.inode) {
            Ok(())
        } else {
            Err(problem("another file has taken its place".to_owned()))
        }
    }
}

/// Writes `bytes` to a new file, brings them to the disk, and removes the file.
pub(super) fn try_out(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_anew(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let removed = fs::remove_file(path);
    written.and(removed)
}

/// Creates a file, in place of one that was left by a process that was killed.
fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => options().write(true).create_new(true).open(path),
    }
}

/// Puts a file in place of what is there, if anything.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = match create_anew(temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(folder)?;
            create_anew(temporary)?
        }
        file => file?,
    };
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if let Err(error) = written.and_then(|()| fs::rename(temporary, path)) {
        // Room for the next attempt, if there is one.
        let _ = fs::remove_file(temporary);
        return Err(error);
    }
    sync_folder(folder)
}

/// Makes a folder and those above it.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_folder(above)?;
    match DirBuilder::new().mode(FOLDER).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(above),
    }
}

/// Brings the names in a folder to the disk.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
