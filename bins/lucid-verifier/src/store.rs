//! Changing a file so that nobody ever reads half of it, and no change of another writer is lost.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu};

use crate::file;

/// Why a file was not changed.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum StoreError<E: std::error::Error + 'static> {
    /// It cannot be read.
    #[snafu(display("failed to read {}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be replaced.
    #[snafu(display("failed to replace {}, which is as it was: {step}", path.display()))]
    Replace {
        /// The file.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Its content cannot be changed.
    #[snafu(display("{}", path.display()))]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        source: E,
    },
}

/// Replaces the text of the file at `path`, or of `absent` when there is none, by what `change` makes of it; with `None`
/// it stays.
///
/// The new text is written beside the file, synced, and takes its name: a reader sees the old text or the new one, also
/// after a crash. Mode and owner stay; of a symbolic link the target is replaced. Writers wait for one another by a lock on
/// the directory.
///
/// # Errors
///
/// When the file cannot be read, changed or replaced; it is then as it was.
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
        let new = file.metadata().context(failed("look at the file beside it"))?;
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

/// What `path` leads to; the file itself need not be there, its directory has to.
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
