//! Chains and labels of the namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use lucid_chain::{Configuration, NamespaceChain, NamespaceSettings, keys};

use crate::cluster::keeper::KeeperAction;

pub(crate) type Data = BTreeMap<String, String>;

#[derive(Debug)]
pub(crate) enum Change<T> {
    All(Vec<T>),
    Set(T),
    Removed(T),
}

/// One object per namespace. Nothing is known before the initial list.
#[derive(Debug)]
pub(crate) struct ByNamespace<T>(Option<HashMap<String, Arc<T>>>);

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> ByNamespace<T> {
    pub(crate) const fn is_listed(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn get(&self, namespace: &str) -> Option<Arc<T>> {
        self.0.as_ref()?.get(namespace).cloned()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().flatten().map(|(name, _)| name.clone()).collect()
    }

    /// Applies a change. `make` creates an object from its content and the previous object of the same namespace, which
    /// it returns if nothing changed. Returns `false` if nothing changed at all.
    pub(crate) fn apply<C>(
        &mut self,
        change: Change<(String, C)>,
        make: impl Fn(C, Option<Arc<T>>) -> Arc<T>,
    ) -> bool {
        let mut is_changed = false;
        let mut make = |content, before: Option<Arc<T>>| {
            let object = make(content, before.clone());
            is_changed |= !before.is_some_and(|before| Arc::ptr_eq(&before, &object));
            object
        };
        match change {
            Change::All(listed) => {
                let mut before = self.0.take().unwrap_or_default();
                let all = listed.into_iter().map(|(namespace, content)| {
                    let object = make(content, before.remove(&namespace));
                    (namespace, object)
                });
                self.0 = Some(all.collect());
                is_changed || !before.is_empty()
            }
            Change::Set((namespace, content)) => {
                // The initial list contains earlier objects.
                let Some(all) = &mut self.0 else { return false };
                let before = all.remove(&namespace);
                all.insert(namespace, make(content, before));
                is_changed
            }
            Change::Removed((namespace, _)) => {
                self.0.as_mut().and_then(|all| all.remove(&namespace)).is_some()
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels {
    pub(crate) is_enabled: bool,
    /// An invalid value asks for nothing.
    pub(crate) keeper: Option<KeeperAction>,
    pub(crate) settings: Arc<NamespaceSettings>,
}

impl Labels {
    pub(crate) fn of(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Self {
        Self {
            is_enabled: labels.get(keys::ENABLED_LABEL).is_some_and(|value| value == keys::TRUE),
            keeper: labels.get(keys::KEEPER).map(|value| value.parse().unwrap_or_default()),
            settings: Arc::new(NamespaceSettings::new(labels, annotations)),
        }
    }
}

/// ConfigMap `lucid-auditor-chain` of a namespace.
///
/// It is parsed against the cluster's catalogue on first use, and again after the catalogue or the allowed images have
/// changed. With many namespaces, a change of the catalogue thus takes effect at once.
#[derive(Debug)]
pub(crate) struct Chain {
    data: Data,
    parsed: Mutex<Parsed>,
}

#[derive(Clone, Debug, Default)]
struct Parsed {
    /// Configuration and settings with the images that the ConfigMap was parsed against.
    against: Option<Arc<Configuration>>,
    settings: Arc<NamespaceSettings>,
    chain: Option<Arc<NamespaceChain>>,
    problem: Option<String>,
}

impl Chain {
    /// Returns the chain with this content, which starts with the last valid content of `before`. An unchanged one is
    /// not parsed again.
    pub(crate) fn new(data: Data, before: Option<Arc<Self>>) -> Arc<Self> {
        let parsed = match before {
            Some(before) if before.data == data => return before,
            Some(before) => {
                let Parsed { chain, settings, .. } = before.lock().clone();
                Parsed { chain, settings, ..Parsed::default() }
            }
            None => Parsed::default(),
        };
        Arc::new(Self { data, parsed: Mutex::new(parsed) })
    }

    /// Returns the last valid chain and the problem of the current content.
    pub(crate) fn read(
        &self,
        name: &str,
        configuration: &Arc<Configuration>,
        settings: &Arc<NamespaceSettings>,
    ) -> (Option<Arc<NamespaceChain>>, Option<String>) {
        let mut parsed = self.lock();
        if !parsed.settings.allows_same_images(settings) {
            // The last good chain may contain an image that is no longer allowed.
            *parsed = Parsed { settings: Arc::clone(settings), ..Parsed::default() };
        }
        if !parsed.against.as_ref().is_some_and(|against| Arc::ptr_eq(against, configuration)) {
            match NamespaceChain::from_data(name, &self.data, configuration.catalogue(), settings) {
                Ok(chain) => (parsed.chain, parsed.problem) = (Some(Arc::new(chain)), None),
                Err(error) => {
                    let problem = match parsed.chain {
                        Some(_) => format!("{error}; the last valid content stays in use"),
                        None => error.to_string(),
                    };
                    if parsed.problem.as_ref() != Some(&problem) {
                        tracing::warn!(namespace = name, "{problem}");
                    }
                    parsed.problem = Some(problem);
                }
            }
            parsed.against = Some(Arc::clone(configuration));
        }
        (parsed.chain.clone(), parsed.problem.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Parsed> {
        // The guarded value is consistent even if its writer panicked.
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
