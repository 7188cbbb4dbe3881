//! Content digests: `sha256:` or `sha512:` followed by lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snafu::Snafu;

use lucid_text::Line;

use crate::text;

/// Hash algorithm of a digest.
///
/// Both are registered in the [OCI image specification] and supported by every container runtime.
///
/// [OCI image specification]:
/// https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md#registered-algorithms
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// SHA-256: 64 hexadecimal digits.
    Sha256,
    /// SHA-512: 128 hexadecimal digits.
    Sha512,
}

impl Algorithm {
    /// Returns the name before the colon: `sha256` or `sha512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    const fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The digest of an image manifest, such as `sha256:9f86…`. Unlike a tag, it cannot be moved to other content.
///
/// Each digest has exactly one spelling, as upper-case letters are rejected. Digests can be compared as text and used
/// as keys.
///
/// ```
/// use lucid_notary::Digest;
///
/// let text = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
/// let digest: Digest = text.parse()?;
/// assert_eq!(digest.algorithm().name(), "sha256");
/// assert_eq!(digest.hex().len(), 64);
/// assert_eq!(digest.to_string(), text);
/// # Ok::<(), lucid_notary::digest::DigestError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    text: Box<str>,
}

impl Digest {
    /// Returns the hash algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the hash: 64 (sha256) or 128 (sha512) lower-case hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.text[self.algorithm.name().len() + 1..]
    }

    /// Returns the digest as `algorithm:hex`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A string is not a valid [`Digest`].
///
/// The message quotes the string, names the fault and lists the expected values.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("digest {digest} {fault}"))]
pub struct DigestError {
    /// Quoted and truncated.
    digest: String,
    fault: String,
    /// Offset of an invalid character, in bytes from the start of the digest.
    pub(crate) offset: usize,
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let error = |offset, fault| DigestError { digest: format!("\"{}\"", Line(text)), fault, offset };
        let Some((name, hex)) = text.split_once(':') else {
            return Err(error(0, "has no ':'; expected sha256:HEX or sha512:HEX".to_owned()));
        };
        let Some(algorithm) = Algorithm::from_name(name) else {
            let fault = "has an algorithm that is not supported; expected sha256 or sha512";
            return Err(error(0, fault.to_owned()));
        };
        if let Some((at, found)) = hex.char_indices().find(|(_, c)| !matches!(c, '0'..='9' | 'a'..='f')) {
            let offset = name.len() + 1 + at;
            let fault = format!("has {found:?} at byte {offset}; expected 0 to 9 and a to f");
            return Err(error(offset, fault));
        }
        let (length, expected) = (hex.len(), algorithm.hex_length());
        if length != expected {
            let fault = format!("has {length} hexadecimal digits; expected {expected} for {algorithm}");
            return Err(error(0, fault));
        }
        Ok(Self { algorithm, text: text.into() })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Digest").field(&self.text).finish()
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer, "a digest")
    }
}
