//! Where callers find the trust bundle

mod contention;

#[cfg(feature = "kube")]
mod api_service;
#[cfg(feature = "kube")]
mod config_map;
#[cfg(feature = "kube")]
mod conversion;
#[cfg(feature = "kube")]
mod field_path;
#[cfg(feature = "kube")]
mod object;
#[cfg(feature = "kube")]
mod webhooks;

use std::{fmt, time::SystemTime};

use futures::{future::BoxFuture, stream::BoxStream};
use snafu::Snafu;

use crate::{
    bundle::TrustBundle, fingerprint::Fingerprint, names::ServingNames, serving::ServingCertificate,
};

pub use contention::Contention;

#[cfg(feature = "kube")]
pub use config_map::CONFIG_MAP_KEY;
#[cfg(feature = "kube")]
pub use object::ObjectTarget;
#[cfg(feature = "kube")]
pub use webhooks::Webhooks;

/// A place where callers of the server look for what to trust: one object of the API server, such as a
/// MutatingWebhookConfiguration with the `caBundle` of each of its webhooks.
///
/// Implement it for a place that this crate does not know. The rotation relies on two properties: what
/// [`read`](Self::read) returns is what the API server holds and not what a cache remembers, and
/// [`write`](Self::write) changes nothing when somebody wrote since that reading. Without the second, a
/// replica that was slow between reading and writing could take away an authority that others serve under.
pub trait TrustTarget: Send + Sync + fmt::Debug {
    /// Kind and name, such as `MutatingWebhookConfiguration/lucid-operator`, in logs and as a metric's label
    fn name(&self) -> &str;

    /// What callers find there now
    fn read(&self) -> BoxFuture<'_, Result<Reading, TargetError>>;

    /// Puts `bundle` there, in every slot, if nobody wrote since `reading` was taken. Returns what is there then.
    fn write<'a>(
        &'a self,
        bundle: &'a TrustBundle,
        reading: &'a Reading,
    ) -> BoxFuture<'a, Result<Reading, TargetError>>;

    /// Yields whenever what is there may have changed, also by ourselves, and never ends. It retries by
    /// itself when it is cut off.
    fn changes(&self) -> BoxStream<'static, ()>;

    /// Tells people that somebody else keeps overwriting it; `reading` is how they left it. Asked for once for
    /// each [`Contention`]. A target that has no way to tell does nothing.
    fn report_contention<'a>(&'a self, reading: &'a Reading) -> BoxFuture<'a, ()> {
        let _ = reading;
        Box::pin(async {})
    }
}

/// Why a target could not be read or written
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum TargetError {
    /// Somebody wrote in between: read again
    #[snafu(display("failed to write {target}: somebody else changed it at the same time"))]
    Changed {
        /// Which one
        target: String,
    },
    /// The target cannot take a bundle as it is
    #[snafu(display("failed to put a trust bundle into {target}: {problem}"))]
    Unfit {
        /// Which one
        target: String,
        /// What is in the way, and what is accepted
        problem: String,
    },
    /// No answer came in time
    #[snafu(display("failed to {action} {target}: no answer within {patience:?}"))]
    TimedOut {
        /// `get` or `write`
        action: &'static str,
        /// Which one
        target: String,
        /// How long it was waited for
        patience: std::time::Duration,
    },
    /// The API server refused or was not reached
    #[snafu(display("failed to {action} {target}"))]
    Api {
        /// `get` or `write`
        action: &'static str,
        /// Which one
        target: String,
        /// What went wrong
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl TargetError {
    /// Somebody wrote in between
    #[must_use]
    pub fn changed(target: &str) -> Self {
        Self::Changed { target: target.to_owned() }
    }

    /// The API server refused to let us `get` or `write`, or was not reached.
    #[must_use]
    pub fn api(
        action: &'static str,
        target: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Api { action, target: target.to_owned(), source: source.into() }
    }
}

/// What was found in a target
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// There is no such object, or nothing in it that could carry a bundle: nobody calls through it
    Absent,
    /// It is there
    #[non_exhaustive]
    Present {
        /// Of the target's own making, for a write that depends on it: of an object of the API server its
        /// `resourceVersion`, and what else tells it from another
        version: String,
        /// What each `caBundle` field of the object holds
        slots: Vec<Slot>,
        /// Whether something besides the bundle is not as the target wants it, so that it is to be written
        /// even though its bundle is right. An [`ObjectTarget`] wants to be among the owners of its fields: only
        /// then does the bundle stay when who put it there applies the object without one.
        stale: bool,
        /// Who owns the bundle fields by `metadata.managedFields`, apart from us
        other_owners: Vec<String>,
    },
}

/// One `caBundle` field
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The webhook's name, or the key
    pub name: String,
    pem: Vec<u8>,
    /// Parsed once: it is looked at for each authority, and each look would parse all of them.
    bundle: Option<TrustBundle>,
}

impl Slot {
    /// A field with its content
    #[must_use]
    pub fn new(name: impl Into<String>, pem: impl Into<Vec<u8>>) -> Self {
        let pem = pem.into();
        Self { name: name.into(), bundle: TrustBundle::from_pem_lossy(&pem), pem }
    }

    /// What stands there, decoded from base64; empty when the field is absent
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// What callers trust by it. As to an API server, what is no certificate counts for nothing among others that are.
    #[must_use]
    pub fn bundle(&self) -> Option<&TrustBundle> {
        self.bundle.as_ref()
    }
}

impl Reading {
    /// A target that is there and as it should be, but for its bundle
    #[must_use]
    pub fn present(version: impl Into<String>, slots: Vec<Slot>) -> Self {
        Self::Present { version: version.into(), slots, stale: false, other_owners: Vec::new() }
    }

    /// The same, but for whether something besides the bundle is to be written
    #[must_use]
    pub fn with_stale(mut self, is_stale: bool) -> Self {
        if let Self::Present { stale, .. } = &mut self {
            *stale = is_stale;
        }
        self
    }

    /// The same, with others who own the bundle fields
    #[must_use]
    pub fn with_other_owners(mut self, owners: impl IntoIterator<Item = String>) -> Self {
        if let Self::Present { other_owners, .. } = &mut self {
            *other_owners = owners.into_iter().collect();
        }
        self
    }

    /// For a write that depends on it; `None` when there is nothing
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Present { version, .. } => Some(version),
        }
    }

    fn slots(&self) -> &[Slot] {
        match self {
            Self::Absent => &[],
            Self::Present { slots, .. } => slots,
        }
    }

    /// Whether anybody calls through it
    pub(crate) fn has_slots(&self) -> bool {
        !self.slots().is_empty()
    }

    /// Whether there is nothing to write: every slot holds exactly these bytes, or there is no slot
    #[must_use]
    pub fn holds(&self, bundle: &TrustBundle) -> bool {
        let stale = matches!(self, Self::Present { stale: true, .. });
        !stale && self.holds_bytes_of(bundle)
    }

    /// Whether every slot holds exactly these bytes, or there is no slot
    pub(crate) fn holds_bytes_of(&self, bundle: &TrustBundle) -> bool {
        let pem = bundle.to_pem();
        self.slots().iter().all(|slot| slot.pem == pem.as_bytes())
    }

    /// Whether every slot holds this authority, among others or not
    #[must_use]
    pub fn trusts(&self, authority: &Fingerprint) -> bool {
        self.slots().iter().all(|slot| slot.bundle().is_some_and(|bundle| bundle.contains(authority)))
    }

    /// Whether callers that use any of its slots accept this certificate
    #[must_use]
    pub fn accepts(&self, leaf: &ServingCertificate, names: &ServingNames, now: SystemTime) -> bool {
        self.refusal(leaf, names, now).is_none()
    }

    /// Why callers that use some of its slots refuse this certificate, if they do
    pub(crate) fn refusal(
        &self,
        leaf: &ServingCertificate,
        names: &ServingNames,
        now: SystemTime,
    ) -> Option<String> {
        let slots = match self {
            Self::Absent => return None,
            Self::Present { slots, .. } if slots.is_empty() => return Some("there is none".to_owned()),
            Self::Present { slots, .. } => slots,
        };
        let lacking = leaf.lacking(names);
        if !lacking.is_empty() {
            return Some(format!("the certificate is not for {}", lacking.join(", ")));
        }
        slots.iter().find_map(|slot| match slot.bundle() {
            None => Some(format!("{} has no trust bundle", slot.name)),
            Some(bundle) => leaf.verify_chain(bundle, now).err().map(|error| {
                let held: Vec<_> = bundle.fingerprints().map(|it| it.to_string()).collect();
                format!("{} trusts {}: {}", slot.name, held.join(", "), crate::chain(&error))
            }),
        })
    }

    /// Who owns the bundle fields, apart from us
    #[must_use]
    pub fn other_owners(&self) -> &[String] {
        match self {
            Self::Absent => &[],
            Self::Present { other_owners, .. } => other_owners,
        }
    }

    /// All certificates that any slot holds
    #[must_use]
    pub fn bundle(&self) -> Option<TrustBundle> {
        let mut bundles = self.slots().iter().filter_map(Slot::bundle);
        let first = bundles.next()?.clone();
        Some(bundles.fold(first, |all, bundle| all.merge(bundle)))
    }
}
