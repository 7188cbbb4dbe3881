//! Build context of a Containerfile.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use lucid_e2e::Error;

/// Maximum number of symbolic links in a path, as in the kernel.
const MOST_LINKS: usize = 40;

pub(crate) struct Context {
    folder: PathBuf,
}

impl Context {
    /// Creates an empty context. Removes an existing `folder` first.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir_all(folder)?,
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Copies the file `from` of this machine to `name`.
    pub(crate) fn add_file(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        copy(from, &self.folder.join(name))
    }

    /// Writes a file to `name`.
    pub(crate) fn add_text(&mut self, name: &str, text: &str) -> Result<(), Error> {
        Ok(fs::write(self.folder.join(name), text)?)
    }

    /// Creates the folder `name`, the root of a file system.
    pub(crate) fn folder(&mut self, name: &str) -> Result<Root, Error> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        Ok(Root { folder })
    }
}

/// A folder that is the root of a file system.
pub(crate) struct Root {
    folder: PathBuf,
}

impl Root {
    /// Path of the absolute `path` within this root.
    fn place(&self, path: &Path) -> PathBuf {
        self.folder.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(crate) fn write(&mut self, path: &str, text: &str) -> Result<(), Error> {
        let place = self.place(Path::new(path));
        make_parent(&place)?;
        Ok(fs::write(place, text)?)
    }

    /// Copies the file that `path` resolves to on this machine, with every symbolic link on the way, so that `path` resolves
    /// here as well. Returns the resolved path.
    pub(crate) fn add(&mut self, path: &Path) -> Result<PathBuf, Error> {
        let mut rest: VecDeque<OsString> = names(path);
        let mut real = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&name);
            let failed = |error| format!("failed to read {} of this machine: {error}", next.display());
            let kind = fs::symlink_metadata(&next).map_err(failed)?.file_type();
            if !kind.is_symlink() {
                real = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(format!("{} leads through too many symbolic links", path.display()).into());
            }
            let target = fs::read_link(&next)?;
            let place = self.place(&next);
            if fs::symlink_metadata(&place).is_err() {
                make_parent(&place)?;
                symlink(&target, place)?;
            }
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
        }
        copy(&real, &self.place(&real))?;
        Ok(real)
    }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    make_parent(to)?;
    let copied = fs::copy(from, to);
    copied.map_err(|error| format!("failed to copy {} to {}: {error}", from.display(), to.display()))?;
    Ok(())
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_with_the_links_that_lead_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let machine = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(machine.join("usr/lib")).unwrap();
        fs::write(machine.join("usr/lib/liba.so.1.0"), "a").unwrap();
        symlink("liba.so.1.0", machine.join("usr/lib/liba.so.1")).unwrap();
        symlink("usr/lib", machine.join("lib")).unwrap();
        symlink(machine.join("lib/../lib/liba.so.1"), machine.join("alternative")).unwrap();

        let image = tempfile::tempdir().unwrap();
        let mut root = Context::create(&image.path().join("context")).unwrap().folder("root").unwrap();
        let real = root.add(&machine.join("alternative")).unwrap();
        assert_eq!(real, machine.join("usr/lib/liba.so.1.0"));
        assert_eq!(fs::read_link(root.place(&machine.join("lib"))).unwrap(), Path::new("usr/lib"));
        assert_eq!(
            fs::read_link(root.place(&machine.join("usr/lib/liba.so.1"))).unwrap(),
            Path::new("liba.so.1.0")
        );
        assert_eq!(fs::read_to_string(root.place(&real)).unwrap(), "a");
        // Adding the same file again succeeds.
        root.add(&machine.join("lib/liba.so.1")).unwrap();
    }

    #[test]
    fn a_circle_of_links_and_a_file_that_is_missing_are_told() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        let mut root = Context::create(&folder.path().join("context")).unwrap().folder("root").unwrap();
        let message = root.add(&folder.path().join("a")).unwrap_err().to_string();
        assert!(message.contains("too many"), "{message}");
        let message = root.add(&folder.path().join("nobody")).unwrap_err().to_string();
        assert!(message.contains("nobody"), "{message}");
    }
}
