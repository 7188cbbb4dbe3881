//! Image references, parsed as container runtimes do.

mod error;
mod grammar;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::error::{Part, ReferenceError};
use crate::digest::Digest;
use crate::text;

/// An image reference: `registry/repository[:tag][@digest]`.
///
/// Grammar and normalization are those of [distribution/reference], which containerd and Docker use: the default
/// registry is `docker.io`, a single-component name there is below `library/`, and `index.docker.io` is `docker.io`.
/// No default tag or digest is added: [`tag`](Self::tag) is `None` where runtimes assume `latest`.
///
/// Equal references pull the same image. The converse does not hold: as in distribution/reference, the registry keeps
/// its case and port, so `DOCKER.IO/ubuntu`, `docker.io:443/ubuntu` and `ubuntu` all differ. Compare repositories
/// with [`same_repository`](Self::same_repository), which normalizes the registry.
///
/// [`Display`](fmt::Display), serde and [`canonical`](Self::canonical) use the normalized form, which parses to an
/// equal reference.
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
/// Two inputs that distribution/reference accepts are rejected: registry names with an underscore, which it takes for
/// a path without registry while containerd contacts that host, and digests with algorithms other than sha256 and
/// sha512.
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
    /// Returns the registry's host and port, if given: `docker.io`, `localhost:5000`, `[2001:db8::1]:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the repository path within the registry, without a leading slash: `library/ubuntu`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns registry and repository: `docker.io/library/ubuntu`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Returns the tag, if given.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the `imagePullPolicy` that the API server sets by default: `Always` for the tag `latest` and for an
    /// image without tag and digest, else `IfNotPresent`.
    #[must_use]
    pub fn pull_policy(&self) -> &'static str {
        match (self.tag(), self.digest()) {
            (Some("latest"), _) | (None, None) => "Always",
            _ => "IfNotPresent",
        }
    }

    /// Returns the digest, if given. Runtimes pull by digest and ignore the tag.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns the normalized form, `registry/repository[:tag][@digest]`.
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
