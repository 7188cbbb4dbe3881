//! Image references, read as container runtimes read them.

mod error;
mod grammar;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::error::{Part, ReferenceError};
use crate::digest::Digest;
use crate::text;

/// Where an image is pulled from: `registry/repository`, with a tag, a digest, both or neither.
///
/// Read with the grammar and the normalisation of [distribution/reference], which containerd and Docker use:
/// a name without registry is one of `docker.io`, a single name there stands under `library/`, and
/// `index.docker.io` is `docker.io`. Neither a tag nor a digest is made up: [`tag`](Self::tag) is `None` where
/// runtimes would take `latest`.
///
/// Equal references pull the same image. References that differ may do so too: the registry's host keeps its case and
/// its port, as in distribution/reference, so `DOCKER.IO/ubuntu` and `docker.io:443/ubuntu` equal neither each other
/// nor `ubuntu`. Who decides by the registry has to normalise it further.
///
/// [`Display`](fmt::Display), serde and [`canonical`](Self::canonical) give the normalised form, which parses to
/// the same reference again.
///
/// ```
/// use lucid_notary::ImageReference;
///
/// let image: ImageReference = "ubuntu:24.04".parse()?;
/// assert_eq!(image.registry(), "docker.io");
/// assert_eq!(image.repository(), "library/ubuntu");
/// assert_eq!(image.tag(), Some("24.04"));
/// assert_eq!(image.digest(), None);
/// assert_eq!(image.to_string(), "docker.io/library/ubuntu:24.04");
/// assert_eq!(image, "index.docker.io/library/ubuntu:24.04".parse()?);
///
/// let error = "ghcr.io/Team/model".parse::<ImageReference>().unwrap_err();
/// assert_eq!(error.offset(), 8);
/// # Ok::<(), lucid_notary::reference::ReferenceError>(())
/// ```
///
/// Two things which distribution/reference lets pass are refused: a registry's name with an underscore, because it
/// takes that for a path without registry while containerd asks the host; and digests of other algorithms than sha256
/// and sha512.
///
/// [distribution/reference]: https://github.com/distribution/reference
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageReference {
    /// The registry's host and, if given, port: `docker.io`, `localhost:5000`, `[2001:db8::1]:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository's path within the registry, without leading slash: `library/ubuntu`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Registry and repository: `docker.io/library/ubuntu`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The tag, if one is written.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if one is written. Runtimes pull by it and ignore the tag.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The normalised form, `registry/repository[:tag][@digest]`.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for ImageReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        grammar::parse(text)
    }
}

impl TryFrom<&str> for ImageReference {
    type Error = ReferenceError;

    fn try_from(text: &str) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl Serialize for ImageReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::deserialize(deserializer, "an image reference")
    }
}
