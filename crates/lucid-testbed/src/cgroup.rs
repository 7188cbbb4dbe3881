//! Cgroup of a cluster. Each node has a child cgroup, in which its kubelet creates those of pods: kubelets that share a cgroup
//! would end each other's pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Timeout for the kernel to remove the processes of a cgroup.
const PATIENCE: Duration = Duration::from_secs(10);

/// One folder per hierarchy: cgroup v1 has several, v2 has one. Removed on drop with all children, after all processes have
/// left.
#[derive(Debug)]
pub(crate) struct Cgroup {
    name: String,
}

impl Cgroup {
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let cgroup = Self { name: name.to_owned() };
        let hierarchies = hierarchies();
        if hierarchies.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"));
        }
        for hierarchy in hierarchies {
            create_below(&hierarchy, name)?;
            prefer(&hierarchy.join(name));
        }
        Ok(cgroup)
    }

    /// Creates the cgroup of one node, and returns its path below the root of each hierarchy, as the kubelet needs it.
    pub(crate) fn child(&self, name: &str) -> io::Result<String> {
        for hierarchy in hierarchies() {
            create_below(&hierarchy.join(&self.name), name)?;
        }
        Ok(format!("/{}/{name}", self.name))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

fn create_below(parent: &Path, name: &str) -> io::Result<()> {
    delegate(parent);
    let folder = parent.join(name);
    fs::create_dir_all(&folder).map_err(|error| named(&error, &folder))?;
    // cgroup v1: no process can enter while these are empty.
    for file in ["cpuset.cpus", "cpuset.mems"] {
        inherit(&parent.join(file), &folder.join(file))?;
    }
    Ok(())
}

pub(crate) fn remove(name: &str) {
    let deadline = Instant::now() + PATIENCE;
    for folder in hierarchies().into_iter().map(|hierarchy| hierarchy.join(name)) {
        while remove_tree(&folder).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes folders only, the innermost first: the kernel owns the files.
fn remove_tree(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// cgroup v2: enables the controllers for child cgroups. The kubelet reports a missing one.
fn delegate(hierarchy: &Path) {
    let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _ = fs::write(hierarchy.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Raises the CPU share of the cgroup. By default all pods of a cluster together get as much of a busy machine as one other
/// program, and miss the deadlines of their probes and webhooks.
fn prefer(cgroup: &Path) {
    // cgroup v1 and v2: eight times the default. Only the CPU hierarchy has one of them.
    for (file, share) in [("cpu.shares", "8192"), ("cpu.weight", "800")] {
        let file = cgroup.join(file);
        if file.exists() {
            let _ = fs::write(file, share);
        }
    }
}

fn inherit(from: &Path, to: &Path) -> io::Result<()> {
    let (Ok(inherited), Ok(present)) = (fs::read_to_string(from), fs::read_to_string(to)) else {
        return Ok(());
    };
    if present.trim().is_empty() && !inherited.trim().is_empty() {
        fs::write(to, inherited).map_err(|error| named(&error, to))?;
    }
    Ok(())
}

fn named(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn hierarchies() -> Vec<PathBuf> {
    mounted(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

/// Mount points of cgroup v1 and v2 in a text in the format of /proc/self/mounts.
fn mounted(mounts: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .filter_map(|fields| match *fields {
            [_, path, "cgroup" | "cgroup2", ..] => Some(path.into()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
proc /proc proc rw 0 0
";
        let paths = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(mounted(mounts), paths);
    }
}
