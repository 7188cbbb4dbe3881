//! What follows from the content of the ConfigMaps. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use lucid_chain::{Catalogue, Configuration, NamespaceChain, keys};

use crate::{NamespaceView, Settings};

/// `data` of a ConfigMap.
pub(crate) type Data = BTreeMap<String, String>;

/// See [`crate::ClusterConfiguration`].
#[derive(Clone)]
pub(crate) struct State {
    settings: Arc<Settings>,
    /// `None` until the catalogue was read and made a configuration.
    configuration: Option<Arc<Configuration>>,
    configuration_problem: Option<String>,
    namespaces_listed: bool,
    namespaces: BTreeMap<Arc<str>, Namespace>,
}

#[derive(Clone, Default)]
struct Namespace {
    /// The ConfigMap's present content.
    data: Arc<Data>,
    chain: Option<Arc<NamespaceChain>>,
    problem: Option<String>,
}

impl Namespace {
    fn refresh(&mut self, name: &str, cluster: &Catalogue) {
        match NamespaceChain::from_data(name, &self.data, cluster) {
            Ok(chain) => (self.chain, self.problem) = (Some(Arc::new(chain)), None),
            Err(error) => {
                let kept =
                    if self.chain.is_some() { "the last good one stays in force" } else { "it is ignored" };
                let problem = format!("{error}; {kept}");
                tracing::warn!(namespace = name, "{problem}");
                self.problem = Some(problem);
            }
        }
    }
}

impl State {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            configuration: None,
            configuration_problem: None,
            namespaces_listed: false,
            namespaces: BTreeMap::new(),
        }
    }

    pub(crate) fn view(&self, namespace: &str) -> Result<NamespaceView, String> {
        let Some(configuration) = &self.configuration else {
            let problem = self.configuration_problem.clone();
            return Err(problem
                .unwrap_or_else(|| format!("ConfigMap {} has not been read", keys::CATALOGUE_CONFIG_MAP)));
        };
        if !self.namespaces_listed {
            return Err(format!("ConfigMaps {} have not been listed", keys::NAMESPACE_CONFIG_MAP));
        }
        let own = self.namespaces.get(namespace);
        Ok(NamespaceView {
            configuration: Arc::clone(configuration),
            namespace_chain: own.and_then(|own| own.chain.clone()),
            problems: [self.configuration_problem.as_ref(), own.and_then(|own| own.problem.as_ref())]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
        })
    }

    /// Takes the cluster's catalogue from ConfigMap `lucid-auditors` of `namespace`; `None` when there is none.
    pub(crate) fn set_catalogue(&mut self, namespace: &str, data: Option<&Data>) {
        match (self.configuration(namespace, data), &self.configuration) {
            (Ok(configuration), _) => self.install(configuration, None),
            (Err(problem), Some(_)) => self.report(format!("{problem}; the last good one stays in force")),
            // At start there is no last good one; better the built-in auditors than no pods at all.
            (Err(problem), None) => match self.configuration(namespace, None) {
                Ok(built_in) => {
                    self.install(built_in, Some(format!("{problem}; only the built-in auditors are known")));
                }
                Err(also) if also == problem => self.report(problem),
                Err(also) => self.report(format!("{problem}; {also}")),
            },
        }
    }

    fn install(&mut self, configuration: Configuration, problem: Option<String>) {
        for (name, own) in &mut self.namespaces {
            own.refresh(name, configuration.catalogue());
        }
        self.configuration = Some(Arc::new(configuration));
        self.configuration_problem = None;
        problem.into_iter().for_each(|problem| self.report(problem));
    }

    fn report(&mut self, problem: String) {
        tracing::warn!("{problem}");
        self.configuration_problem = Some(problem);
    }

    fn configuration(&self, namespace: &str, data: Option<&Data>) -> Result<Configuration, String> {
        let config_map = format!("ConfigMap {namespace}/{}", keys::CATALOGUE_CONFIG_MAP);
        let catalogue = match data {
            None => Catalogue::builtin(),
            Some(data) => {
                let yaml = data.get(keys::CATALOGUE_KEY).ok_or_else(|| {
                    let found: Vec<&str> = data.keys().map(String::as_str).collect();
                    format!("{config_map}: found keys {found:?}, accepted is {}", keys::CATALOGUE_KEY)
                })?;
                let origin = format!("{config_map}, {}", keys::CATALOGUE_KEY);
                Catalogue::builtin()
                    .overlay(&Catalogue::parse(&origin, yaml).map_err(|error| error.to_string())?)
            }
        };
        let Settings { chain, overrides, skip, init_image, image_pull_secrets } = self.settings.as_ref();
        let mut configuration = Configuration::new(catalogue, chain.as_deref())
            .map_err(|error| format!("{error} (set by LUCID_CHAIN; auditors are defined in {config_map})"))?;
        configuration.overrides = *overrides;
        configuration.skip = skip.clone();
        configuration.image_pull_secrets.clone_from(image_pull_secrets);
        if let Some(image) = init_image {
            configuration.init_image = image.clone();
        }
        Ok(configuration)
    }

    /// Takes the chain of one namespace.
    pub(crate) fn set_namespace(&mut self, name: &str, data: Data) {
        let catalogue = self.configuration.as_ref().map(|configuration| configuration.catalogue().clone());
        let own = self.namespaces.entry(name.into()).or_default();
        // A new list brings every ConfigMap again; most are as they were.
        let is_read = own.chain.is_some() || own.problem.is_some();
        if is_read && *own.data == data {
            return;
        }
        own.data = Arc::new(data);
        // Before the catalogue is known nothing can be said; it will be when the catalogue comes.
        if let Some(catalogue) = catalogue {
            own.refresh(name, &catalogue);
        }
    }

    /// The namespace has no chain of its own any more.
    pub(crate) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Takes the chains of all namespaces; those that are not listed have none any more.
    pub(crate) fn set_namespaces(&mut self, listed: &BTreeMap<String, Data>) {
        self.namespaces.retain(|name, _| listed.contains_key(&**name));
        for (name, data) in listed {
            self.set_namespace(name, data.clone());
        }
        self.namespaces_listed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(key: &str, value: &str) -> Data {
        [(key.to_owned(), value.to_owned())].into()
    }

    fn synced() -> State {
        let mut state = State::new(Settings::default());
        state.set_catalogue("lucid-system", None);
        state.set_namespaces(&BTreeMap::new());
        state
    }

    fn chain(state: &State, namespace: &str) -> Option<Vec<String>> {
        let chain = state.view(namespace).unwrap().namespace_chain?;
        Some(chain.chain().iter().map(|auditor| auditor.name().to_owned()).collect())
    }

    #[test]
    fn nothing_is_answered_before_both_kinds_of_config_maps_were_read() {
        let mut state = State::new(Settings::default());
        assert_eq!(state.view("a").unwrap_err(), "ConfigMap lucid-auditors has not been read");
        state.set_catalogue("lucid-system", None);
        assert_eq!(state.view("a").unwrap_err(), "ConfigMaps lucid-auditor-chain have not been listed");
        state.set_namespaces(&BTreeMap::new());
        assert!(state.view("a").is_ok());
    }

    #[test]
    fn a_broken_chain_leaves_the_last_good_one_in_force_and_says_so() {
        let mut state = synced();
        state.set_namespace("a", data("chain", "toxicity"));
        state.set_namespace("a", data("auditors.yaml", "chain:\n  - name: x\n    port: many\n"));
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-toxicity-auditor".to_owned()]));
        let problems = state.view("a").unwrap().problems;
        assert!(
            problems[0].starts_with("ConfigMap a/lucid-auditor-chain, auditors.yaml: line 3"),
            "{problems:?}"
        );
        assert!(problems[0].contains("chain[0].port"), "{problems:?}");
        assert!(state.view("b").unwrap().problems.is_empty());
        state.set_namespace("a", data("chain", "injection"));
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-injection-auditor".to_owned()]));
        assert!(state.view("a").unwrap().problems.is_empty());
    }

    #[test]
    fn a_broken_catalogue_leaves_the_last_good_one_in_force() {
        let mut state = synced();
        let pii = "chain: [{name: lucid-pii-auditor, image: r.test/pii}]";
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", pii)));
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
        let view = state.view("a").unwrap();
        assert!(view.configuration.catalogue().resolve("pii").is_ok());
        assert!(view.problems[0].contains("ConfigMap lucid-system/lucid-auditors, auditors.yaml: line 1"));
        state.set_catalogue("lucid-system", Some(&data("auditors.yml", pii)));
        assert!(state.view("a").unwrap().problems[0].contains("accepted is auditors.yaml"));
        state.set_catalogue("lucid-system", None);
        let view = state.view("a").unwrap();
        assert!(view.configuration.catalogue().resolve("pii").is_err() && view.problems.is_empty());
    }

    #[test]
    fn a_catalogue_that_is_broken_from_the_start_leaves_the_built_in_auditors() {
        let mut state = State::new(Settings::default());
        state.set_catalogue("lucid-system", Some(&data("auditors.yaml", "chain: 7")));
        state.set_namespaces(&BTreeMap::new());
        let view = state.view("a").unwrap();
        assert!(view.configuration.catalogue().resolve("toxicity").is_ok());
        assert!(view.problems[0].ends_with("only the built-in auditors are known"), "{:?}", view.problems);
    }

    #[test]
    fn a_namespace_follows_a_change_of_the_catalogue() {
        let mut state = State::new(Settings::default());
        state.set_namespaces(&[("a".to_owned(), data("chain", "pii"))].into());
        state.set_catalogue("s", None);
        assert_eq!((chain(&state, "a"), state.view("a").unwrap().problems.len()), (None, 1));
        state.set_catalogue(
            "s",
            Some(&data("auditors.yaml", "chain: [{name: lucid-pii-auditor, image: r.test/pii}]")),
        );
        assert_eq!(chain(&state, "a"), Some(vec!["lucid-pii-auditor".to_owned()]));
        assert!(state.view("a").unwrap().problems.is_empty());
    }

    #[test]
    fn an_operator_chain_with_an_unknown_auditor_is_named_until_the_catalogue_knows_it() {
        let chain = Some(vec!["pii".to_owned()]);
        let mut state = State::new(Settings { chain, ..Settings::default() });
        state.set_namespaces(&BTreeMap::new());
        state.set_catalogue("s", None);
        let reason = state.view("a").unwrap_err();
        assert!(reason.contains("LUCID_CHAIN") && reason.contains("pii"), "{reason}");
        state.set_catalogue(
            "s",
            Some(&data("auditors.yaml", "chain: [{name: lucid-pii-auditor, image: r.test/pii}]")),
        );
        assert!(state.view("a").is_ok());
    }

    #[test]
    fn a_new_list_reads_only_what_changed() {
        let mut state = synced();
        let list = |a: &str, b: &str| {
            [("a".to_owned(), data("chain", a)), ("b".to_owned(), data("chain", b))].into()
        };
        state.set_namespaces(&list("toxicity", "toxicity"));
        let [a, b] = ["a", "b"].map(|name| state.view(name).unwrap().namespace_chain.unwrap());
        state.set_namespaces(&list("toxicity", "injection"));
        assert!(Arc::ptr_eq(&a, &state.view("a").unwrap().namespace_chain.unwrap()), "a was read again");
        assert!(!Arc::ptr_eq(&b, &state.view("b").unwrap().namespace_chain.unwrap()));
        assert_eq!(chain(&state, "b"), Some(vec!["lucid-injection-auditor".to_owned()]));
    }

    #[test]
    fn a_config_map_that_is_gone_after_a_new_list_is_forgotten() {
        let mut state = synced();
        state.set_namespace("a", data("chain", "toxicity"));
        state.set_namespace("b", data("chain", "toxicity"));
        state.set_namespaces(&[("b".to_owned(), data("chain", "toxicity"))].into());
        assert_eq!((chain(&state, "a"), chain(&state, "b").is_some()), (None, true));
        state.remove_namespace("b");
        assert_eq!(chain(&state, "b"), None);
    }
}
