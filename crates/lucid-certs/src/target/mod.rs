//! Objects from which callers read the trust bundle.

mod contention;

#[cfg(feature = "kube")]
mod field_path;
#[cfg(feature = "kube")]
mod fields;
#[cfg(feature = "kube")]
mod object;

use std::{fmt, sync::Arc, time::SystemTime};

use futures::{future::BoxFuture, stream::BoxStream};
use snafu::Snafu;

use crate::{
    bundle::TrustBundle, fingerprint::Fingerprint, names::ServingNames, serving::ServingCertificate,
};

pub(crate) use contention::Contention;
#[cfg(feature = "kube")]
pub(crate) use fields::BundleFields;
#[cfg(feature = "kube")]
pub use object::ObjectTarget;

/// An object from which callers of the server read the trust bundle, such as a MutatingWebhookConfiguration
/// with the `caBundle` of each webhook.
///
/// Implement this trait for object kinds that this crate does not support. The rotation relies on two
/// properties:
///
/// - [`read`](Self::read) returns the current state of the API server, not a cached one.
/// - [`write`](Self::write) changes nothing if the object was written since the reading. Otherwise a slow
///   replica could remove a CA under which other replicas serve.
pub trait TrustTarget: Send + Sync + fmt::Debug {
    /// Kind and name in logs and metric labels, such as `MutatingWebhookConfiguration/lucid-operator`.
    fn name(&self) -> &str;

    /// Reads the current state.
    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>>;

    /// Writes `bundle` to every slot, provided that the object has not changed since `reading`. Returns the
    /// new state.
    ///
    /// # Errors
    ///
    /// Returns [`TargetError::Changed`] if the object has changed since `reading`.
    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>>;

    /// Restores everything but the bundle, which is managed externally, if `reading` is
    /// [stale](Reading::stale); under the conditions of [`write`](Self::write). Returns `None` if there is
    /// nothing to restore, as in the default implementation.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    fn restore<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, Result<Option<Reading>, TargetError>> {
        let _ = reading;
        Box::pin(async { Ok(None) })
    }

    /// Yields whenever the object may have changed, including by our own writes. Never ends; reconnects by
    /// itself.
    fn changes(&self) -> BoxStream<'static, ()>;

    /// Reports that another client keeps overwriting the bundle. `reading` is the state that it left. Called
    /// once until the contention ends. The default implementation does nothing.
    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        let _ = reading;
        Box::pin(async {})
    }
}

/// A target of any kind; cheap to clone.
#[derive(Clone, Debug)]
pub struct Target(pub(crate) Arc<dyn TrustTarget>);

impl<T: TrustTarget + 'static> From<T> for Target {
    fn from(target: T) -> Self {
        Self(Arc::new(target))
    }
}

/// Reason why a target could not be read or written.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum TargetError {
    /// The object has changed since it was read. Read it again and retry.
    #[snafu(display("failed to write {target}: another client changed it concurrently"))]
    Changed {
        /// Name of the target.
        target: String,
    },
    /// The object cannot hold a bundle in its current form.
    #[snafu(display("failed to put a trust bundle into {target}: {problem}"))]
    Unfit {
        /// Name of the target.
        target: String,
        /// Obstacle and expected input.
        problem: String,
    },
    /// The API server did not respond in time.
    #[snafu(display("failed to {action} {target}: no response within {timeout:?}"))]
    TimedOut {
        /// `get` or `write`.
        action: &'static str,
        /// Name of the target.
        target: String,
        /// Timeout.
        timeout: std::time::Duration,
    },
    /// The API server rejected the request or was unreachable.
    #[snafu(display("failed to {action} {target}"))]
    Api {
        /// `get` or `write`.
        action: &'static str,
        /// Name of the target.
        target: String,
        /// Error of the client.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// State of a target, as read from the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reading {
    version: Option<String>,
    pub(crate) slots: Vec<Slot>,
    /// `true` if the object has to be written even if its bundle is right. An [`ObjectTarget`] requires to be an owner
    /// of its fields: otherwise the bundle is lost when its other owner applies the object without one.
    pub stale: bool,
    /// Other field managers that own bundle fields, by `metadata.managedFields`.
    pub other_owners: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Name of the webhook, or key of a ConfigMap.
    pub(crate) name: String,
    pem: Vec<u8>,
    /// Parsed once, because it is checked for each CA.
    bundle: Option<TrustBundle>,
}

impl Slot {
    pub(crate) fn new(name: impl Into<String>, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        Self { name: name.into(), bundle: TrustBundle::from_pem_lossy(&pem), pem }
    }

    /// Returns the content after base64 decoding; empty if the field is absent.
    #[cfg(feature = "kube")]
    pub(crate) fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// Returns the bundle that callers trust. As in the API server, sections that are not certificates are
    /// ignored.
    pub(crate) fn bundle(&self) -> Option<&TrustBundle> {
        self.bundle.as_ref()
    }
}

impl Reading {
    /// Creates the reading of an object that does not exist or has no field for a bundle, so it causes no calls.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// Creates the reading of an existing object that is not [stale](Self::stale). `version` is opaque, for
    /// conditional writes; for an object of the API server it contains `uid` and `resourceVersion`. `slots` are the names and
    /// the PEM contents of its `caBundle` fields, such as the name of each webhook; an absent field is empty.
    #[must_use]
    pub fn present(version: impl Into<String>, slots: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let slots = slots.into_iter().map(|(name, pem)| Slot::new(name, pem)).collect();
        Self { version: Some(version.into()), slots, ..Self::default() }
    }

    /// Returns the version for a conditional write, or `None` if the target is absent.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns `true` if no write is needed: every slot holds exactly `bundle` and the object is not stale.
    /// Also `true` without slots.
    #[must_use]
    pub fn holds(&self, bundle: &TrustBundle) -> bool {
        !self.stale && self.holds_bytes_of(bundle)
    }

    /// Returns `true` if every slot holds exactly `bundle`, or if there are no slots.
    pub(crate) fn holds_bytes_of(&self, bundle: &TrustBundle) -> bool {
        let pem = bundle.to_pem();
        self.slots.iter().all(|slot| slot.pem == pem.as_bytes())
    }

    #[must_use]
    pub(crate) fn trusts(&self, authority: &Fingerprint) -> bool {
        self.slots.iter().all(|slot| slot.bundle().is_some_and(|bundle| bundle.contains(authority)))
    }

    /// Returns `true` if callers accept the certificate in every slot.
    #[must_use]
    pub(crate) fn accepts(&self, leaf: &ServingCertificate, names: &ServingNames, now: SystemTime) -> bool {
        self.refusal(leaf, names, now).is_none()
    }

    /// Returns why the callers of some slot reject the certificate, if they do.
    pub(crate) fn refusal(
        &self,
        leaf: &ServingCertificate,
        names: &ServingNames,
        now: SystemTime,
    ) -> Option<String> {
        if self.slots.is_empty() {
            return self.version.is_some().then(|| "there is none".to_owned());
        }
        let missing_names = leaf.missing_names(names);
        if !missing_names.is_empty() {
            return Some(format!("the certificate is not for {}", missing_names.join(", ")));
        }
        self.slots.iter().find_map(|slot| match slot.bundle() {
            None => Some(format!("{} has no trust bundle", slot.name)),
            Some(bundle) => leaf.verify_chain(bundle, now).err().map(|error| {
                let held: Vec<_> = bundle.fingerprints().map(|it| it.to_string()).collect();
                format!("{} trusts {}: {}", slot.name, held.join(", "), lucid_text::with_causes(&error))
            }),
        })
    }

    /// Returns the certificates of all slots.
    #[must_use]
    pub fn bundle(&self) -> Option<TrustBundle> {
        self.slots.iter().filter_map(Slot::bundle).cloned().reduce(|all, bundle| all.merge(&bundle))
    }
}
