//! Changes files atomically and without lost updates.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu};

use crate::file;

/// A file was not changed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum StoreError<E: std::error::Error + 'static> {
    /// The file cannot be read.
    #[snafu(display("failed to read {}", path.display()))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The file cannot be replaced.
    #[snafu(display("failed to replace {}, which is as it was: {step}", path.display()))]
    Replace {
        /// Path of the file.
        path: PathBuf,
        /// Failed step.
        step: &'static str,
        /// I/O error.
        source: io::Error,
    },
    /// The content cannot be changed.
    #[snafu(display("{}", path.display()))]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: E,
    },
}

/// Replaces the text of the file at `path` with the result of `change`. A missing file counts as `absent`. If
/// `change` returns `None`, the file is not written.
///
/// The new text is written to a temporary file in the same directory, synced and renamed, so that readers see either
/// the old or the new text, even after a crash. Mode and owner are kept, and symbolic links are followed. A lock on
/// the directory serializes writers.
///
/// # Errors
///
/// Returns [`StoreError`] if the file cannot be read, changed or replaced. It is then unchanged.
pub fn change<E: std::error::Error + 'static>(
    path: &Path,
    absent: &str,
    change: impl FnOnce(&str) -> Result<Option<String>, E>,
) -> Result<(), StoreError<E>> {
    let target = target(path).map_err(|(path, source)| StoreError::Read { path, source })?;
    let directory = target.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let locked = File::open(directory).context(ReadSnafu { path: directory })?;
    locked.lock().context(ReplaceSnafu { path, step: "lock its directory" })?;

    let not_text = |error: std::string::FromUtf8Error| io::Error::new(ErrorKind::InvalidData, error);
    let text = file::read(&target).and_then(|bytes| String::from_utf8(bytes).map_err(not_text));
    let (old, metadata) = match text {
        Ok(text) => (text, Some(fs::metadata(&target).context(ReadSnafu { path })?)),
        Err(error) if error.kind() == ErrorKind::NotFound => (absent.to_owned(), None),
        Err(source) => return Err(StoreError::Read { path: path.to_owned(), source }),
    };
    let Some(new) = change(&old).context(ContentSnafu { path })? else { return Ok(()) };

    let failed = |step| ReplaceSnafu { path, step };
    let beside = tempfile::Builder::new()
        .prefix(".lucid-verifier.")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory);
    let mut beside = beside.context(failed("make a file beside it"))?;
    if let Some(old) = metadata {
        let file = beside.as_file();
        let new = file.metadata().context(failed("read the metadata of its replacement"))?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid())).context(failed("keep its owner"))?;
        }
        file.set_permissions(old.permissions()).context(failed("keep its mode"))?;
    }
    beside.write_all(new.as_bytes()).context(failed("write the file beside it"))?;
    beside.as_file().sync_all().context(failed("sync the file beside it"))?;
    beside.persist(&target).map_err(|error| error.error).context(failed("rename the file beside it"))?;
    locked.sync_all().context(ReplaceSnafu { path, step: "sync its directory" })
}

/// Resolves symbolic links in `path`. The file may be missing, its directory may not.
fn target(path: &Path) -> Result<PathBuf, (PathBuf, io::Error)> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            let Some(name) = path.file_name() else { return Err((path.to_owned(), error)) };
            let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let found = fs::canonicalize(directory).map_err(|error| (directory.to_owned(), error))?;
            Ok(found.join(name))
        }
        found => found.map_err(|error| (path.to_owned(), error)),
    }
}
