//! The state of the cluster, shared by concurrent readers and one writer. No I/O.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lucid_chain::{Configuration, NamespaceChain, keys};
use lucid_policy::Policy;
use tokio::sync::watch;

use crate::cluster::auditors::{AuditorObject, Auditors};
use crate::cluster::catalogue::{InForce, Layers, Revisions};
use crate::cluster::document::Document;
use crate::cluster::generations::{self, Generations};
use crate::cluster::namespaces::{ByNamespace, Chain, Change, Data, Labels};
use crate::cluster::permissions::{self, WebhookPermissions, Webhooks};
use crate::cluster::policy::{self, ModeInForce, PolicyData};
use crate::cluster::{ChainSettings, ClusterConfiguration, KeeperSettings, NamespaceView, NotSynced};

/// Shared state of [`ClusterConfiguration`]. Only the watches write to it.
pub(super) struct State {
    layers: Mutex<Layers>,
    /// State that requests read. Locked for moments only: nothing is parsed under this lock.
    pub(super) known: watch::Sender<Known>,
    auditors: watch::Sender<Vec<AuditorObject>>,
    permissions: WebhookPermissions,
    modes: watch::Sender<Option<ModeInForce>>,
    /// Settings of this replica with all defaults, and their identifier.
    pub(super) published: ChainSettings,
    pub(super) generation: String,
}

pub(super) struct Known {
    in_force: Result<Revisions, String>,
    chains: ByNamespace<Chain>,
    labels: ByNamespace<Labels>,
    generations: Generations,
    webhooks: Document<Webhooks>,
    policy: Document<PolicyData>,
    default_policy: Policy,
    policy_in_force: Arc<Policy>,
    /// Number of changes of catalogue, chains and labels.
    changes: u64,
    /// `false` until this replica has tried to publish its settings, if it publishes them.
    pub(super) has_published: bool,
}

impl State {
    pub(super) fn new(settings: ChainSettings) -> Self {
        let published = generations::resolved(&settings);
        let layers = Layers::new(settings);
        let known = Known {
            in_force: layers.in_force(),
            chains: ByNamespace::default(),
            labels: ByNamespace::default(),
            generations: Generations::default(),
            webhooks: Document::new(permissions::CONFIG_MAP),
            policy: Document::new(policy::CONFIG_MAP),
            default_policy: Policy::default(),
            policy_in_force: Arc::default(),
            changes: 0,
            has_published: true,
        };
        Self {
            generation: generations::id(&published),
            published,
            layers: Mutex::new(layers),
            known: watch::Sender::new(known),
            auditors: watch::Sender::default(),
            permissions: WebhookPermissions::default(),
            modes: watch::Sender::default(),
        }
    }

    fn layers(&self) -> MutexGuard<'_, Layers> {
        // A poisoned lock means that a writer panicked. The guarded value is still consistent, and preferable to none.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of [`Known`] that concerns one namespace.
struct KnownNamespace {
    in_force: Arc<InForce>,
    is_canary: bool,
    /// Problems of the catalogue.
    problems: Vec<String>,
    chain: Option<Arc<Chain>>,
    labels: Option<Arc<Labels>>,
}

impl Known {
    fn namespace(&self, name: &str) -> Result<KnownNamespace, NotSynced> {
        let Revisions { ordinary, canary } = self.in_force.clone().map_err(NotSynced::not_read)?;
        if !self.chains.is_listed() {
            let reason = format!("ConfigMaps {} have not been listed", keys::NAMESPACE_CONFIG_MAP);
            return Err(NotSynced::not_read(reason));
        }
        let (chain, labels) = (self.chains.get(name), self.labels.get(name));
        let mut problems = ordinary.problems.clone();
        let wants_canary = labels.as_ref().is_some_and(|labels| labels.settings.is_canary);
        let canary = wants_canary.then_some(canary).and_then(|canary| match canary {
            Ok(canary) => {
                problems.extend_from_slice(&canary.problems);
                Some(canary)
            }
            Err(reason) => {
                let (key, ordinary) = (keys::REVISION_LABEL, keys::CATALOGUE_CONFIG_MAP);
                problems.push(format!("namespace {name}, {key}: {reason}; {ordinary} applies"));
                None
            }
        });
        let is_canary = canary.is_some();
        Ok(KnownNamespace { in_force: canary.unwrap_or(ordinary), is_canary, problems, chain, labels })
    }
}

impl KnownNamespace {
    /// Parses the chain. Returns the last valid one and the problem of the current content.
    fn read_chain(&self, name: &str) -> (Option<Arc<NamespaceChain>>, Option<String>) {
        let (Some(chain), Some(labels)) = (&self.chain, &self.labels) else { return (None, None) };
        chain.read(name, &self.in_force.configuration, &labels.settings)
    }
}

impl ClusterConfiguration {
    /// Returns the configuration for the pods of `namespace` without waiting for the namespace.
    pub(crate) fn view(&self, namespace: &str) -> Result<NamespaceView, NotSynced> {
        let (known, policy, keeper, of_documents) = {
            let known = self.state.known.borrow();
            let of_namespace = known.namespace(namespace)?;
            if !known.labels.is_listed() {
                return Err(NotSynced::not_read("namespaces have not been listed".to_owned()));
            }
            known.webhooks.content().map_err(NotSynced::not_read)?;
            let keeper = known.policy.content().map_err(NotSynced::not_read)?.keeper;
            let problems = known.webhooks.problem().into_iter().chain(known.policy.problem());
            (of_namespace, Arc::clone(&known.policy_in_force), keeper, problems.cloned().collect::<Vec<_>>())
        };
        let (chain, problem) = known.read_chain(namespace);
        let KnownNamespace { in_force, is_canary, problems, labels, .. } = known;
        let labels = labels.ok_or_else(|| NotSynced::unknown_namespace(namespace))?;
        let of_labels =
            labels.settings.problems().iter().map(|problem| format!("namespace {namespace}, {problem}"));
        let of_chain = problem.clone().map(|problem| match chain {
            Some(_) => problem,
            None => format!(
                "{problem}; in admission mode enforce, pods of the namespace are refused; otherwise they get the chain of the cluster"
            ),
        });
        Ok(NamespaceView {
            configuration: Arc::clone(&in_force.configuration),
            policy,
            invalid_chain: problem.filter(|_| chain.is_none()),
            namespace_chain: chain,
            enabled: labels.is_enabled,
            settings: Arc::clone(&labels.settings),
            keeper: labels.keeper.unwrap_or(keeper.action),
            is_canary,
            problems: problems.into_iter().chain(of_documents).chain(of_labels).chain(of_chain).collect(),
        })
    }

    pub(crate) fn generation(&self) -> &str {
        &self.state.generation
    }

    /// Returns the generations of replicas with other settings, for as long as a roll-out may take, with the
    /// configuration that each has in place of `own`. They determine the chain of a pod, not its exemption from having
    /// one.
    pub(crate) fn others(&self, own: &Configuration) -> Vec<(String, Configuration)> {
        let known = self.state.known.borrow();
        let accepted = known.generations.accepted(Instant::now());
        let read = accepted.filter_map(|(id, settings)| {
            let mut configuration = settings.configuration(own.catalogue().clone()).ok()?;
            configuration.skip.clone_from(&own.skip);
            Some((id.clone(), configuration))
        });
        read.collect()
    }

    pub(crate) fn auditors(&self) -> watch::Receiver<Vec<AuditorObject>> {
        self.state.auditors.subscribe()
    }

    pub(super) fn is_synced(&self) -> bool {
        let known = self.state.known.borrow();
        known.in_force.is_ok()
            && known.chains.is_listed()
            && known.labels.is_listed()
            && known.webhooks.content().is_ok()
            && known.policy.content().is_ok()
            && known.has_published
    }

    pub(super) fn obsolete_generations(&self) -> Vec<String> {
        self.state.known.borrow().generations.obsolete()
    }

    pub(super) fn set_generations(&self, data: &Data) {
        let change = |known: &mut Known| known.generations.set(data, &self.state.generation, Instant::now());
        self.state.known.send_modify(change);
    }

    /// Sets the content of ConfigMap `lucid-auditors` of `namespace`; `None` if it does not exist.
    pub(super) fn set_catalogue(&self, namespace: &str, data: Option<&Data>) {
        self.change_layers(|layers| layers.ordinary.set(namespace, data));
    }

    /// Sets the content of ConfigMap `lucid-auditors-canary` of `namespace`; `None` if it does not exist.
    pub(super) fn set_canary(&self, namespace: &str, data: Option<&Data>) {
        self.change_layers(|layers| layers.canary.set(namespace, data));
    }

    pub(crate) fn permissions(&self) -> &WebhookPermissions {
        &self.state.permissions
    }

    /// Returns the ConfigMaps of Lucid's namespace, and whether their content is valid.
    pub(super) fn valid_config_maps(&self) -> [(&'static str, bool); 4] {
        let [ordinary, canary] = {
            let layers = self.state.layers();
            [layers.ordinary.is_valid(), layers.canary.is_valid()]
        };
        let known = self.state.known.borrow();
        [
            (keys::CATALOGUE_CONFIG_MAP, ordinary),
            (keys::CANARY_CONFIG_MAP, canary),
            (permissions::CONFIG_MAP, known.webhooks.problem().is_none()),
            (policy::CONFIG_MAP, known.policy.problem().is_none()),
        ]
    }

    pub(crate) fn modes(&self) -> watch::Receiver<Option<ModeInForce>> {
        self.state.modes.subscribe()
    }

    /// Returns the problems of ConfigMap `lucid-auditors-canary`, also while no namespace has that revision.
    pub fn canary_problems(&self) -> Vec<String> {
        self.state.layers().canary.problems()
    }

    /// Returns the settings in ConfigMap `lucid-webhooks` that leave pods without auditors, or unchecked.
    pub fn permission_gaps(&self) -> Vec<String> {
        self.state.known.borrow().webhooks.content().map(Webhooks::gaps).unwrap_or_default()
    }

    /// Returns the labels that the administrator's selector of `/validate` reads, for
    /// [`Registrations::with_validated_labels`](crate::Registrations::with_validated_labels).
    #[must_use]
    pub fn validated_labels(&self) -> Vec<String> {
        self.permissions().validate.borrow().selector.label_keys().map(str::to_owned).collect()
    }

    /// Sets the content of ConfigMap `lucid-webhooks` of `namespace`; `None` if it does not exist.
    pub(super) fn set_permissions(&self, namespace: &str, data: Option<&Data>) {
        self.state.known.send_modify(|known| {
            known.webhooks.set(namespace, data, Webhooks::read);
            if let Ok(webhooks) = known.webhooks.content() {
                self.state.permissions.set(webhooks);
            }
        });
        for gap in self.permission_gaps() {
            tracing::warn!("{gap}");
        }
    }

    pub(crate) fn default_policy(&self) -> Policy {
        self.state.known.borrow().default_policy.clone()
    }

    pub(super) fn set_default_policy(&self, policy: Policy) {
        self.state.known.send_modify(|known| {
            known.policy_in_force = Arc::new(policy.clone());
            known.default_policy = policy;
        });
    }

    /// Sets the content of ConfigMap `lucid-policy` of `namespace`, whose mode `manager` wrote; `None` if it does not
    /// exist.
    pub(super) fn set_policy(&self, namespace: &str, data: Option<&Data>, manager: Option<String>) {
        self.state.known.send_modify(|known| {
            let before = known.policy.content().map(PolicyData::exemptions).unwrap_or_default().to_vec();
            known.policy.set(namespace, data, PolicyData::read);
            let now = known.policy.content().map(PolicyData::exemptions).unwrap_or_default();
            known.changes += u64::from(before != now);
            if let Ok(content) = known.policy.content() {
                known.policy_in_force = Arc::new(content.apply(&known.default_policy));
            }
        });
        let known = self.state.known.borrow();
        if known.policy.content().is_ok() {
            let mode = known.policy_in_force.mode;
            self.state.modes.send_if_modified(|before| {
                let is_changed = before.as_ref().is_none_or(|before| before.mode != mode);
                if is_changed {
                    *before = Some(ModeInForce { mode, manager });
                }
                is_changed
            });
        }
    }

    /// Returns the keeper's settings in force; `None` before they have been read.
    #[must_use]
    pub fn keeper(&self) -> Option<KeeperSettings> {
        self.state.known.borrow().policy.content().ok().map(|content| content.keeper)
    }

    /// Returns the number of changes of the catalogue, the exemptions, and the chains and labels of enabled namespaces.
    /// Plans of pods change with it only.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state.known.borrow().changes
    }

    /// Waits until everything that plans need has been read. Before that, [`namespace`](Self::namespace) fails.
    pub async fn synced(&self) {
        let mut known = self.state.known.subscribe();
        while !self.is_synced() {
            // The state owns the sender, so this never fails.
            known.changed().await.ok();
        }
    }

    /// Returns the policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.state.known.borrow().policy_in_force)
    }

    pub(super) fn change_auditors(&self, change: impl FnOnce(&mut Auditors)) {
        self.change_layers(|layers| change(&mut layers.auditors));
        let objects = self.state.layers().auditors.objects().cloned().collect();
        self.state.auditors.send_replace(objects);
    }

    fn change_layers(&self, change: impl FnOnce(&mut Layers)) {
        let in_force = {
            let mut layers = self.state.layers();
            change(&mut layers);
            layers.compose();
            layers.in_force()
        };
        self.state.known.send_modify(|known| {
            let is_same = match (&known.in_force, &in_force) {
                (Ok(before), Ok(now)) => before.plans_like(now),
                _ => false,
            };
            known.changes += u64::from(!is_same);
            known.in_force = in_force;
        });
    }

    pub(super) fn change_chains(&self, change: Change<(String, Data)>) {
        let namespace = match &change {
            Change::Set((namespace, _)) => Some(namespace.clone()),
            Change::All(_) | Change::Removed(_) => None,
        };
        self.state.known.send_modify(|known| {
            let is_enabled = match &change {
                Change::All(_) => true,
                Change::Set((namespace, _)) | Change::Removed((namespace, _)) => {
                    known.labels.get(namespace).is_some_and(|labels| labels.is_enabled)
                }
            };
            let is_changed = known.chains.apply(change, Chain::new);
            known.changes += u64::from(is_enabled && is_changed);
        });
        // Parsed immediately, so that valid content is known as the last valid one.
        if let Some(namespace) = namespace {
            self.catch_up(&namespace);
        }
    }

    pub(super) fn change_labels(&self, change: Change<(String, Labels)>) {
        self.state.known.send_modify(|known| {
            let is_relevant = Cell::new(false);
            known.labels.apply(change, |labels, before| {
                let is_enabled = labels.is_enabled || before.as_ref().is_some_and(|before| before.is_enabled);
                before.filter(|before| **before == labels).unwrap_or_else(|| {
                    is_relevant.set(is_relevant.get() || is_enabled);
                    Arc::new(labels)
                })
            });
            known.changes += u64::from(is_relevant.get());
        });
    }

    pub(super) fn with_chains(&self) -> Vec<String> {
        self.state.known.borrow().chains.names()
    }

    /// Parses the chain of a namespace if no request has done so since the catalogue changed. This releases the
    /// previous catalogue.
    pub(super) fn catch_up(&self, namespace: &str) {
        let known = self.state.known.borrow().namespace(namespace);
        if let Ok(known) = known {
            known.read_chain(namespace);
        }
    }
}

#[cfg(test)]
mod tests;
