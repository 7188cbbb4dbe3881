//! Normalized registry of an image.

use crate::reference::ImageReference;

/// Host and port of a registry. The host is lower-cased, the default port 443 is filled in, and leading zeros of the
/// port are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registry {
    pub(crate) host: String,
    port: u64,
}

impl Registry {
    pub(crate) fn from_image(image: &ImageReference) -> Self {
        let registry = image.registry().to_ascii_lowercase();
        match registry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => Self { host: host.to_owned(), port },
            // Without a port, including bracketed IPv6 addresses.
            _ => Self { host: registry, port: 443 },
        }
    }

    pub(crate) fn same_port(&self, other: &Self) -> bool {
        self.port == other.port
    }
}

impl ImageReference {
    /// Returns registry and repository, with the host in lower case and without the default port 443. Equal for images
    /// of the same repository.
    #[must_use]
    pub fn normalized_name(&self) -> String {
        let Registry { host, port } = Registry::from_image(self);
        match port {
            443 => format!("{host}/{}", self.repository()),
            _ => format!("{host}:{port}/{}", self.repository()),
        }
    }

    /// Returns `true` if both images belong to the same repository, regardless of tag and digest.
    #[must_use]
    pub fn same_repository(&self, other: &Self) -> bool {
        self.repository() == other.repository() && Registry::from_image(self) == Registry::from_image(other)
    }
}
