//! Reads the registry file, and replaces it atomically and without lost updates.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu};

use crate::edit;
use crate::registry::{ParseError, Registry};

/// Maximum file size in bytes; enough for about 400,000 digests.
const MAX_LENGTH: u64 = 64 * 1024 * 1024;

/// A registry file cannot be used or changed. The message names the file, the source the fault.
#[derive(Debug, Snafu)]
pub(crate) enum FileError {
    #[snafu(display("failed to read registry file {} (expected YAML with the list `notarized`)", path.display()))]
    Read { path: PathBuf, source: io::Error },
    #[snafu(display("failed to parse registry file {}", path.display()))]
    Parse { path: PathBuf, source: ParseError },
    #[snafu(display("failed to read {}", path.display()))]
    Directory { path: PathBuf, source: io::Error },
    #[snafu(display("failed to replace {}, which is as it was: {step}", path.display()))]
    Replace { path: PathBuf, step: &'static str, source: io::Error },
}

pub(crate) fn load(path: &Path) -> Result<Registry, FileError> {
    parse(path, &read(path)?)
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<Registry, FileError> {
    Registry::parse(text).context(ParseSnafu { path })
}

/// Reads a regular file of up to 64 MiB. Other files, such as pipes, could block forever.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let refused = |problem: String| io::Error::new(ErrorKind::InvalidInput, problem);
    let read = || {
        if !fs::metadata(path)?.is_file() {
            return Err(refused("expected a regular file".to_owned()));
        }
        let mut text = String::new();
        File::open(path)?.take(MAX_LENGTH + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_LENGTH {
            return Err(refused(format!("expected at most {MAX_LENGTH} bytes")));
        }
        Ok(text)
    };
    read().context(ReadSnafu { path })
}

/// Replaces the text of the file at `path` with the result of `change`. A missing file counts as an empty registry. If
/// `change` returns `None`, the file is not written.
///
/// The new text is written to a temporary file in the same directory, synced and renamed, so that readers see either
/// the old or the new text, even after a crash. Mode and owner are kept, and symbolic links are followed. A lock on
/// the directory serializes writers.
pub(crate) fn change(
    path: &Path,
    change: impl FnOnce(&str) -> Result<Option<String>, ParseError>,
) -> Result<(), FileError> {
    let target = target(path)?;
    let directory = lucid_shared::parent(&target);
    let locked = File::open(directory).context(DirectorySnafu { path: directory })?;
    locked.lock().context(ReplaceSnafu { path, step: "lock its directory" })?;

    let (old, metadata) = match read(&target) {
        Ok(text) => (text, Some(fs::metadata(&target).context(ReadSnafu { path })?)),
        Err(FileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
            (edit::EMPTY.to_owned(), None)
        }
        Err(error) => return Err(error),
    };
    let Some(new) = change(&old).context(ParseSnafu { path })? else { return Ok(()) };

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
    locked.sync_all().context(failed("sync its directory"))
}

/// Resolves symbolic links in `path`. The file may be missing, its directory may not.
fn target(path: &Path) -> Result<PathBuf, FileError> {
    let found = fs::canonicalize(path);
    if let Some(name) = path.file_name()
        && found.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        && !path.is_symlink()
    {
        let directory = lucid_shared::parent(path);
        return Ok(fs::canonicalize(directory).context(DirectorySnafu { path: directory })?.join(name));
    }
    found.context(ReadSnafu { path })
}
