//! What Lucid processes know of the cluster they serve: the catalogue, the chains of the namespaces, what labels of
//! namespaces say, kept in step with the API server.
//!
//! The catalogue is the built-in one, over it ConfigMap `lucid-auditors`, over it the [`auditor`] objects; what a namespace
//! has of its own lies over these. Where something cannot be used, the last good content stays in force and the problem is
//! told with object and key.
//!
//! Everything is watched: no request asks the API server. `catalogue`, `auditors` and `namespaces` know what follows from what was
//! read and `state` holds them together, all without I/O; `watch` reads.

pub mod auditor;
mod auditors;
mod catalogue;
mod generations;
mod injection;
mod namespaces;
mod state;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lucid_chain::{
    Catalogue, Configuration, ConfigurationError, Inputs, NamespaceChain, Overrides, PodChoices, PodSecurity,
    SkipPolicy,
};
use lucid_notary::ImageReference;
use serde::{Deserialize, Serialize};
use snafu::Snafu;
use tokio::sync::watch as channel;

use state::{State, Unready};

pub use auditors::{Acceptance, AuditorObject};
pub use injection::InjectionArgs;

/// What the operator is told at start; what stands in the cluster comes on top.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
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
    /// Whether the labels of namespaces are followed too, as [`ClusterConfiguration::namespace`] needs it. Takes the right
    /// to list and watch namespaces.
    #[serde(skip)]
    pub namespaces: bool,
}

impl Settings {
    /// The configuration of a cluster with this catalogue.
    ///
    /// # Errors
    ///
    /// When the chain names an auditor that the catalogue does not have.
    pub fn configuration(&self, catalogue: Catalogue) -> Result<Configuration, ConfigurationError> {
        let mut configuration = Configuration::new(catalogue, self.chain.as_deref())?;
        configuration.overrides = self.overrides;
        configuration.skip = self.skip.clone();
        configuration.image_pull_secrets.clone_from(&self.image_pull_secrets);
        if let Some(image) = &self.init_image {
            configuration.init_image = image.clone();
        }
        Ok(configuration)
    }
}

/// What would have to be known has not been read yet, or there is no chain to fall back to.
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
    /// Identifier of the settings.
    pub generation: String,
    /// Generations and configurations of replicas with other settings, for as long as a roll-out may take.
    pub others: Vec<(String, Configuration)>,
    /// Chain and catalogue of the namespace, if it has its own.
    pub namespace_chain: Option<Arc<NamespaceChain>>,
    /// Reason why the namespace's own chain cannot be read, when no valid content of it is known.
    pub invalid_chain: Option<String>,
    /// The level that Pod Security admission enforces in the namespace.
    pub pod_security: PodSecurity,
    /// Whether the namespace has the label `lucid.computing/enabled: "true"`.
    pub enabled: bool,
    /// Whether the namespace demands a chain of every pod: label or annotation `lucid.computing/require-chain: "true"`.
    pub requires_chain: bool,
    /// Annotations of pods that count in the namespace: label or annotation `lucid.computing/pod-choices`.
    pub pod_choices: PodChoices,
    /// What stands in ConfigMaps and objects and cannot be used; the last good content stays in force.
    pub problems: Vec<String>,
}

impl NamespaceView {
    /// Inputs of the planner for a pod of this namespace; `enforces` is the admission mode.
    ///
    /// Where the chain of the namespace cannot be read, pods get the chain of the cluster only if nothing is enforced: a replica
    /// that restarts forgets the last valid content, and must not weaken the chain.
    #[must_use]
    pub fn inputs(&self, enforces: bool) -> Inputs<'_> {
        let is_refused = enforces || self.requires_chain;
        Inputs::new(&self.configuration)
            .with_namespace_chain(self.namespace_chain.as_deref())
            .with_invalid_namespace_chain(self.invalid_chain.as_deref().filter(|_| is_refused))
            .with_pod_security(self.pod_security)
            .with_pod_choices(self.pod_choices)
    }
}

/// The configuration in force, always the last good one. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct ClusterConfiguration(Arc<State>);

impl fmt::Debug for ClusterConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfiguration").finish_non_exhaustive()
    }
}

/// How long a request waits for a namespace that is not known: what the API server has just made comes by the watch within
/// milliseconds.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(1);

impl ClusterConfiguration {
    /// A configuration that is unknown until [`Self::watch`] has read what there is.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(State::new(settings)))
    }

    /// What holds for the pods of `namespace`.
    ///
    /// A review does not carry the labels of its namespace, and a namespace may have been made a moment before its first
    /// pod. To take it for one without labels could be wrong both ways: rules that Pod Security admission then refuses, or
    /// a chain without rules where there should be some. So a request for a namespace that is not known waits up to a
    /// second for the watch to bring it, which costs the API server nothing, and then is not answered.
    ///
    /// # Errors
    ///
    /// Before everything was read once, and when the namespace stays unknown. Not to answer then is better than to guess.
    pub async fn namespace(&self, namespace: &str) -> Result<NamespaceView, NotSynced> {
        let mut changes = self.0.changes();
        let known = async {
            loop {
                match self.0.view(namespace) {
                    Err(Unready::UnknownNamespace) if changes.changed().await.is_ok() => {}
                    other => return other,
                }
            }
        };
        let view = tokio::time::timeout(NAMESPACE_PATIENCE, known).await;
        view.unwrap_or(Err(Unready::UnknownNamespace)).map_err(|unready| {
            let reason = match unready {
                Unready::NotRead(reason) => reason,
                Unready::UnknownNamespace => {
                    format!("namespace {namespace} has not been heard of")
                }
            };
            NotSyncedSnafu { reason }.build()
        })
    }

    /// Every catalogue whose auditors may run in `namespace`: the built-in one, the cluster's, and, once the namespace is
    /// known, its own.
    ///
    /// # Errors
    ///
    /// Before everything was read once.
    pub fn catalogues(&self, namespace: &str) -> Result<Vec<Catalogue>, NotSynced> {
        self.0.catalogues(namespace).map_err(|reason| NotSyncedSnafu { reason }.build())
    }

    /// Whether requests can be answered.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.0.is_synced()
    }

    /// The Auditor objects, as they were last heard of.
    #[must_use]
    pub fn auditors(&self) -> Vec<AuditorObject> {
        self.0.auditors()
    }

    /// Changes whenever something about an Auditor object may have changed.
    #[must_use]
    pub fn auditor_changes(&self) -> channel::Receiver<()> {
        self.0.auditor_changes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::namespaces::Labels;

    fn synced() -> ClusterConfiguration {
        let cluster = ClusterConfiguration::new(Settings { namespaces: true, ..Settings::default() });
        cluster.0.set_catalogue("lucid-system", None);
        cluster.0.change_auditors(|auditors| auditors.set_all(Vec::new()));
        cluster.0.set_chains(BTreeMap::new());
        cluster
    }

    #[tokio::test]
    async fn a_request_waits_a_moment_for_a_namespace_that_is_new_and_no_longer() {
        let cluster = synced();
        // Nothing is waited for before the first list.
        let begin = tokio::time::Instant::now();
        let unread = cluster.namespace("new").await.unwrap_err().to_string();
        assert!(unread.ends_with("namespaces have not been listed"), "{unread}");
        assert!(begin.elapsed() < NAMESPACE_PATIENCE);

        cluster.0.set_all_labels(HashMap::new());
        let unknown = cluster.namespace("new").await.unwrap_err().to_string();
        assert!(unknown.contains("namespace new has not been heard of"), "{unknown}");
        assert!(begin.elapsed() >= NAMESPACE_PATIENCE);

        let requests = futures::future::join_all((0..100).map(|_| cluster.namespace("new")));
        let made = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cluster.0.set_labels("other", Some(Labels::default()));
            cluster.0.set_labels("new", Some(Labels { is_enabled: true, ..Labels::default() }));
        };
        let (views, ()) = futures::future::join(requests, made).await;
        assert!(views.into_iter().all(|view| view.unwrap().enabled));
    }
}
