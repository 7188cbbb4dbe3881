//! Reads configuration files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Maximum file size in bytes; enough for about 400,000 digests.
const MAX_LENGTH: u64 = 64 * 1024 * 1024;

/// Reads a regular file of up to 64 MiB. Other files, such as pipes, could block forever.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    if !fs::metadata(path)?.is_file() {
        return Err(refused("accepted is a regular file".to_owned()));
    }
    let mut content = Vec::new();
    File::open(path)?.take(MAX_LENGTH + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_LENGTH {
        return Err(refused(format!("accepted are {MAX_LENGTH} bytes at most")));
    }
    Ok(content)
}

/// Like [`read`], on a blocking thread.
pub(crate) async fn read_blocking(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || read(&path)).await.map_err(io::Error::other)?
}
