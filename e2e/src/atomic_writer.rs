//! A mounted Secret or ConfigMap without a kubelet.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use time::{OffsetDateTime, macros::format_description};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Replaces the files of a volume in the same steps as kubelet (`AtomicWriter` of `pkg/volume/util`).
///
/// The files are links to `..data/<name>`, and `..data` is a link to a directory named after the time. A write creates another
/// such directory, renames a new link over `..data`, and removes the previous directory. CSI drivers for certificates and
/// secrets use the same code.
#[derive(Debug)]
pub struct AtomicWriter {
    folder: PathBuf,
}

impl AtomicWriter {
    /// Creates a writer for the volume mounted at `folder`, which must exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Replaces the files of the volume, by name. Writing unchanged files has no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if a file system operation fails.
    pub fn write(&self, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        let old = match fs::read_link(self.folder.join(DATA)) {
            Ok(old) => Some(self.folder.join(old)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let removed = old.as_deref().map(|old| without(old, files)).transpose()?.unwrap_or_default();
        let differs =
            files.iter().any(|(name, content)| old.as_ref().is_none_or(|old| !holds(old, name, content)));
        let replaced = if differs || !removed.is_empty() {
            let new = self.new_folder()?;
            for (name, content) in files {
                let path = new.join(name);
                fs::write(&path, content)?;
                fs::set_permissions(&path, Permissions::from_mode(0o644))?;
            }
            symlink(new.file_name().unwrap_or_default(), self.folder.join(NEW_DATA))?;
            fs::rename(self.folder.join(NEW_DATA), self.folder.join(DATA))?;
            old
        } else {
            None
        };
        for name in files.keys() {
            match fs::read_link(self.folder.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    symlink(Path::new(DATA).join(name), self.folder.join(name))?;
                }
                _ => {}
            }
        }
        for name in removed {
            fs::remove_file(self.folder.join(name))?;
        }
        replaced.map_or(Ok(()), fs::remove_dir_all)
    }

    fn new_folder(&self) -> io::Result<PathBuf> {
        let format = format_description!("..[year]_[month]_[day]_[hour]_[minute]_[second].");
        let prefix = OffsetDateTime::now_utc().format(format).map_err(io::Error::other)?;
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.folder)?.keep();
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

/// Names in the folder that are not among the files.
fn without(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| name.as_ref().map_or(true, |name| !files.contains_key(name))).collect()
}

fn holds(folder: &Path, name: &str, content: &[u8]) -> bool {
    fs::read(folder.join(name)).is_ok_and(|found| found == content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(content: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        content.iter().map(|(name, content)| ((*name).to_owned(), (*content).into())).collect()
    }

    #[test]
    fn a_write_replaces_all_files_by_one_rename() {
        let folder = tempfile::tempdir().unwrap();
        let writer = AtomicWriter::new(folder.path());
        let data = || fs::read_link(folder.path().join(DATA)).unwrap();
        let entries = || {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };

        writer.write(&files(&[("a", "1"), ("b", "1")])).unwrap();
        let first = data();
        let mut expected = ["..data", first.to_str().unwrap(), "a", "b"].map(str::to_owned);
        expected.sort();
        assert_eq!(entries(), expected);
        assert_eq!(fs::read_link(folder.path().join("a")).unwrap(), Path::new("..data/a"));

        writer.write(&files(&[("a", "1"), ("b", "1")])).unwrap();
        assert_eq!(data(), first, "nothing changed");

        writer.write(&files(&[("a", "2"), ("c", "1")])).unwrap();
        assert_ne!(data(), first);
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "2");
        assert!(!folder.path().join(first).exists());
        assert_eq!(entries().len(), 4, "{:?}", entries());
        assert!(fs::symlink_metadata(folder.path().join("b")).is_err());
    }
}
