//! Parts shared by the objects of a registration.

use kube::ResourceExt;
use lucid_certs::ServingNames;
use tokio::sync::watch;

/// Label of the configurations whose value is their name. Only objects with it are removed.
pub(super) const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Service that is registered while the certificate is valid for it only.
#[derive(Clone, Debug)]
pub(super) struct AlternativeService {
    pub(super) name: String,
    pub(super) names: watch::Receiver<Option<ServingNames>>,
}

impl AlternativeService {
    /// Returns the alternative Service if the certificate is not valid for `wanted`. Before the first certificate,
    /// returns it if `found` is registered and the alternative.
    pub(super) fn replacing(&self, wanted: &str, found: Option<&str>) -> Option<&str> {
        let is_called = match &*self.names.borrow() {
            Some(names) => !names.dns_names().any(|name| name == wanted),
            None => found == Some(&self.name),
        };
        is_called.then_some(&self.name)
    }
}

/// Version that a write depends on, in the format of [`ObjectTarget`]. The uid prevents a write from recreating a
/// deleted object.
pub(super) fn version(found: &impl ResourceExt) -> String {
    format!("{}/{}", found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default())
}
