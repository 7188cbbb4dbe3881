//! A token that whoever asks has to show.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use snafu::{OptionExt, ResultExt, Snafu, ensure};

/// The longest token, in bytes: what servers take of one header line.
const LONGEST: usize = 8 * 1024;

/// A bearer token (RFC 6750) in a file, such as a mounted Secret. It is the file's one line, of visible ASCII characters.
///
/// The file is read at each question, so a new token counts at once, and the one before no longer. While the file cannot be
/// read, or holds no token, nobody is let in.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
}

/// Why a file holds no token. The message quotes nothing of it.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[snafu(display("failed to read the token file {}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a directory, or a pipe, which cannot be read again.
    #[snafu(display("failed to use the token file {}: accepted is a regular file", path.display()))]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Its content cannot be a token.
    #[snafu(display(
        "failed to use the token file {}: accepted is one line of 1 to {LONGEST} visible ASCII characters",
        path.display()
    ))]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

impl TokenFile {
    /// The token in the file at `path`, which is read once to see that there is one.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        let path = path.into();
        read(&path)?;
        Ok(Self { path })
    }

    /// The value of an `Authorization` header that shows the token, as it is now.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn header(&self) -> Result<HeaderValue, TokenFileError> {
        let value = [b"Bearer ", &*read(&self.path)?].concat();
        let mut value = HeaderValue::from_bytes(&value).ok().context(NoTokenSnafu { path: &self.path })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Whether `headers` show the token, as `Authorization: Bearer TOKEN`, once. How long the answer takes tells nothing of
    /// the token.
    pub async fn authorizes(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (shown.next(), shown.next()) else { return false };
        let Some(shown) = bearer(header.as_bytes()) else { return false };
        let path = self.path.clone();
        let token = tokio::task::spawn_blocking(move || read(&path)).await;
        match token {
            // Of digests, so that the length does not show either.
            Ok(Ok(token)) => {
                verify_slices_are_equal(digest(&SHA256, &token).as_ref(), digest(&SHA256, shown).as_ref())
                    .is_ok()
            }
            Ok(Err(error)) => {
                tracing::error!(error = crate::with_causes(&error), "nobody is let in");
                false
            }
            Err(error) => {
                tracing::error!(%error, "nobody is let in");
                false
            }
        }
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenFile").field(&self.path).finish()
    }
}

/// What follows the scheme, which may be written in any case (RFC 9110, section 11.1).
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn read(path: &Path) -> Result<Vec<u8>, TokenFileError> {
    // Before it is opened: whoever opens a pipe waits for a writer.
    let metadata = path.metadata().context(ReadSnafu { path })?;
    ensure!(metadata.is_file(), NotAFileSnafu { path });
    let mut content = Vec::new();
    let file = File::open(path).context(ReadSnafu { path })?;
    file.take(LONGEST as u64 + 3).read_to_end(&mut content).context(ReadSnafu { path })?;
    let token = content.trim_ascii();
    let is_token = (1..=LONGEST).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    ensure!(is_token, NoTokenSnafu { path });
    Ok(token.to_vec())
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
    async fn only_the_token_in_the_file_is_let_in_and_a_new_one_counts_at_once() {
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
    fn what_holds_no_token_is_an_error_that_does_not_quote_it() {
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
