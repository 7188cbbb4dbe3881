//! One entry of a catalogue.

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use lucid_notary::ImageReference;

use super::{Probes, SecurityContext};

/// One entry of a catalogue. A clone costs a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auditor(Arc<Entry>);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) image: String,
    pub(super) reference: ImageReference,
    pub(super) port: NonZeroU16,
    pub(super) env: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) resources: Resources,
    pub(super) probes: Probes,
    pub(super) security_context: SecurityContext,
    pub(super) service_account_token: bool,
}

impl From<Entry> for Auditor {
    fn from(entry: Entry) -> Self {
        Self(Arc::new(entry))
    }
}

impl Auditor {
    /// Returns `true` for clones of one entry.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The full name, a DNS label (RFC 1123).
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the auditor does, in words.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// The image reference as written.
    pub fn image(&self) -> &str {
        &self.0.image
    }

    /// The image reference, read.
    pub fn image_reference(&self) -> &ImageReference {
        &self.0.reference
    }

    /// The port the auditor listens on while that port is free in the pod.
    pub fn port(&self) -> NonZeroU16 {
        self.0.port
    }

    /// Environment variables for the container, besides [`RESERVED_ENV`](super::RESERVED_ENV).
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.0.env
    }

    /// Labels of the catalogue entry. They describe the auditor and never reach a pod.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.0.labels
    }

    /// Resources of the container.
    pub fn resources(&self) -> &Resources {
        &self.0.resources
    }

    /// Probes of the container.
    pub fn probes(&self) -> &Probes {
        &self.0.probes
    }

    /// Whether the container gets the token of the pod's ServiceAccount.
    pub fn service_account_token(&self) -> bool {
        self.0.service_account_token
    }

    /// Security context of the container.
    pub fn security_context(&self) -> &SecurityContext {
        &self.0.security_context
    }

    /// The first key that decides which code runs, and how, and has another value than in `base`.
    pub(crate) fn code_difference(&self, base: Option<&Self>) -> Option<&'static str> {
        let Some(base) = base else { return Some("image") };
        let (own, base) = (&*self.0, &*base.0);
        [
            (own.image != base.image, "image"),
            (own.env != base.env, "env"),
            (own.security_context != base.security_context, "securityContext"),
        ]
        .into_iter()
        .find_map(|(differs, key)| differs.then_some(key))
    }
}

/// `resources` of a container: quantities by resource name, such as `memory: 128Mi`.
///
/// The default is what a catalogue entry without `resources` gets: requests of 128Mi and 100m,
/// limits of 256Mi and 500m.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// What the scheduler reserves.
    pub requests: BTreeMap<String, String>,
    /// What the container may use at most.
    pub limits: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        let quantities = |cpu: &str, memory: &str| {
            BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("memory".to_owned(), memory.to_owned())])
        };
        Self { requests: quantities("100m", "128Mi"), limits: quantities("500m", "256Mi") }
    }
}

impl Resources {
    /// The requests as the API server completes them: where there is only a limit, it is requested.
    pub(crate) fn effective_requests(&self) -> BTreeMap<&str, &str> {
        let all = self.limits.iter().chain(&self.requests);
        all.map(|(name, quantity)| (name.as_str(), quantity.as_str())).collect()
    }
}
