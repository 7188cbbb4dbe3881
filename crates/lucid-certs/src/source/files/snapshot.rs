//! A consistent read of several files.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::source::{Reason, SourceError, pair::digest};

/// Size limit of a Secret; certificates are a few kilobytes.
const MAX_SIZE: u64 = 1 << 20;

/// Limit of Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Maximum attempts to read a volume that is replaced during the read. A continuous writer may win that race
/// many times in a row.
const ATTEMPTS: usize = 100;

/// Contents of files that were read together.
pub(super) struct Snapshot {
    /// Content of each path, in the order of the paths.
    pub(super) contents: Vec<Content>,
    pub(super) digest: [u8; 32],
    /// Directories in which a change would show: each one that contains a file or a symbolic link on the way
    /// to it, or lacks an expected entry.
    pub(super) directories: BTreeSet<PathBuf>,
}

/// Content of a file, which may be a private key, or the error.
pub(super) type Content = Result<Zeroizing<Vec<u8>>, SourceError>;

impl Snapshot {
    /// Reads the files. Each symbolic link is resolved once for all of them, so two files behind the same
    /// `..data` are of the same version.
    pub(super) fn take(paths: &[PathBuf]) -> Self {
        let mut links = Links::default();
        let mut contents: Vec<_> = paths.iter().map(|path| read(path, &mut links)).collect();
        for _ in 1..ATTEMPTS {
            let is_missing =
                |content: &Content| matches!(content, Err(error) if error.reason == Reason::Missing);
            // Kubelet removes the old directory after it has switched `..data`: if no link has changed, a
            // missing file does not exist.
            if !contents.iter().any(is_missing) || links.are_unchanged() {
                break;
            }
            links = Links::default();
            contents = paths.iter().map(|path| read(path, &mut links)).collect();
        }
        let digest = digest(contents.iter().flat_map(|content| match content {
            Ok(text) => [&b"content"[..], text],
            Err(error) => [b"error", error.problem.as_bytes()],
        }));
        Self { contents, digest, directories: links.directories }
    }
}

fn read(path: &Path, links: &mut Links) -> Content {
    let shown = path.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        SourceError::new(Reason::Unreadable, format!("failed to read {shown}: {error}"))
    };
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            let found = match fs::symlink_metadata(path) {
                Ok(link) if link.is_symlink() => "it is a dangling symbolic link",
                _ => "there is no such file",
            };
            SourceError::new(Reason::Missing, format!("failed to read {shown}: {found}"))
        }
        _ => unreadable(&error),
    };
    let file = links.resolve(path).map_err(failed)?;
    // Check the type first: opening a FIFO would block until a writer opens it.
    let metadata = fs::metadata(&file).map_err(failed)?;
    if !metadata.is_file() {
        let problem =
            if metadata.is_dir() { "expected a file, found a directory" } else { "it is not a regular file" };
        return Err(unreadable(&problem));
    }
    let size = usize::try_from(metadata.len().min(MAX_SIZE)).unwrap_or_default();
    // Allocate once: a growing vector would leave copies behind that are not zeroed.
    let mut text = Zeroizing::new(Vec::with_capacity(size + 1));
    let file = File::open(&file).map_err(failed)?;
    file.take(MAX_SIZE + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(unreadable(&format!("it is larger than the limit of {MAX_SIZE} bytes")));
    }
    Ok(text)
}

/// Resolves symbolic links, each of them once.
#[derive(Default)]
struct Links {
    targets: HashMap<PathBuf, Option<PathBuf>>,
    directories: BTreeSet<PathBuf>,
}

impl Links {
    fn resolve(&mut self, path: &Path) -> io::Result<PathBuf> {
        let mut ahead = std::path::absolute(path)?;
        let (mut resolved, mut followed) = (PathBuf::new(), 0);
        loop {
            let mut components = ahead.components();
            let Some(component) = components.next() else { break };
            let rest = components.as_path().to_owned();
            match component {
                Component::Prefix(_) | Component::CurDir => {}
                Component::RootDir => resolved = PathBuf::from(component.as_os_str()),
                Component::ParentDir => drop(resolved.pop()),
                Component::Normal(name) => {
                    let next = resolved.join(name);
                    let target = self.target(&next).inspect_err(|_| {
                        self.directories.insert(resolved.clone());
                    })?;
                    if let Some(target) = target {
                        followed += 1;
                        if followed > MAX_LINKS {
                            return Err(io::Error::other(format!("more than {MAX_LINKS} links in a row")));
                        }
                        self.directories.insert(resolved.clone());
                        ahead = target.join(rest);
                        continue;
                    }
                    resolved = next;
                }
            }
            ahead = rest;
        }
        self.directories.extend(resolved.parent().map(Path::to_owned));
        Ok(resolved)
    }

    fn target(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        if let Some(target) = self.targets.get(path) {
            return Ok(target.clone());
        }
        let target = read_link(path)?;
        self.targets.insert(path.to_owned(), target.clone());
        Ok(target)
    }

    fn are_unchanged(&self) -> bool {
        self.targets.iter().all(|(path, target)| read_link(path).is_ok_and(|now| now == *target))
    }
}

fn read_link(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        // Not a symbolic link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}
