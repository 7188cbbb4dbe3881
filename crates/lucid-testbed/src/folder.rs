//! Folder of one cluster.

use std::{
    env,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
};

use tempfile::TempDir;

use crate::{cgroup, layout::NODE_NAME, say};

const PREFIX: &str = "lucid-testbed-";
const LOCK: &str = "lock";
const ETCD: &str = "etcd";

/// Environment variable that keeps the folders of one run.
const KEEP: &str = "LUCID_TESTBED_KEEP";

/// Readable by its owner only, since it holds keys. Removed on drop unless something failed or the user keeps it.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    /// Locked by an open file for the lifetime of the process. A folder with a free lock belongs to a killed process. A kept
    /// folder has no lock.
    lock: Option<File>,
    /// `true` until the start has succeeded.
    pub(crate) failed: bool,
    keep: bool,
}

impl Folder {
    /// Creates a folder. Also removes the folders of this user's killed processes.
    pub(crate) fn create() -> io::Result<Self> {
        let keep = env::var_os(KEEP).is_some_and(|value| !value.is_empty() && value != "0");
        Self::create_in(&env::temp_dir(), keep)
    }

    fn create_in(parent: &Path, keep: bool) -> io::Result<Self> {
        remove_abandoned(parent);
        let owner_only = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(owner_only).tempdir_in(parent)?;
        let lock = if keep { None } else { Some(lock(folder.path())?) };
        let folder = Self { folder, lock, failed: true, keep };
        fs::create_dir(folder.path().join("pki"))?;
        fs::create_dir(folder.path().join("logs"))?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path().join("logs").join(format!("{name}.log"))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join(ETCD)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, content)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let failed = self.failed || thread::panicking();
        if !failed && !self.keep {
            return;
        }
        self.folder.disable_cleanup(true);
        if self.lock.is_some() {
            // Before the lock is released.
            let _ = fs::remove_file(self.path().join(LOCK));
        }
        if self.keep {
            say(format_args!("the files of this cluster stay in {}", self.path().display()));
        } else {
            // Large, and useless without the programs.
            for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let of_node = name.to_string_lossy().starts_with(NODE_NAME);
                if of_node || name == ETCD {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
            say(format_args!("something failed; the logs stay in {}/logs", self.path().display()));
        }
    }
}

/// Creates a lock file that is already locked when it appears under its name: another process never finds it free.
fn lock(folder: &Path) -> io::Result<File> {
    let unnamed = folder.join("lock.new");
    let file = File::create(&unnamed)?;
    file.lock()?;
    fs::rename(unnamed, folder.join(LOCK))?;
    Ok(file)
}

/// Removes the folders of killed processes, and the cgroup of a node with each. A folder that cannot be removed does no harm.
fn remove_abandoned(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user);
        if ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            cgroup::remove(&entry.file_name().to_string_lossy());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Leaves the same state as a killed process.
    fn abandon(mut folder: Folder) -> PathBuf {
        folder.folder.disable_cleanup(true);
        let path = folder.path().to_owned();
        // This drop resembles that of a successful run, so it removes no lock; the file is closed.
        (folder.failed, folder.keep) = (false, false);
        path
    }

    fn create(parent: &TempDir, keep: bool) -> Folder {
        Folder::create_in(parent.path(), keep).unwrap()
    }

    #[test]
    fn folders_are_readable_by_their_owner_only() {
        let parent = TempDir::new().unwrap();
        let folder = create(&parent, false);
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn failed_clusters_keep_logs_but_not_data() {
        let parent = TempDir::new().unwrap();
        let folder = create(&parent, false);
        let path = folder.path().to_owned();
        for name in ["etcd/member", "node/root", "node-2/root", "logs/pods"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        drop(folder);
        let mut left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, ["logs", "pki"]);
        assert!(path.join("logs/pods").exists());
    }

    #[test]
    fn only_folders_of_killed_processes_are_removed() {
        let parent = TempDir::new().unwrap();
        let good = {
            let mut folder = create(&parent, false);
            folder.failed = false;
            folder.path().to_owned()
        };
        let failed = create(&parent, false).path().to_owned();
        let kept = create(&parent, true).path().to_owned();
        let (killed, killed_to_keep) = (create(&parent, false), create(&parent, true));
        let (killed, killed_to_keep) = (abandon(killed), abandon(killed_to_keep));
        let living = create(&parent, false);
        let foreign = parent.path().join("another");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(LOCK), "").unwrap();

        let _next = create(&parent, false);
        // A process that another test is starting inherits the open files of this one until exec, and so the lock.
        let begun = Instant::now();
        while killed.exists() && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
            remove_abandoned(parent.path());
        }
        for (path, stays) in [
            (&*good, false),
            (&killed, false),
            (&failed, true),
            (&kept, true),
            (&killed_to_keep, true),
            (living.path(), true),
            (&foreign, true),
        ] {
            assert_eq!(path.exists(), stays, "{}", path.display());
        }
    }
}
