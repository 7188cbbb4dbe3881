//! Atomic and durable file operations.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::read::{self, found};

/// Permissions of new files and folders, readable by the group. Existing ones keep theirs.
const FILE: u32 = 0o640;
const FOLDER: u32 = 0o750;

pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Path and identity of an open file.
#[derive(Debug)]
pub(super) struct FileIdentity {
    path: PathBuf,
    identity: (u64, u64),
}

impl FileIdentity {
    pub(super) fn of(file: &File, path: PathBuf) -> io::Result<Self> {
        Ok(Self { path, identity: read::identity(&file.metadata()?) })
    }

    /// Returns an error if the path refers to another file or to none.
    pub(super) fn check(&self) -> io::Result<()> {
        let problem = |problem: String| {
            io::Error::new(io::ErrorKind::NotFound, format!("{}: {problem}", self.path.display()))
        };
        let found = fs::symlink_metadata(&self.path).map_err(|error| problem(error.to_string()))?;
        if read::identity(&found) == self.identity {
            Ok(())
        } else {
            Err(problem("another file has replaced it".to_owned()))
        }
    }
}

/// Checks for free space: writes `bytes` to a new file, flushes and removes it.
pub(super) fn check_space(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_anew(path, FILE)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let removed = fs::remove_file(path);
    written.and(removed)
}

fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    found(fs::remove_file(path))?;
    options().mode(mode).write(true).create_new(true).open(path)
}

/// Atomically creates or replaces a file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_as(FILE, path, bytes)
}

/// Atomically creates or replaces a file that only its owner can read.
pub(super) fn replace_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_as(0o600, path, bytes)
}

fn replace_as(mode: u32, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = match found(create_anew(temporary, mode))? {
        Some(file) => file,
        None => {
            create_folder(folder)?;
            create_anew(temporary, mode)?
        }
    };
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if let Err(error) = written.and_then(|()| fs::rename(temporary, path)) {
        // Free the space for the next attempt.
        let _ = fs::remove_file(temporary);
        return Err(error);
    }
    sync_folder(folder)
}

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

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
