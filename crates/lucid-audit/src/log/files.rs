//! Files that are there as a whole or not at all, also after a power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub(super) use crate::read::text as read;

/// Puts a file in place of what is there, if anything.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = match File::create(temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(folder)?;
            File::create(temporary)?
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
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(above),
    }
}

/// Brings the names in a folder to the disk.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
