//! The configuration that stands in the cluster's ConfigMaps.
//!
//! [`state`] knows what follows from their content, [`watch`] keeps it in step with the API server. Nothing is fetched
//! while a request waits.

mod state;
mod watch;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use lucid_chain::{Catalogue, Configuration, NamespaceChain, Overrides, SkipPolicy};
use lucid_notary::ImageReference;
use snafu::Snafu;

use state::State;

/// What the operator is told at start; the ConfigMaps come on top.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The chain of pods whose annotations and namespace name none.
    pub chain: Option<Vec<String>>,
    /// What wins over the pods' annotations.
    pub overrides: Overrides,
    /// Which pods may ask for no injection.
    pub skip: SkipPolicy,
    /// Image of lucid-init; `None` for the built-in one.
    pub init_image: Option<ImageReference>,
    /// Names of Secrets with which images are pulled.
    pub image_pull_secrets: Vec<String>,
}

/// The ConfigMaps have not been read yet, or there is no chain to fall back to.
#[derive(Debug, Snafu)]
#[snafu(display("the configuration is not known yet: {reason}"))]
pub struct NotSynced {
    reason: String,
}

/// What holds for the pods of one namespace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamespaceView {
    /// Catalogue, chain and settings of the cluster.
    pub configuration: Arc<Configuration>,
    /// Chain and catalogue of the namespace, if it has its own.
    pub namespace_chain: Option<Arc<NamespaceChain>>,
    /// What stands in the ConfigMaps and cannot be used; the last good content stays in force.
    pub problems: Vec<String>,
}

/// The configuration in force, always the last good one. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct ClusterConfiguration(Arc<ArcSwap<State>>);

impl fmt::Debug for ClusterConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfiguration").finish_non_exhaustive()
    }
}

impl ClusterConfiguration {
    /// A configuration that is unknown until [`Self::watch`] has read the ConfigMaps.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(State::new(settings))))
    }

    /// What holds for the pods of `namespace`.
    ///
    /// # Errors
    ///
    /// Before the ConfigMaps were read once. Not to answer then is better than to guess.
    pub fn namespace(&self, namespace: &str) -> Result<NamespaceView, NotSynced> {
        self.0.load().view(namespace).map_err(|reason| NotSyncedSnafu { reason }.build())
    }

    /// Every catalogue whose auditors may run in `namespace`: the built-in one, the cluster's, the namespace's.
    ///
    /// # Errors
    ///
    /// As [`Self::namespace`].
    pub fn catalogues(&self, namespace: &str) -> Result<Vec<Catalogue>, NotSynced> {
        let view = self.namespace(namespace)?;
        let own = view.namespace_chain.map(|chain| chain.catalogue().clone());
        Ok([Catalogue::builtin(), view.configuration.catalogue().clone()].into_iter().chain(own).collect())
    }

    /// Requests go on reading the present state while the next one is made: what stands in a ConfigMap may take a while
    /// to read. There is one writer, [`Self::watch`].
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = State::clone(&self.0.load());
        change(&mut state);
        self.0.store(Arc::new(state));
    }
}
