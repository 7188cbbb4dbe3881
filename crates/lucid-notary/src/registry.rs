//! Where an image is pulled from, in one spelling.

use crate::reference::ImageReference;

/// The host and port of a registry. The case of a host means nothing, 443 is the port anyway, and a port may have leading
/// zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registry {
    pub(crate) host: String,
    port: u64,
}

impl Registry {
    pub(crate) fn of(image: &ImageReference) -> Self {
        let registry = image.registry().to_ascii_lowercase();
        match registry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => Self { host: host.to_owned(), port },
            // The colons of an IPv6 address.
            _ => Self { host: registry, port: 443 },
        }
    }

    pub(crate) fn has_port_of(&self, other: &Self) -> bool {
        self.port == other.port
    }
}

impl ImageReference {
    /// Returns whether both images come from the same repository, whatever tag and digest.
    #[must_use]
    pub fn has_repository_of(&self, other: &Self) -> bool {
        self.repository() == other.repository() && Registry::of(self) == Registry::of(other)
    }
}
