//! Catalogue entries.

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use lucid_notary::ImageReference;

use super::{EnvValue, Files, Probes, Resources, SecurityContext};

/// An entry of a catalogue. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auditor(Arc<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) image: String,
    pub(super) reference: ImageReference,
    pub(super) port: NonZeroU16,
    /// `false` if the port is that of the built-in catalogue or the default.
    pub(super) has_own_port: bool,
    pub(super) env: BTreeMap<String, EnvValue>,
    pub(super) files: Vec<Files>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) resources: Resources,
    /// `false` if the resources are built in.
    pub(super) has_own_resources: bool,
    pub(super) probes: Probes,
    pub(super) security_context: SecurityContext,
    pub(super) service_account_token: bool,
    pub(super) serves_routes: bool,
}

impl From<Entry> for Auditor {
    fn from(entry: Entry) -> Self {
        Self(Arc::new(entry))
    }
}

impl Auditor {
    /// Returns `true` if both are clones of the same entry.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the full name, a DNS label (RFC 1123).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the description for users.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the image reference as written.
    pub fn image(&self) -> &str {
        &self.0.image
    }

    /// Returns the parsed image reference.
    pub fn image_reference(&self) -> &ImageReference {
        &self.0.reference
    }

    /// Returns this auditor with another image.
    pub(super) fn with_image(&self, image: &ImageReference) -> Self {
        Self::from(Entry { image: image.to_string(), reference: image.clone(), ..(*self.0).clone() })
    }

    /// Returns the preferred port, which the auditor uses unless it is taken in the pod.
    pub fn port(&self) -> NonZeroU16 {
        self.0.port
    }

    /// Returns `true` if the entry specifies its port.
    pub(crate) fn has_own_port(&self) -> bool {
        self.0.has_own_port
    }

    /// Returns the environment variables that the catalogue sets, besides [`RESERVED_ENV`](super::RESERVED_ENV).
    pub fn env(&self) -> &BTreeMap<String, EnvValue> {
        &self.0.env
    }

    /// Returns the files that the container mounts.
    pub fn files(&self) -> &[Files] {
        &self.0.files
    }

    /// Returns the labels of the entry. They describe the auditor and are not added to pods.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.labels
    }

    /// Returns the resources of the container. If the entry has none of its own, they are built in, and
    /// [`Defaults`](super::Defaults) take precedence.
    pub fn resources(&self) -> &Resources {
        &self.0.resources
    }

    /// Returns `true` if the entry specifies its resources.
    pub(super) fn has_own_resources(&self) -> bool {
        self.0.has_own_resources
    }

    /// Returns this auditor with these resources, unless it has its own.
    pub(crate) fn with_default_resources(&self, resources: Option<&Resources>) -> Self {
        match resources {
            Some(resources) if !self.has_own_resources() => {
                Self::from(Entry { resources: resources.clone(), ..(*self.0).clone() })
            }
            _ => self.clone(),
        }
    }

    /// Returns the probes of the container.
    pub fn probes(&self) -> &Probes {
        &self.0.probes
    }

    /// Returns `true` if the container may read the pod's ServiceAccount token.
    pub fn service_account_token(&self) -> bool {
        self.0.service_account_token
    }

    /// Returns `true` if the program listens on one port for each of several model ports; see
    /// [`ROUTES_ENV`](crate::keys::ROUTES_ENV).
    pub fn serves_routes(&self) -> bool {
        self.0.serves_routes
    }

    /// Returns the security context of the container.
    pub fn security_context(&self) -> &SecurityContext {
        &self.0.security_context
    }

    /// Returns the first of the keys `image`, `env`, `files` and `securityContext` whose value differs from that in `base`;
    /// `image` without a base.
    pub(crate) fn code_difference(&self, base: Option<&Self>) -> Option<&'static str> {
        let Some(base) = base else { return Some("image") };
        let (own, base) = (&*self.0, &*base.0);
        [
            (own.image != base.image, "image"),
            (own.env != base.env, "env"),
            (own.files != base.files, "files"),
            (own.security_context != base.security_context, "securityContext"),
        ]
        .into_iter()
        .find_map(|(differs, key)| differs.then_some(key))
    }
}
