//! Small disks, for tests that fill them.

use std::{ffi::CString, io, path::Path};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::skip;

/// A temporary folder on a disk of limited size. Dropping it unmounts the disk.
#[derive(Debug)]
pub struct Disk(TempDir);

impl Disk {
    /// Mounts a disk of this size. If that is impossible here, [skips](skip()) the test and returns `None`.
    ///
    /// # Panics
    ///
    /// See [`skip()`].
    pub fn mount(bytes: u64) -> Option<Self> {
        let mounted = || -> io::Result<Self> {
            let folder = TempDir::new()?;
            let options = CString::new(format!("size={bytes}"))?;
            mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str())?;
            Ok(Self(folder))
        };
        mounted()
            .inspect_err(|error| skip(format_args!("a small disk cannot be mounted here ({error})")))
            .ok()
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}
