//! A second build under different conditions, to verify reproducibility.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use rustix::fs::Mode;
use rustix::process::umask;
use tempfile::TempDir;

use crate::command::ROOT;

/// A copy of the checkout at another path. Changes the umask while it exists.
pub(crate) struct Elsewhere {
    _folder: TempDir,
    /// Resolved path, as compilers record it.
    path: PathBuf,
    umask: Mode,
}

impl Elsewhere {
    /// Copies the checkout, with uncommitted changes and untracked files, but without ignored files.
    pub(crate) fn prepare() -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("lucid, built elsewhere ").tempdir()?;
        let path = folder.path().canonicalize()?;
        // Files created from here on are accessible to their owner only.
        let elsewhere = Self { _folder: folder, path, umask: umask(Mode::RWXG | Mode::RWXO) };
        copy_checkout(Path::new(ROOT), &elsewhere.path.join("sources"))?;
        Ok(elsewhere)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        umask(self.umask);
    }
}

fn copy_checkout(from: &Path, to: &Path) -> Result<(), Error> {
    // Git rejects the configuration of a checkout that another user owns. Listing names is safe.
    const ARGUMENTS: &[&str] =
        &["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(ARGUMENTS).current_dir(from).output();
    let output =
        output.map_err(|error| format!("failed to run git, which tells what is checked out: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", ARGUMENTS.join(" "), complaint.trim()).into());
    }
    let names = String::from_utf8(output.stdout)?;
    for name in names.split_terminator('\0') {
        let (from, to) = (from.join(name), to.join(name));
        // Git lists deleted files until the deletion is committed.
        let Ok(metadata) = fs::symlink_metadata(&from) else { continue };
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        let failed = |error| format!("failed to copy {} to {}: {error}", from.display(), to.display());
        if metadata.is_symlink() {
            symlink(fs::read_link(&from)?, &to).map_err(failed)?;
        } else {
            fs::copy(&from, &to).map_err(failed)?;
        }
    }
    Ok(())
}
