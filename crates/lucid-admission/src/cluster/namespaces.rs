//! Chains and labels of the namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use lucid_chain::{
    AuditorImages, Configuration, NamespaceChain, PodChoices, PodSecurity, keys, requires_chain,
};

/// `data` of a ConfigMap.
pub(crate) type Data = BTreeMap<String, String>;

/// All known namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    chains: Option<HashMap<String, Arc<Chain>>>,
    labels: Option<HashMap<String, Labels>>,
}

/// Settings from the labels and annotations of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) pod_security: PodSecurity,
    pub(crate) is_enabled: bool,
    pub(crate) requires_chain: bool,
    pub(crate) pod_choices: PodChoices,
    pub(crate) auditor_images: AuditorImages,
    /// Invalid settings.
    pub(crate) problems: Vec<String>,
}

impl Labels {
    pub(crate) fn of(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Self {
        let (pod_choices, of_choices) = PodChoices::from_namespace(labels, annotations);
        let (auditor_images, of_images) = AuditorImages::from_annotations(annotations);
        Self {
            pod_security: PodSecurity::from_labels(labels),
            is_enabled: labels.get(keys::ENABLED_LABEL).is_some_and(|value| value == keys::TRUE),
            requires_chain: requires_chain(labels, annotations),
            pod_choices,
            auditor_images,
            problems: of_choices.into_iter().chain(of_images).collect(),
        }
    }
}

impl Namespaces {
    pub(crate) const fn are_chains_listed(&self) -> bool {
        self.chains.is_some()
    }

    pub(crate) const fn are_labels_listed(&self) -> bool {
        self.labels.is_some()
    }

    pub(crate) fn chain(&self, name: &str) -> Option<Arc<Chain>> {
        self.chains.as_ref()?.get(name).cloned()
    }

    pub(crate) fn labels(&self, name: &str) -> Option<Labels> {
        self.labels.as_ref()?.get(name).cloned()
    }

    /// Names of the namespaces with a ConfigMap.
    pub(crate) fn with_chains(&self) -> Vec<String> {
        self.chains.iter().flatten().map(|(name, _)| name.clone()).collect()
    }

    /// Sets the ConfigMap of one namespace after the initial list; `None` if it was deleted.
    pub(crate) fn set_chain(&mut self, name: &str, chain: Option<Chain>) {
        let Some(chains) = &mut self.chains else { return };
        match chain {
            Some(chain) => chains.insert(name.to_owned(), Arc::new(chain)),
            None => chains.remove(name),
        };
    }

    /// Replaces the ConfigMaps of all namespaces. Unchanged ones are not parsed again.
    pub(crate) fn set_chains(&mut self, listed: BTreeMap<String, Data>) {
        let before = self.chains.take().unwrap_or_default();
        let chains = listed.into_iter().map(|(name, data)| {
            let chain = match before.get(&name) {
                Some(before) if before.data == data => Arc::clone(before),
                before => Arc::new(Chain::new(data, before.map(AsRef::as_ref))),
            };
            (name, chain)
        });
        self.chains = Some(chains.collect());
    }

    pub(crate) fn set_labels(&mut self, name: &str, labels: Option<Labels>) {
        let Some(all) = &mut self.labels else { return };
        match labels {
            Some(labels) => all.insert(name.to_owned(), labels),
            None => all.remove(name),
        };
    }

    pub(crate) fn set_all_labels(&mut self, listed: HashMap<String, Labels>) {
        self.labels = Some(listed);
    }
}

/// ConfigMap `lucid-auditor-chain` of a namespace.
///
/// It is parsed against the cluster's catalogue on first use, and again after the catalogue or the allowed images have
/// changed. With many namespaces, a change of the catalogue thus takes effect at once.
#[derive(Debug)]
pub(crate) struct Chain {
    data: Data,
    read: Mutex<Read>,
}

/// Result of parsing a ConfigMap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    /// Configuration that the ConfigMap was parsed against.
    against: Option<Arc<Configuration>>,
    images: AuditorImages,
    /// Last valid chain.
    pub(crate) chain: Option<Arc<NamespaceChain>>,
    pub(crate) problem: Option<String>,
}

impl Chain {
    /// Creates a chain that starts with the last valid content of `before`.
    pub(crate) fn new(data: Data, before: Option<&Self>) -> Self {
        let (chain, images) = before
            .map(|before| before.lock())
            .map_or_else(Default::default, |read| (read.chain.clone(), read.images.clone()));
        Self { data, read: Mutex::new(Read { chain, images, ..Read::default() }) }
    }

    /// Parses the ConfigMap, unless that was done with the same catalogue and images.
    pub(crate) fn read(
        &self,
        name: &str,
        configuration: &Arc<Configuration>,
        images: &AuditorImages,
    ) -> Read {
        let mut read = self.lock();
        if read.images != *images {
            // The last good chain may contain an image that is no longer allowed.
            *read = Read { images: images.clone(), ..Read::default() };
        }
        if read.against.as_ref().is_some_and(|against| Arc::ptr_eq(against, configuration)) {
            return read.clone();
        }
        match NamespaceChain::from_data(name, &self.data, configuration.catalogue(), images) {
            Ok(chain) => (read.chain, read.problem) = (Some(Arc::new(chain)), None),
            Err(error) => {
                let problem = match read.chain {
                    Some(_) => format!("{error}; the last good one stays in force"),
                    None => error.to_string(),
                };
                if read.problem.as_ref() != Some(&problem) {
                    tracing::warn!(namespace = name, "{problem}");
                }
                read.problem = Some(problem);
            }
        }
        read.against = Some(Arc::clone(configuration));
        read.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Read> {
        // The guarded value is consistent even if its writer panicked.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
