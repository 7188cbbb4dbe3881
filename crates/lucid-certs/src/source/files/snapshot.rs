//! What stands in several files at one moment

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use aws_lc_rs::digest;
use zeroize::Zeroizing;

use crate::source::{Reason, SourceError};

/// What a Secret may hold at most; certificates have some kilobytes
const LARGEST: u64 = 1 << 20;

/// As many links as Linux follows (path_resolution(7))
const MOST_LINKS: usize = 40;

/// A volume that is replaced while it is read is read again. Who writes without a pause may win that race many
/// times in a row.
const ATTEMPTS: usize = 100;

/// The files as they were read together
pub(super) struct Snapshot {
    /// Of each path in its order, what stands there
    pub(super) contents: Vec<Content>,
    /// Differs when anything in `contents` does
    pub(super) digest: [u8; 32],
    /// Where a change would show: each directory that holds one of the files, a link on the way to it, or
    /// lacks what should be there
    pub(super) directories: BTreeSet<PathBuf>,
}

/// The text of a file, which may be a key, or why there is none
pub(super) type Content = Result<Zeroizing<Vec<u8>>, SourceError>;

impl Snapshot {
    /// Reads the files. Each link on the way is read once for all of them: two files that are reached by the
    /// same `..data` are of the same version, whatever happens meanwhile.
    pub(super) fn take(paths: &[PathBuf]) -> Self {
        let mut links = Links::default();
        let mut contents: Vec<_> = paths.iter().map(|path| read(path, &mut links)).collect();
        for _ in 1..ATTEMPTS {
            let is_missing =
                |content: &Content| matches!(content, Err(error) if error.reason == Reason::Missing);
            // The directory behind `..data` is removed after the link leads elsewhere: where no link has changed,
            // what is missing is not there.
            if !contents.iter().any(is_missing) || links.lead_where_they_did() {
                break;
            }
            links = Links::default();
            contents = paths.iter().map(|path| read(path, &mut links)).collect();
        }
        let digest = digest_of(&contents);
        Self { contents, digest, directories: links.directories }
    }
}

fn digest_of(contents: &[Content]) -> [u8; 32] {
    let mut digest = digest::Context::new(&digest::SHA256);
    for content in contents {
        let (kind, bytes) = match content {
            Ok(text) => (0, text.as_slice()),
            Err(error) => (1, error.problem.as_bytes()),
        };
        digest.update(&[kind]);
        digest.update(&bytes.len().to_be_bytes());
        digest.update(bytes);
    }
    let mut bytes = [0; 32];
    // SHA-256 has 32 bytes: both slices are of one length.
    bytes.copy_from_slice(digest.finish().as_ref());
    bytes
}

fn read(path: &Path, links: &mut Links) -> Content {
    let shown = path.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        SourceError::new(Reason::Unreadable, format!("failed to read {shown}: {error}"))
    };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            let found = match fs::symlink_metadata(path) {
                Ok(link) if link.is_symlink() => "it is a link that leads nowhere",
                _ => "there is no such file",
            };
            SourceError::new(Reason::Missing, format!("failed to read {shown}: {found}"))
        }
        _ => unreadable(&error),
    };
    let file = links.resolve(path).map_err(failed)?;
    // Looked at before it is opened: opening a pipe would wait for who writes to it.
    let metadata = fs::metadata(&file).map_err(failed)?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a directory" } else { "no regular file" };
        return Err(unreadable(&format!("it is {found}, a file is accepted")));
    }
    let size = usize::try_from(metadata.len().min(LARGEST)).unwrap_or_default();
    // Room for all of it at once: what a growing vector leaves behind is not overwritten.
    let mut text = Zeroizing::new(Vec::with_capacity(size + 1));
    let file = File::open(&file).map_err(failed)?;
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST {
        return Err(unreadable(&format!("it is larger than {LARGEST} bytes, which are accepted")));
    }
    Ok(text)
}

/// Follows links, each of them once
#[derive(Default)]
struct Links {
    targets: HashMap<PathBuf, Option<PathBuf>>,
    directories: BTreeSet<PathBuf>,
}

impl Links {
    /// The path without links in it
    fn resolve(&mut self, path: &Path) -> io::Result<PathBuf> {
        let path = std::path::absolute(path)?;
        let mut resolved = PathBuf::new();
        let mut ahead = Vec::new();
        push(&mut ahead, &path);
        let mut followed = 0;
        while let Some(step) = ahead.pop() {
            let name = match step {
                Step::Root(root) => {
                    resolved = root;
                    continue;
                }
                Step::Up => {
                    resolved.pop();
                    continue;
                }
                Step::Into(name) => name,
            };
            let next = resolved.join(name);
            let target = self.target(&next).inspect_err(|_| {
                self.directories.insert(resolved.clone());
            })?;
            match target {
                None => resolved = next,
                Some(target) => {
                    followed += 1;
                    if followed > MOST_LINKS {
                        return Err(io::Error::other(format!(
                            "more than {MOST_LINKS} links, one behind the other"
                        )));
                    }
                    self.directories.insert(resolved.clone());
                    push(&mut ahead, &target);
                }
            }
        }
        self.directories.extend(resolved.parent().map(Path::to_owned));
        Ok(resolved)
    }

    /// Where a link leads, `None` when it is none
    fn target(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        if let Some(target) = self.targets.get(path) {
            return Ok(target.clone());
        }
        let target = read_link(path)?;
        self.targets.insert(path.to_owned(), target.clone());
        Ok(target)
    }

    fn lead_where_they_did(&self) -> bool {
        self.targets.iter().all(|(path, target)| read_link(path).is_ok_and(|now| now == *target))
    }
}

fn read_link(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        // Of what is no link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// A part of a path
enum Step {
    Root(PathBuf),
    Up,
    Into(OsString),
}

/// Puts a path before what is ahead, whose next step is the last
fn push(ahead: &mut Vec<Step>, path: &Path) {
    ahead.extend(path.components().rev().filter_map(|component| match component {
        Component::Prefix(_) | Component::CurDir => None,
        Component::RootDir => Some(Step::Root(PathBuf::from(component.as_os_str()))),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Into(name.to_owned())),
    }));
}
