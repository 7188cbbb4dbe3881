//! Bearer token authentication.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use tower::BoxError;

/// Maximum length of a token in bytes, in keeping with the usual limit of servers for one header line.
const LONGEST: usize = 8 * 1024;

/// A bearer token (RFC 6750) in a file, such as a mounted Secret. The file consists of one line of visible ASCII
/// characters.
///
/// The file is read on each request, so a rotated token takes effect at once and its predecessor is rejected. While the
/// file cannot be read or contains no token, all requests are rejected.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// Opens the token file at `path` and reads it once to validate it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or contains no token.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = Self { path };
        file.read()?;
        Ok(file)
    }

    /// Returns the value of an `Authorization` header with the current token, marked as sensitive.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or contains no token.
    pub fn header(&self) -> io::Result<HeaderValue> {
        let value = [b"Bearer ", &*self.read()?].concat();
        let mut value = HeaderValue::from_bytes(&value).map_err(io::Error::other)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns `true` if `headers` contain exactly one `Authorization` header, and it is `Bearer TOKEN`. The comparison
    /// takes constant time.
    pub async fn authorizes(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (shown.next(), shown.next()) else { return false };
        let Some(shown) = bearer(header.as_bytes()) else { return false };
        let file = self.clone();
        let token = tokio::task::spawn_blocking(move || file.read()).await;
        match token.map_err(BoxError::from).and_then(|token| Ok(token?)) {
            // Comparing digests also hides the length.
            Ok(token) => {
                verify_slices_are_equal(digest(&SHA256, &token).as_ref(), digest(&SHA256, shown).as_ref())
                    .is_ok()
            }
            Err(error) => {
                tracing::error!(%error, "requests with a bearer token are rejected");
                false
            }
        }
    }

    /// Reads the token. The error does not quote the content.
    fn read(&self) -> io::Result<Vec<u8>> {
        read(&self.path).map_err(|error| {
            let problem = format!("failed to read the token file {}: {error}", self.path.display());
            io::Error::new(error.kind(), problem)
        })
    }
}

/// Token after the scheme, which is case-insensitive (RFC 9110, section 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Checked before the file is opened: opening a pipe blocks until there is a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("expected a regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST as u64 + 3).read_to_end(&mut content)?;
    let token = content.trim_ascii();
    if (1..=LONGEST).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic) {
        return Ok(token.to_vec());
    }
    Err(io::Error::other(format!("expected one line of 1 to {LONGEST} visible ASCII characters")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect()
    }

    #[tokio::test]
    async fn only_the_current_token_of_the_file_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "s3cret\n").unwrap();
        let token = TokenFile::open(&path).unwrap();
        let own = HeaderMap::from_iter([(AUTHORIZATION, token.header().unwrap())]);
        assert!(token.authorizes(&own).await && !format!("{own:?}").contains("s3cret"));
        for (shown, let_in) in [
            (&["Bearer s3cret"][..], true),
            (&["bearer s3cret"], true),
            (&["BEARER  s3cret "], true),
            (&[], false),
            (&["Bearer s3cre"], false),
            (&["Bearer s3crett"], false),
            (&["Bearer S3cret"], false),
            (&["Bearer "], false),
            (&["Bearer"], false),
            (&["Basic s3cret"], false),
            (&["s3cret"], false),
            (&["Bearer s3cret", "Bearer s3cret"], false),
            (&["Bearer other", "Bearer s3cret"], false),
        ] {
            assert_eq!(token.authorizes(&headers(shown)).await, let_in, "{shown:?}");
        }
        fs::write(&path, "other").unwrap();
        assert!(token.authorizes(&headers(&["Bearer other"])).await);
        assert!(!token.authorizes(&headers(&["Bearer s3cret"])).await);
        for nothing in ["", "\n", " \t\n"] {
            fs::write(&path, nothing).unwrap();
            for shown in ["Bearer ", "Bearer  ", "Bearer other"] {
                assert!(!token.authorizes(&headers(&[shown])).await, "{nothing:?} lets {shown:?} in");
            }
        }
        fs::remove_file(&path).unwrap();
        assert!(!token.authorizes(&headers(&["Bearer other"])).await);
    }

    #[test]
    fn invalid_token_files_are_errors_without_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for content in
            [&b""[..], b"\n", b"two words", b"two\nlines\n", b"caf\xc3\xa9", b"nul\0", &[b'x'; LONGEST + 1]]
        {
            fs::write(&path, content).unwrap();
            let error = TokenFile::open(&path).unwrap_err().to_string();
            assert!(error.contains("visible ASCII") && !error.contains("two"), "{error}");
        }
        fs::write(&path, [b'x'; LONGEST]).unwrap();
        assert!(TokenFile::open(&path).is_ok());
        for path in [folder.path().to_owned(), folder.path().join("none"), "/dev/zero".into()] {
            assert!(TokenFile::open(path).is_err());
        }
    }
}
