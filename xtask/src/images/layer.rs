//! A file system as an archive whose bytes depend only on names, contents and executable bits.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use lucid_e2e::Error;
use lucid_testbed::Layer;
use tar::{Builder, EntryType, Header};

use super::containerfile::Copy;

/// Files, folders and links by path, without a leading `/`. A folder precedes its content.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    /// Path of the content on this machine.
    File {
        content: PathBuf,
        is_program: bool,
    },
    Link {
        target: PathBuf,
    },
}

impl Tree {
    /// Applies `copies` to the folder `context`.
    pub(crate) fn of(copies: &[Copy], context: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        for Copy { source, destination } in copies {
            let destination = Path::new(destination.trim_start_matches('/'));
            tree.copy(&context.join(source), destination)?;
        }
        Ok(tree)
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let metadata = fs::symlink_metadata(from);
        let metadata = metadata.map_err(|error| format!("failed to read {}: {error}", from.display()))?;
        if metadata.is_dir() {
            self.add(to, Entry::Folder)?;
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                self.copy(&from.join(&name), &to.join(&name))?;
            }
            Ok(())
        } else if metadata.is_symlink() {
            self.add(to, Entry::Link { target: fs::read_link(from)? })
        } else {
            let is_program = metadata.permissions().mode() & 0o100 != 0;
            self.add(to, Entry::File { content: from.to_owned(), is_program })
        }
    }

    fn add(&mut self, path: &Path, entry: Entry) -> Result<(), Error> {
        for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
            match self.entries.entry(folder.to_owned()).or_insert(Entry::Folder) {
                Entry::Folder => {}
                _ => {
                    return Err(
                        format!("{} is in {}, which is no folder", path.display(), folder.display()).into()
                    );
                }
            }
        }
        if path == Path::new("") {
            return Ok(());
        }
        match self.entries.get(path) {
            None => {
                self.entries.insert(path.to_owned(), entry);
                Ok(())
            }
            Some(Entry::Folder) if entry == Entry::Folder => Ok(()),
            Some(_) => Err(format!("{} would be there twice", path.display()).into()),
        }
    }

    /// Returns the compressed layer.
    pub(crate) fn layer(&self, compression: Compression) -> Result<Layer, Error> {
        let archive = self.archive()?;
        // Omits the time and the file name from the gzip header.
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), compression);
        gzip.write_all(&archive)?;
        Ok(Layer::gzip(&archive, gzip.finish()?))
    }

    /// Writes a tar archive: entries sorted by path, times 0, owned by root.
    fn archive(&self) -> Result<Vec<u8>, Error> {
        let mut archive = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::Folder => {
                    archive.append_data(&mut header(EntryType::Directory, 0o755, 0), path, io::empty())?
                }
                Entry::File { content, is_program } => {
                    let content = fs::read(content)?;
                    let mode = if *is_program { 0o755 } else { 0o644 };
                    let mut header = header(EntryType::Regular, mode, content.len());
                    archive.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::Link { target } => {
                    archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
                }
            }
        }
        Ok(archive.into_inner()?)
    }
}

/// Header of an entry with time, user and group 0.
fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use flate2::read::GzDecoder;

    use super::*;

    fn copy(source: &str, destination: &str) -> Copy {
        Copy { source: source.to_owned(), destination: destination.to_owned() }
    }

    /// Creates a folder with files in the order of `names`, modified at `time`.
    fn context(names: &[&str], time: SystemTime) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("rootfs/usr/lib")).unwrap();
        for name in names {
            let path = folder.path().join("rootfs/usr/lib").join(name);
            fs::write(&path, name).unwrap();
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
        }
        symlink("usr/lib", folder.path().join("rootfs/lib")).unwrap();
        fs::write(folder.path().join("program"), "program").unwrap();
        fs::set_permissions(folder.path().join("program"), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn the_same_files_give_the_same_bytes_whenever_and_in_whatever_order_they_were_made() {
        let copies = [copy("program", "/program"), copy("rootfs", "/")];
        let reversed = [copy("rootfs", "/"), copy("program", "/program")];
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let (first, second) = (context(&["a", "b"], long_ago), context(&["b", "a"], SystemTime::now()));
        fs::set_permissions(first.path().join("rootfs/usr/lib/a"), fs::Permissions::from_mode(0o600))
            .unwrap();
        let bytes = Tree::of(&copies, first.path()).unwrap().archive().unwrap();
        assert_eq!(bytes, Tree::of(&reversed, second.path()).unwrap().archive().unwrap());
    }

    #[test]
    fn the_layer_of_an_image_unpacks_to_the_files() {
        let folder = context(&["a"], SystemTime::now());
        let tree = Tree::of(&[copy("rootfs", "/")], folder.path()).unwrap();
        let layer = tree.layer(Compression::default()).unwrap();
        let image = lucid_testbed::Image::new("a:1", &serde_json::json!({}), &layer).unwrap();
        let mut archive = tar::Archive::new(image.archive());
        let unpacked = archive.entries().unwrap().filter_map(|entry| {
            let mut bytes = Vec::new();
            GzDecoder::new(entry.unwrap()).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        });
        assert_eq!(unpacked.collect::<Vec<_>>(), [tree.archive().unwrap()]);
    }

    #[test]
    fn entries_are_in_order_with_time_0_and_owned_by_root() {
        let folder = context(&["a"], SystemTime::now());
        let tree = Tree::of(&[copy("program", "/opt/program"), copy("rootfs", "/")], folder.path()).unwrap();
        let bytes = tree.archive().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            found.push((entry.path().unwrap().display().to_string(), header.mode().unwrap()));
        }
        let found: Vec<_> = found.iter().map(|(path, mode)| (path.trim_end_matches('/'), *mode)).collect();
        assert_eq!(
            found,
            [
                ("lib", 0o777),
                ("opt", 0o755),
                ("opt/program", 0o755),
                ("usr", 0o755),
                ("usr/lib", 0o755),
                ("usr/lib/a", 0o644)
            ]
        );
    }

    #[test]
    fn a_path_that_two_copies_make_is_refused() {
        let folder = context(&["a"], SystemTime::now());
        let twice = [copy("program", "/usr/lib/a"), copy("rootfs", "/")];
        let message = Tree::of(&twice, folder.path()).unwrap_err().to_string();
        assert!(message.contains("usr/lib/a would be there twice"), "{message}");
        let below = [copy("rootfs", "/"), copy("program", "/lib/program")];
        let message = Tree::of(&below, folder.path()).unwrap_err().to_string();
        assert!(message.contains("no folder"), "{message}");
    }
}
