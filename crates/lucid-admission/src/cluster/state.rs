//! The state of the cluster, shared by concurrent readers and one writer. No I/O.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lucid_chain::{Configuration, NamespaceChain, keys};
use lucid_policy::Policy;
use tokio::sync::watch;

use crate::cluster::auditors::{AuditorObject, Auditors};
use crate::cluster::catalogue::{InForce, Layers};
use crate::cluster::document::Document;
use crate::cluster::generations::{self, Generations};
use crate::cluster::namespaces::{ByNamespace, Chain, Change, Data, Labels};
use crate::cluster::permissions::{self, WebhookPermissions, Webhooks};
use crate::cluster::policy::{self, ModeInForce, PolicyData};
use crate::cluster::reviews::Reviews;
use crate::cluster::{ClusterConfiguration, NamespaceView, NotSynced, Settings};

/// Shared state of [`ClusterConfiguration`]. Only the watches write to it.
pub(super) struct State {
    layers: Mutex<Layers>,
    /// State that requests read. Locked for moments only: nothing is parsed under this lock.
    pub(super) known: watch::Sender<Known>,
    auditors: watch::Sender<Vec<AuditorObject>>,
    permissions: WebhookPermissions,
    /// The admission mode; `None` until it is known.
    modes: watch::Sender<Option<ModeInForce>>,
    reviews: Arc<Reviews>,
    /// Settings of this replica with all defaults, and their identifier.
    pub(super) published: Settings,
    pub(super) generation: String,
}

/// Everything that was read from the API server.
pub(super) struct Known {
    /// The configuration in force, or the reason why there is none.
    in_force: Result<Arc<InForce>, String>,
    chains: ByNamespace<Chain>,
    labels: ByNamespace<Labels>,
    generations: Generations,
    webhooks: Document<Webhooks>,
    policy: Document<PolicyData>,
    /// Policy where ConfigMap `lucid-policy` says nothing.
    default_policy: Policy,
    policy_in_force: Arc<Policy>,
    /// `false` until this replica has tried to publish its settings, if it publishes them.
    pub(super) has_published: bool,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
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
            reviews: Arc::default(),
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
    chain: Option<Arc<Chain>>,
    labels: Option<Arc<Labels>>,
}

impl Known {
    fn namespace(&self, name: &str) -> Result<KnownNamespace, NotSynced> {
        let in_force = self.in_force.clone().map_err(NotSynced::not_read)?;
        if !self.chains.is_listed() {
            let reason = format!("ConfigMaps {} have not been listed", keys::NAMESPACE_CONFIG_MAP);
            return Err(NotSynced::not_read(reason));
        }
        Ok(KnownNamespace { in_force, chain: self.chains.get(name), labels: self.labels.get(name) })
    }
}

impl KnownNamespace {
    /// Parses the chain. Returns the last valid one and the problem of the current content.
    fn read_chain(&self, name: &str) -> (Option<Arc<NamespaceChain>>, Option<String>) {
        let (Some(chain), Some(labels)) = (&self.chain, &self.labels) else { return (None, None) };
        chain.read(name, &self.in_force.configuration, &labels.auditor_images)
    }
}

impl ClusterConfiguration {
    /// Returns the configuration for the pods of `namespace` without waiting for the namespace.
    pub(crate) fn view(&self, namespace: &str) -> Result<NamespaceView, NotSynced> {
        let (known, policy, of_documents) = {
            let known = self.state.known.borrow();
            let of_namespace = known.namespace(namespace)?;
            if !known.labels.is_listed() {
                return Err(NotSynced::not_read("namespaces have not been listed".to_owned()));
            }
            known.webhooks.content().map_err(NotSynced::not_read)?;
            known.policy.content().map_err(NotSynced::not_read)?;
            let problems = known.webhooks.problem().into_iter().chain(known.policy.problem());
            (of_namespace, Arc::clone(&known.policy_in_force), problems.cloned().collect::<Vec<_>>())
        };
        let (chain, problem) = known.read_chain(namespace);
        let KnownNamespace { in_force, labels, .. } = known;
        let labels = labels.ok_or_else(|| NotSynced::unknown_namespace(namespace))?;
        let of_labels = labels.problems.iter().map(|problem| format!("namespace {namespace}, {problem}"));
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
            pod_security: labels.pod_security,
            enabled: labels.is_enabled,
            requires_chain: labels.requires_chain,
            pod_choices: labels.pod_choices,
            upstream: labels.upstream.clone(),
            problems: in_force
                .problems
                .iter()
                .cloned()
                .chain(of_documents)
                .chain(of_labels)
                .chain(of_chain)
                .collect(),
        })
    }

    /// Returns the identifier of this replica's settings.
    pub(crate) fn generation(&self) -> &str {
        &self.state.generation
    }

    /// Returns the generations of replicas with other settings, for as long as a roll-out may take, with the configuration
    /// that each has in place of `own`. They determine the chain of a pod, not its exemption from having one.
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

    /// Returns a receiver of the Auditor objects.
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

    /// Generations that no replica uses any more.
    pub(super) fn obsolete_generations(&self) -> Vec<String> {
        self.state.known.borrow().generations.obsolete()
    }

    /// Sets the published settings of all replicas.
    pub(super) fn set_generations(&self, data: &Data) {
        let change = |known: &mut Known| known.generations.set(data, &self.state.generation, Instant::now());
        self.state.known.send_modify(change);
    }

    /// Sets the content of ConfigMap `lucid-auditors` of `namespace`; `None` if it does not exist.
    pub(super) fn set_catalogue(&self, namespace: &str, data: Option<&Data>) {
        self.change_layers(|layers| layers.set_file(namespace, data));
    }

    /// Returns the administrator's permissions of the webhooks.
    pub(crate) fn permissions(&self) -> &WebhookPermissions {
        &self.state.permissions
    }

    /// Returns the ConfigMaps of Lucid's namespace, and whether their content is valid.
    pub(super) fn valid_config_maps(&self) -> [(&'static str, bool); 3] {
        let is_catalogue_valid = self.state.layers().is_file_valid();
        let known = self.state.known.borrow();
        [
            (keys::CATALOGUE_CONFIG_MAP, is_catalogue_valid),
            (permissions::CONFIG_MAP, known.webhooks.problem().is_none()),
            (policy::CONFIG_MAP, known.policy.problem().is_none()),
        ]
    }

    /// Returns a receiver of the admission mode.
    pub(crate) fn modes(&self) -> watch::Receiver<Option<ModeInForce>> {
        self.state.modes.subscribe()
    }

    /// Returns the access review of the cluster.
    pub(crate) fn reviews(&self) -> Arc<Reviews> {
        Arc::clone(&self.state.reviews)
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

    /// Sets the policy where ConfigMap `lucid-policy` says nothing.
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
            known.policy.set(namespace, data, PolicyData::read);
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

    /// Returns the policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.state.known.borrow().policy_in_force)
    }

    /// Applies one or more changes of the Auditor objects.
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
        self.state.known.send_modify(|known| known.in_force = in_force);
    }

    /// Applies a change of the ConfigMaps of namespaces.
    pub(super) fn change_chains(&self, change: Change<(String, Data)>) {
        let namespace = match &change {
            Change::Set((namespace, _)) => Some(namespace.clone()),
            Change::All(_) | Change::Removed(_) => None,
        };
        self.state.known.send_modify(|known| known.chains.apply(change, Chain::new));
        // Parsed immediately, so that valid content is known as the last valid one.
        if let Some(namespace) = namespace {
            self.catch_up(&namespace);
        }
    }

    /// Applies a change of the labels of namespaces.
    pub(super) fn change_labels(&self, change: Change<(String, Labels)>) {
        self.state.known.send_modify(|known| known.labels.apply(change, |labels, _| Arc::new(labels)));
    }

    /// Names of the namespaces with a ConfigMap.
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
mod tests {
    use std::collections::BTreeMap;

    use kube::api::DynamicObject;
    use lucid_chain::{PodChoices, PodSecurity};
    use lucid_policy::Mode;
    use serde_json::json;

    use super::*;

    fn data(key: &str, value: &str) -> Data {
        [(key.to_owned(), value.to_owned())].into()
    }

    impl ClusterConfiguration {
        fn set_chain(&self, namespace: &str, data: Option<Data>) {
            let namespace = namespace.to_owned();
            self.change_chains(match data {
                Some(data) => Change::Set((namespace, data)),
                None => Change::Removed((namespace, Data::new())),
            });
        }

        fn set_labels(&self, namespace: &str, labels: Labels) {
            self.change_labels(Change::Set((namespace.to_owned(), labels)));
        }
    }

    /// Creates a state that lacks only the catalogue and the chains.
    fn state(settings: Settings) -> ClusterConfiguration {
        let state = ClusterConfiguration::new(settings);
        let labels = ["a", "b"].map(|name| (name.to_owned(), Labels::default()));
        state.change_labels(Change::All(labels.into()));
        state.change_auditors(|auditors| auditors.set_all(Vec::new()));
        state.set_permissions("lucid-system", None);
        state.set_policy("lucid-system", None, None);
        state
    }

    fn synced() -> ClusterConfiguration {
        let state = state(Settings::default());
        state.set_catalogue("lucid-system", None);
        state.change_chains(Change::All(Vec::new()));
        state
    }

    fn auditor(name: &str, generation: i64, image: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "lucid.computing/v1", "kind": "Auditor",
            "metadata": {"name": name, "uid": name, "generation": generation},
            "spec": {"image": image},
        }))
        .unwrap()
    }

    /// Image of auditor `name` in namespace `b`, which has no ConfigMap.
    fn image(state: &ClusterConfiguration, name: &str) -> Option<String> {
        let configuration = state.view("b").unwrap().configuration;
        configuration.catalogue().resolve(name).ok().map(|auditor| auditor.image().to_owned())
    }

    fn chain(state: &ClusterConfiguration, namespace: &str) -> Option<Vec<String>> {
        let chain = state.view(namespace).unwrap().namespace_chain?;
        Some(chain.chain().iter().map(|auditor| auditor.name().to_owned()).collect())
    }

    #[test]
    fn nothing_is_answered_before_everything_was_read() {
        let state = ClusterConfiguration::new(Settings::default());
        let reason = || {
            let error = state.view("a").unwrap_err().to_string();
            error.strip_prefix("the configuration is not known yet: ").unwrap().to_owned()
        };
        assert_eq!(reason(), "ConfigMap lucid-auditors has not been read");
        state.set_catalogue("lucid-system", None);
        assert_eq!(reason(), "Auditors have not been listed");
        state.change_auditors(|auditors| auditors.set_all(Vec::new()));
        assert_eq!(reason(), "ConfigMaps lucid-auditor-chain have not been listed");
        state.change_chains(Change::All(Vec::new()));
        assert_eq!(reason(), "namespaces have not been listed");
        assert!(!state.is_synced());
        state.change_labels(Change::All(Vec::new()));
        assert_eq!(reason(), "ConfigMap lucid-webhooks has not been read");
        state.set_permissions("lucid-system", None);
        assert_eq!(reason(), "ConfigMap lucid-policy has not been read");
        state.set_policy("lucid-system", None, None);
        assert!(state.is_synced());
        assert!(state.view("a").unwrap_err().is_unknown_namespace);
        state.set_labels("a", Labels::default());
        assert!(state.view("a").is_ok());
    }

    #[test]
    fn labels_determine_enforcement_and_enablement() {
        let state = synced();
        let labels: BTreeMap<_, _> = [
            ("pod-security.kubernetes.io/enforce".to_owned(), "baseline".to_owned()),
            ("lucid.computing/enabled".to_owned(), "true".to_owned()),
        ]
        .into();
        let annotations = BTreeMap::new();
        state.set_labels("a", Labels::of(&labels, &annotations));
        let [a, b] = ["a", "b"].map(|name| state.view(name).unwrap());
        assert_eq!((a.pod_security, a.enabled, a.requires_chain), (PodSecurity::Baseline, true, false));
        assert_eq!((b.pod_security, b.enabled, b.requires_chain), (PodSecurity::Privileged, false, false));
        let required: BTreeMap<_, _> =
            [("lucid.computing/require-chain".to_owned(), "true".to_owned())].into();
        for (labels, annotations) in [(&required, &annotations), (&annotations, &required)] {
            state.set_labels("b", Labels::of(labels, annotations));
            assert!(state.view("b").unwrap().requires_chain);
        }
        state.change_labels(Change::Removed(("a".to_owned(), Labels::default())));
        assert!(state.view("a").unwrap_err().is_unknown_namespace);
    }

    #[test]
    fn invalid_pod_choices_are_reported() {
        let state = synced();
        assert_eq!(state.view("a").unwrap().pod_choices, PodChoices::Unset);
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let (none, required) = (BTreeMap::new(), map("lucid.computing/require-chain", "true"));
        state.set_labels("a", Labels::of(&required, &none));
        assert_eq!(state.view("a").unwrap().pod_choices, PodChoices::None);
        state.set_labels("a", Labels::of(&required, &map("lucid.computing/pod-choices", "chain")));
        let view = state.view("a").unwrap();
        assert_eq!((view.pod_choices, view.problems), (PodChoices::Chain, vec![]));
        state.set_labels("a", Labels::of(&none, &map("lucid.computing/pod-choices", "some")));
        let view = state.view("a").unwrap();
        assert_eq!(view.pod_choices, PodChoices::None);
        assert!(
            view.problems[0].starts_with(r#"namespace a, lucid.computing/pod-choices: found "some""#),
            "{:?}",
            view.problems
        );
    }

    #[test]
    fn own_images_of_a_namespace_end_with_the_permission_for_them() {
        let state = synced();
        let allow = |images: &str| {
            let annotations = [("lucid.computing/auditor-images".to_owned(), images.to_owned())].into();
            state.set_labels("a", Labels::of(&BTreeMap::new(), &annotations));
        };
        state.set_chain("a", Some(data("auditors.yaml", "chain: [{name: topics, image: own.test/p}]")));
        assert_eq!(chain(&state, "a"), None);
        let problems = state.view("a").unwrap().problems;
        assert!(problems[0].contains("auditor topics: image is not the namespace's to set"), "{problems:?}");
        assert!(problems[0].ends_with("they get the chain of the cluster"), "{problems:?}");
        assert_eq!(state.view("a").unwrap().catalogues().len(), 2);

        allow("own.test");
        allow("own.test/p");
        assert_eq!(chain(&state, "a"), Some(vec!["topics".to_owned()]));
        assert!(state.view("a").unwrap().problems.is_empty());
        assert_eq!(state.view("a").unwrap().catalogues().len(), 3);
        // The last valid chain stays while the ConfigMap is invalid, but not without the permission.
        state.set_chain("a", Some(data("auditors.yaml", "chain: 7")));
        assert_eq!(chain(&state, "a"), Some(vec!["topics".to_owned()]));
        allow("other.test/p");
        assert_eq!((chain(&state, "a"), state.view("a").unwrap().problems.len()), (None, 1));
    }

    #[test]
    fn objects_lie_over_the_file_and_the_file_over_what_is_built_in() {
        let state = synced();
        let file = "chain: [{name: lucid-toxicity-auditor, image: file/t}, {name: lucid-topics-auditor, image: file/p}]";
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", file)));
        state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
        assert_eq!(image(&state, "toxicity").as_deref(), Some("file/t"));
        assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
        let annotations = [("lucid.computing/auditor-images".to_owned(), "docker.io/own".to_owned())].into();
        state.set_labels("a", Labels::of(&BTreeMap::new(), &annotations));
        state.set_chain("a", Some(data("auditors.yaml", "chain: [{name: topics, image: own/p}]")));
        let own = state.view("a").unwrap().namespace_chain.unwrap();
        assert_eq!(own.chain()[0].image(), "own/p");
        state.change_auditors(|auditors| auditors.remove("topics"));
        assert_eq!(image(&state, "topics").as_deref(), Some("file/p"));
    }

    #[test]
    fn invalid_objects_are_reported_and_block_nothing() {
        let state = synced();
        state.change_auditors(|auditors| {
            auditors.set(auditor("topics", 1, "object/p"));
            auditors.set(auditor("bad", 1, "No Image"));
        });
        assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
        let problems = state.view("a").unwrap().problems;
        assert!(problems.len() == 1 && problems[0].starts_with("Auditor bad: spec.image"), "{problems:?}");
        state.change_auditors(|auditors| auditors.remove("bad"));
        assert!(state.view("a").unwrap().problems.is_empty());
    }

    #[test]
    fn invalid_permissions_and_policies_leave_the_last_valid_ones_in_force() {
        let state = synced();
        let strict = "webhooks: {mutate.lucid.computing: {strictMode: true}}";
        state.set_permissions("lucid-system", Some(&data("webhooks.yaml", strict)));
        state.set_policy("lucid-system", Some(&data("mode", "enforce")), Some("kubectl-patch".to_owned()));
        let enforced = ModeInForce { mode: Mode::Enforce, manager: Some("kubectl-patch".to_owned()) };
        assert_eq!(*state.modes().borrow(), Some(enforced.clone()));
        state.set_permissions("lucid-system", Some(&data("webhooks.yaml", "webhooks: 7")));
        state.set_policy("lucid-system", Some(&data("mode", "on")), Some("somebody".to_owned()));
        let view = state.view("a").unwrap();
        assert_eq!((view.policy.mode, state.modes().borrow().clone()), (Mode::Enforce, Some(enforced)));
        assert!(state.permissions().mutate.borrow().strict_mode);
        let [webhooks, policy] = &*view.problems else { panic!("{:?}", view.problems) };
        assert!(webhooks.starts_with("ConfigMap lucid-system/lucid-webhooks, webhooks.yaml: "), "{webhooks}");
        let says = r#"ConfigMap lucid-system/lucid-policy, mode: found "on", accepted are audit and enforce; the last "#;
        assert!(policy.starts_with(says), "{policy}");
        state.set_permissions("lucid-system", None);
        state.set_policy("lucid-system", None, None);
        let view = state.view("a").unwrap();
        assert_eq!((view.policy.mode, view.problems.len()), (Mode::Audit, 0));
        assert!(!state.permissions().mutate.borrow().strict_mode);
    }

    #[test]
    fn equivalent_catalogues_are_the_same_configuration() {
        let state = synced();
        state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
        let before = state.view("a").unwrap().configuration;
        // Changes of status or labels, or an identical write.
        state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "object/p")));
        state.change_auditors(|auditors| auditors.set(auditor("topics", 2, "object/p")));
        assert!(Arc::ptr_eq(&before, &state.view("a").unwrap().configuration));
    }

    #[test]
    fn a_broken_chain_leaves_the_last_good_one_in_force_and_says_so() {
        let state = synced();
        state.set_chain("a", Some(data("chain", "toxicity")));
        state.set_chain("a", Some(data("auditors.yaml", "chain:\n  - name: x\n    port: many\n")));
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-toxicity-auditor".to_owned()]));
        let problems = state.view("a").unwrap().problems;
        assert!(
            problems[0].starts_with("ConfigMap a/lucid-auditor-chain, auditors.yaml: line 3"),
            "{problems:?}"
        );
        assert!(problems[0].contains("chain[0].port"), "{problems:?}");
        assert!(state.view("b").unwrap().problems.is_empty());
        state.set_chain("a", Some(data("chain", "injection")));
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-injection-auditor".to_owned()]));
        assert!(state.view("a").unwrap().problems.is_empty());
    }

    #[test]
    fn a_broken_catalogue_leaves_the_last_good_one_in_force() {
        let state = synced();
        let topics = "chain: [{name: lucid-topics-auditor, image: r.test/topics}]";
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", topics)));
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
        let view = state.view("a").unwrap();
        assert!(view.configuration.catalogue().resolve("topics").is_ok());
        assert!(view.problems[0].contains("ConfigMap lucid-system/lucid-auditors, auditors.yaml: line 1"));
        state.set_catalogue("lucid-system", Some(&data("auditors.yml", topics)));
        assert!(state.view("a").unwrap().problems[0].contains("accepted is auditors.yaml"));
        state.set_catalogue("lucid-system", None);
        let view = state.view("a").unwrap();
        assert!(view.configuration.catalogue().resolve("topics").is_err() && view.problems.is_empty());
    }

    #[test]
    fn a_catalogue_that_was_never_valid_keeps_the_replica_unready() {
        let state = state(Settings::default());
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
        state.change_chains(Change::All(Vec::new()));
        let reason = state.view("a").unwrap_err().reason;
        assert!(
            reason.starts_with("ConfigMap lucid-system/lucid-auditors, auditors.yaml: line 1"),
            "{reason}"
        );
        assert!(!state.is_synced());
        // An absent ConfigMap is valid, and so is the next content.
        state.set_catalogue("lucid-system", None);
        assert!(state.is_synced() && state.view("a").is_ok());
    }

    #[test]
    fn never_valid_namespace_chains_deny_where_enforced() {
        let state = synced();
        state.set_chain("a", Some(data("chain", "toxcity")));
        let view = state.view("a").unwrap();
        assert!(
            view.invalid_chain
                .as_ref()
                .unwrap()
                .starts_with("ConfigMap a/lucid-auditor-chain, chain: unknown")
        );
        assert!(view.inputs().invalid_namespace_chain.is_none());
        let set_mode = |mode| state.set_policy("lucid-system", Some(&data("mode", mode)), None);
        set_mode("enforce");
        assert!(state.view("a").unwrap().inputs().invalid_namespace_chain.is_some());
        set_mode("audit");
        let required = [("lucid.computing/require-chain".to_owned(), "true".to_owned())].into();
        state.set_labels("a", Labels::of(&required, &BTreeMap::new()));
        assert!(state.view("a").unwrap().inputs().invalid_namespace_chain.is_none());
        // The last valid content stays in force while the replica runs.
        state.set_chain("a", Some(data("chain", "toxicity")));
        state.set_chain("a", Some(data("chain", "toxcity")));
        assert!(state.view("a").unwrap().inputs().invalid_namespace_chain.is_none());
    }

    #[test]
    fn never_valid_auditors_hide_lower_layers() {
        let state = synced();
        let file = "chain: [{name: lucid-topics-auditor, image: file/p}]";
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", file)));
        state.change_auditors(|auditors| auditors.set(auditor("topics", 1, "No Image")));
        assert_eq!(image(&state, "topics"), None);
        state.change_auditors(|auditors| auditors.set(auditor("topics", 2, "object/p")));
        state.change_auditors(|auditors| auditors.set(auditor("topics", 3, "No Image")));
        assert_eq!(image(&state, "topics").as_deref(), Some("object/p"));
    }

    #[test]
    fn a_namespace_follows_a_change_of_the_catalogue() {
        let state = state(Settings::default());
        state.change_chains(Change::All(vec![("a".to_owned(), data("chain", "topics"))]));
        state.set_catalogue("s", None);
        assert_eq!((chain(&state, "a"), state.view("a").unwrap().problems.len()), (None, 1));
        state.set_catalogue(
            "s",
            Some(&data("auditors.yaml", "chain: [{name: lucid-topics-auditor, image: r.test/topics}]")),
        );
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-topics-auditor".to_owned()]));
        assert!(state.view("a").unwrap().problems.is_empty());
    }

    #[test]
    fn unknown_auditors_in_the_operator_chain_are_reported() {
        let chain = Some(vec!["topics".to_owned()]);
        let state = state(Settings { chain, ..Settings::default() });
        state.change_chains(Change::All(Vec::new()));
        state.set_catalogue("s", None);
        let reason = state.view("a").unwrap_err().reason;
        assert!(reason.contains("in the default chain") && reason.contains("topics"), "{reason}");
        state.set_catalogue(
            "s",
            Some(&data("auditors.yaml", "chain: [{name: lucid-topics-auditor, image: r.test/topics}]")),
        );
        assert!(state.view("a").is_ok());
    }

    #[test]
    fn a_new_list_reads_only_what_changed() {
        let state = synced();
        let list = |a: &str, b: &str| {
            Change::All(vec![("a".to_owned(), data("chain", a)), ("b".to_owned(), data("chain", b))])
        };
        state.change_chains(list("toxicity", "toxicity"));
        let [a, b] = ["a", "b"].map(|name| state.view(name).unwrap().namespace_chain.unwrap());
        state.change_chains(list("toxicity", "injection"));
        assert!(Arc::ptr_eq(&a, &state.view("a").unwrap().namespace_chain.unwrap()), "a was read again");
        assert!(!Arc::ptr_eq(&b, &state.view("b").unwrap().namespace_chain.unwrap()));
        assert_eq!(chain(&state, "b"), Some(vec!["lucid-injection-auditor".to_owned()]));
    }

    #[test]
    fn a_config_map_that_is_gone_after_a_new_list_is_forgotten() {
        let state = synced();
        state.set_chain("a", Some(data("chain", "toxicity")));
        state.set_chain("b", Some(data("chain", "toxicity")));
        state.change_chains(Change::All(vec![("b".to_owned(), data("chain", "toxicity"))]));
        assert_eq!((chain(&state, "a"), chain(&state, "b").is_some()), (None, true));
        state.set_chain("b", None);
        assert_eq!(chain(&state, "b"), None);
    }
}
