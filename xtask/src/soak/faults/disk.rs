//! A small disk for each replica's log, which fills up and fails on demand.
//!
//! It is a sparse ext4 image on a tmpfs. A full disk is a full ext4. Where the tmpfs is full, the block device has no
//! room for blocks that were never written: write(2) succeeds, and fdatasync(2) fails with EIO. (A tmpfs alone has no
//! such failure: it cannot be remounted read-only while a file is open for writing.)

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::Error;
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Sizes in MiB.
const IMAGE: u64 = 64;
const TMPFS: u64 = 96;

pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    pub(super) fn create(folder: PathBuf) -> Result<Self, Error> {
        let disk = Self { folder };
        let (below, mounted) = (disk.below(), disk.mounted());
        fs::create_dir_all(&below)?;
        fs::create_dir_all(&mounted)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={TMPFS}m"), "tmpfs"])
            .arg(&below))?;
        let image = below.join("image");
        File::create(&image)?.set_len(IMAGE << 20)?;
        // A journal that cannot be written would keep the file system read-only.
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-O", "^has_journal"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop,errors=continue"]).arg(&image).arg(&mounted))?;
        Ok(disk)
    }

    fn below(&self) -> PathBuf {
        self.folder.join("below")
    }

    fn mounted(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Directory of the log, which the replica makes.
    pub(super) fn log(&self) -> PathBuf {
        self.mounted().join("decisions")
    }

    /// Removes the log, and returns the records that it had.
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

    /// From here on writes fail with ENOSPC.
    pub(super) fn fill(&self) -> io::Result<()> {
        fill(&self.mounted())
    }

    /// From here on new blocks cannot be written, and fdatasync(2) fails with EIO.
    pub(super) fn fail(&self) -> io::Result<()> {
        fill(&self.below())
    }

    /// Ends both.
    pub(super) fn heal(&self) -> io::Result<()> {
        for place in [self.below(), self.mounted()] {
            match fs::remove_file(filler(&place)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: of a replica that still runs the mounts go with the process.
        for place in [self.mounted(), self.below()] {
            let _ = Command::new("umount").arg("--lazy").arg(place).output();
        }
    }
}

fn filler(place: &Path) -> PathBuf {
    place.join("filler")
}

/// Takes all room.
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

fn run(command: &mut Command) -> Result<(), Error> {
    let output = command.output().map_err(|error| format!("failed to run {command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}
