//! Reading a file whose content decides something.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The longest file, in bytes: some 400,000 digests.
const LONGEST: u64 = 64 * 1024 * 1024;

/// The content of a regular file of up to 64 MiB. A pipe would keep its reader waiting for ever.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    if !fs::metadata(path)?.is_file() {
        return Err(refused("accepted is a regular file".to_owned()));
    }
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LONGEST {
        return Err(refused(format!("accepted are {LONGEST} bytes at most")));
    }
    Ok(content)
}

/// The same, beside what else is to be done.
pub(crate) async fn read_aside(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || read(&path)).await.map_err(io::Error::other)?
}
