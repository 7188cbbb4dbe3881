//! The state of a cluster as Lucid processes need it: the catalogue, and the chains and labels of the namespaces, kept
//! in sync with the API server.
//!
//! ConfigMap `lucid-policy` has admission mode and exemptions, `lucid-webhooks` the permissions of the webhooks.
//! ConfigMap `lucid-auditors`, or for namespaces with the revision `canary` `lucid-auditors-canary`, overlays the
//! built-in catalogue, the [`auditor`] objects overlay both, and the ConfigMap of a namespace overlays all of them. Where
//! content is invalid, the last valid content stays in force and the problem
//! is reported with object and key.
//!
//! All state comes from watches, so admission requests cause no requests to the API server. `catalogue`, `auditors` and
//! `namespaces` derive the configuration and `state` holds it, all without I/O; `watch` reads from the API server.

pub mod auditor;
mod auditors;
mod catalogue;
mod collector;
mod document;
mod generations;
mod keeper;
mod namespaces;
mod permissions;
mod policy;
mod state;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lucid_chain::{
    Catalogue, Configuration, Inputs, NamespaceChain, NamespaceSettings, Overrides, SkipPolicy,
};
use lucid_notary::ImageReference;
use lucid_policy::Policy;
use serde::{Deserialize, Serialize};
use snafu::Snafu;

use state::State;

pub(crate) use auditor::AuditorStatus;
pub(crate) use auditors::{Acceptance, AuditorObject};
pub use generations::CONFIG_MAP as GENERATIONS_CONFIG_MAP;
pub use keeper::{KeeperAction, KeeperSettings};
pub use permissions::CONFIG_MAP as WEBHOOKS_CONFIG_MAP;
pub(crate) use policy::ModeInForce;
pub use policy::{CONFIG_MAP as POLICY_CONFIG_MAP, parse_exemptions};

/// Settings from the options of the process. Objects of the cluster are applied on top of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChainSettings {
    /// Chain of pods whose annotations and namespace name none.
    pub chain: Option<Vec<String>>,
    /// Values that take precedence over the pods' annotations.
    pub overrides: Overrides,
    /// Policy for pods that request to skip injection.
    pub skip: SkipPolicy,
    /// Image of lucid-init; `None` for the built-in default.
    pub init_image: Option<ImageReference>,
    /// Image of lucid-egress, unless the catalogue names one; `None` for the built-in default.
    pub egress_image: Option<ImageReference>,
    /// Names of Secrets for pulling the injected images.
    pub image_pull_secrets: Vec<String>,
}

impl ChainSettings {
    /// Returns the configuration of a cluster with this catalogue.
    ///
    /// # Errors
    ///
    /// Returns an error if the chain names an auditor that the catalogue does not contain.
    pub fn configuration(&self, catalogue: Catalogue) -> Result<Configuration, lucid_chain::Error> {
        let catalogue = match &self.egress_image {
            Some(image) => catalogue.with_egress_image(image),
            None => catalogue,
        };
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

/// The cluster's configuration has not been read yet, or contains no usable fallback.
#[derive(Debug, Snafu)]
#[snafu(display("the configuration is not known yet: {reason}"))]
pub struct NotSynced {
    reason: String,
    /// `true` if all objects have been read, without such a namespace.
    is_unknown_namespace: bool,
}

impl NotSynced {
    const fn not_read(reason: String) -> Self {
        Self { reason, is_unknown_namespace: false }
    }

    fn unknown_namespace(namespace: &str) -> Self {
        let reason = format!("namespace {namespace} is not known to this replica");
        Self { reason, is_unknown_namespace: true }
    }
}

/// Configuration for the pods of one namespace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamespaceView {
    /// Catalogue, chain and settings of the cluster.
    pub configuration: Arc<Configuration>,
    /// Policy by which the pods are evaluated.
    pub policy: Arc<Policy>,
    /// Chain and catalogue of the namespace, if it has its own.
    pub namespace_chain: Option<Arc<NamespaceChain>>,
    /// Reason why the namespace's own chain cannot be used, if no valid content of it is known.
    pub invalid_chain: Option<String>,
    /// `true` if the namespace has the label `lucid.computing/enabled: "true"`.
    pub enabled: bool,
    /// Settings in the labels and annotations of the namespace.
    pub settings: Arc<NamespaceSettings>,
    /// Action of a keeper on running pods whose chain is not the planned one.
    pub keeper: KeeperAction,
    /// `true` if the catalogue is that of ConfigMap `lucid-auditors-canary`. `false` also while there is no valid one.
    pub is_canary: bool,
    /// Problems of ConfigMaps and Auditor objects. Their last valid content stays in force.
    pub problems: Vec<String>,
}

impl NamespaceView {
    /// Returns the planner's inputs for a pod of this namespace. In place of a chain of the namespace that cannot be
    /// read, that of the cluster is planned.
    #[must_use]
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs {
            settings: &self.settings,
            namespace_chain: Ok(self.namespace_chain.as_deref()),
            ..Inputs::new(&self.configuration)
        }
    }

    /// Returns the catalogues whose auditors may run in the namespace: the built-in one, the cluster's and its own.
    #[must_use]
    pub fn catalogues(&self) -> Vec<Catalogue> {
        let own = self.namespace_chain.as_deref().map(|chain| chain.catalogue().clone());
        [Catalogue::builtin(), self.configuration.catalogue().clone()].into_iter().chain(own).collect()
    }
}

/// The configuration in force: the last valid one. Clones are cheap and share their state.
#[derive(Clone)]
pub struct ClusterConfiguration {
    state: Arc<State>,
    publishes: bool,
}

impl fmt::Debug for ClusterConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterConfiguration").finish_non_exhaustive()
    }
}

/// Maximum time that a request waits for an unknown namespace. The watch usually delivers a new namespace within
/// milliseconds.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(1);

impl ClusterConfiguration {
    /// Creates a configuration that is unknown until [`Self::start`] has read the cluster's objects.
    #[must_use]
    pub fn new(settings: ChainSettings) -> Self {
        Self { state: Arc::new(State::new(settings)), publishes: false }
    }

    /// Sets the policy. Mode and exemptions of ConfigMap [`POLICY_CONFIG_MAP`] take precedence. Without this, the mode
    /// is audit.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        self.set_default_policy(policy);
        self
    }

    /// Publishes the settings of this replica in ConfigMap [`GENERATIONS_CONFIG_MAP`], so that replicas with other
    /// settings accept the chains that it injects.
    #[must_use]
    pub fn with_publishing(self) -> Self {
        Self { publishes: true, ..self }
    }

    /// Returns the configuration for the pods of `namespace`.
    ///
    /// An admission review does not contain the labels of its namespace, and a namespace may be created moments before
    /// its first pod. Assuming a namespace without labels could be wrong in two ways: Pod Security admission might
    /// reject the network rules, or required rules might be missing. A request for an unknown namespace therefore waits
    /// up to a second for the watch to deliver it, and then fails.
    ///
    /// # Errors
    ///
    /// Returns an error until all objects have been read once, and if the namespace stays unknown.
    pub async fn namespace(&self, namespace: &str) -> Result<NamespaceView, NotSynced> {
        let mut changes = self.state.known.subscribe();
        let known = async {
            loop {
                match self.view(namespace) {
                    Err(error) if error.is_unknown_namespace && changes.changed().await.is_ok() => {}
                    other => return other,
                }
            }
        };
        let view = tokio::time::timeout(NAMESPACE_PATIENCE, known).await;
        view.unwrap_or_else(|_| Err(NotSynced::unknown_namespace(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::namespaces::{Change, Labels};

    fn synced() -> ClusterConfiguration {
        let cluster = ClusterConfiguration::new(ChainSettings::default());
        cluster.set_catalogue("lucid-system", None);
        cluster.set_canary("lucid-system", None);
        cluster.change_auditors(|auditors| auditors.set_all(Vec::new()));
        cluster.change_chains(Change::All(Vec::new()));
        cluster.set_permissions("lucid-system", None);
        cluster.set_policy("lucid-system", None, None);
        cluster
    }

    #[tokio::test]
    async fn an_already_known_mode_is_recorded() {
        let cluster = ClusterConfiguration::new(ChainSettings::default());
        let enforce = [("mode".to_owned(), "enforce".to_owned())].into();
        cluster.set_policy("lucid-system", Some(&enforce), None);
        let recorder = Arc::new(lucid_audit::Recorder::new(10));
        let recorded = lucid_e2e::eventually("a record", async || !recorder.latest().is_empty());
        tokio::select! {
            () = crate::record_modes(&cluster, Arc::clone(&recorder)) => {}
            () = recorded => {}
        }
        assert_eq!(recorder.latest()[0].decision().mode, "enforce");
    }

    #[tokio::test]
    async fn requests_wait_briefly_for_new_namespaces() {
        let cluster = synced();
        // A request does not wait before the first list.
        let begin = tokio::time::Instant::now();
        let unread = cluster.namespace("new").await.unwrap_err().to_string();
        assert!(unread.ends_with("namespaces have not been listed"), "{unread}");
        assert!(begin.elapsed() < NAMESPACE_PATIENCE);

        cluster.change_labels(Change::All(Vec::new()));
        let unknown = cluster.namespace("new").await.unwrap_err().to_string();
        assert!(unknown.contains("namespace new is not known to this replica"), "{unknown}");
        assert!(begin.elapsed() >= NAMESPACE_PATIENCE);

        let requests = futures::future::join_all((0..100).map(|_| cluster.namespace("new")));
        let made = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            cluster.change_labels(Change::Set(("other".to_owned(), Labels::default())));
            let labels = Labels { is_enabled: true, ..Labels::default() };
            cluster.change_labels(Change::Set(("new".to_owned(), labels)));
        };
        let (views, ()) = futures::future::join(requests, made).await;
        assert!(views.into_iter().all(|view| view.unwrap().enabled));
    }
}
