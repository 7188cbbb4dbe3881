//! A small disk for each replica's log, which fills up and fails on demand.
//!
//! The file system is ext4 on a partition of a loop device, whose backing file is on a tmpfs. A partition shrunk to a few
//! sectors fails every transfer with EIO, until its size is restored. A tmpfs alone cannot fail like this: it cannot be
//! remounted read-only while a file is open for writing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use crate::command::output;

const MIB: u64 = 64;
/// First sector of the partition, in units of 512 bytes.
const FIRST: u64 = 8;
const LENGTH: u64 = (MIB << 20) / 512 - FIRST;

pub(super) struct Disk {
    folder: PathBuf,
    /// Path such as `/dev/loop0`; empty until the device exists.
    device: String,
}

impl Disk {
    pub(super) fn create(folder: PathBuf) -> Result<Self, Error> {
        let mut disk = Self { folder, device: String::new() };
        let (below, mounted) = (disk.below(), disk.mounted());
        fs::create_dir_all(&below)?;
        fs::create_dir_all(&mounted)?;
        let size = format!("size={}m", MIB + 8);
        output(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&below))?;
        let image = below.join("image");
        File::create(&image)?.set_len(MIB << 20)?;
        disk.device = output(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        // Removes the partition left by a killed soak.
        let _ = run("delpart", [&disk.device, "1"]);
        run("addpart", [&disk.device, "1", &FIRST.to_string(), &LENGTH.to_string()])?;
        let partition = format!("{}p1", disk.device);
        // No journal: one that cannot be written would keep the file system read-only.
        run("mkfs.ext4", ["-q", "-F", "-m", "0", "-O", "^has_journal", &partition])?;
        output(Command::new("mount").args(["-o", "errors=continue", &partition]).arg(&mounted))?;
        Ok(disk)
    }

    fn below(&self) -> PathBuf {
        self.folder.join("below")
    }

    fn mounted(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Directory of the log, created by the replica.
    pub(super) fn log(&self) -> PathBuf {
        self.mounted().join("decisions")
    }

    /// Removes the log, and returns its records.
    pub(super) fn delete_log(&self) -> io::Result<Vec<u8>> {
        let segments = fs::read_dir(self.log().join("segments"))?;
        let segments = segments.map(|entry| File::open(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        fs::remove_dir_all(self.log())?;
        let mut records = Vec::new();
        for segment in segments {
            // The replica may still write to the file.
            let length = segment.metadata()?.len();
            segment.take(length).read_to_end(&mut records)?;
        }
        Ok(records)
    }

    pub(super) fn set_aside(&self, name: &str) -> io::Result<PathBuf> {
        let aside = self.mounted().join(name);
        fs::rename(self.log(), &aside)?;
        Ok(aside)
    }

    /// Makes writes fail with ENOSPC.
    pub(super) fn fill(&self) -> io::Result<()> {
        fill(&self.mounted())
    }

    /// Makes fdatasync(2) and uncached reads fail with EIO.
    pub(super) fn fail(&self) -> Result<(), Error> {
        self.resize(FIRST)
    }

    fn resize(&self, sectors: u64) -> Result<(), Error> {
        run("resizepart", [&self.device, "1", &sectors.to_string()])?;
        Ok(())
    }

    /// Ends both failures.
    pub(super) fn heal(&self) -> Result<(), Error> {
        self.resize(LENGTH)?;
        match fs::remove_file(filler(&self.mounted())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: the mounts of a replica that still runs end with its process.
        let _ = run("umount", ["--lazy".as_ref(), self.mounted().as_os_str()]);
        // Otherwise the next file of the device would have the partition, too.
        let _ = run("delpart", [&self.device, "1"]);
        let _ = run("losetup", ["--detach", &self.device]);
        let _ = run("umount", ["--lazy".as_ref(), self.below().as_os_str()]);
    }
}

fn filler(place: &Path) -> PathBuf {
    place.join("filler")
}

fn fill(place: &Path) -> io::Result<()> {
    let mut file = File::create(filler(place))?;
    let room = statvfs(place)?;
    let bytes = room.f_bavail * room.f_frsize;
    if bytes > 0 && fallocate(&file, FallocateFlags::empty(), 0, bytes).is_ok() {
        file.seek(SeekFrom::End(0))?;
    }
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String, Error> {
    output(Command::new(program).args(arguments))
}
